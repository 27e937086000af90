"""Writes of the dead-letter queue."""
