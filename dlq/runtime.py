"""The consumer runtime."""
