"""The relay loop."""
