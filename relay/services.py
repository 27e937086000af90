"""Writes of the relay."""
