"""Reads of the dead-letter queue."""
