"""Start-up of the app `relay`."""

from django.apps import AppConfig


class RelayConfig(AppConfig):
    """Register the system checks."""

    name = "relay"

    def ready(self) -> None:
        """Register."""
        from relay import checks  # noqa: F401 - registers by being imported
