"""The smoke run's own topic, handler, publishers and count. Loaded only by `manage.py smoke`."""
