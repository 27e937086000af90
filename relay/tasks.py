"""Celery tasks of the relay."""
