"""The door of the dlq app."""
