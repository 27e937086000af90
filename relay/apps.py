"""Start-up of the app `relay`."""

from django.apps import AppConfig


class RelayConfig(AppConfig):
    """Name and label; wiring at start goes into `ready()`."""

    name = "relay"
