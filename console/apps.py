"""Start-up of the app `console`."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Name and label; wiring at start goes into `ready()`."""

    name = "console"
