"""Reads of the relay."""
