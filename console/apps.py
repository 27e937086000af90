"""Start-up of the app `console`."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Name, label, and the wiring of signals to live hints."""

    name = "console"

    def ready(self) -> None:
        """Connect what the domain apps announce."""
        from console import checks  # noqa: F401 - registers them
        from console.live.wiring import connect_signals

        connect_signals()
