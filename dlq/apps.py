"""Start-up of the app `dlq`."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class DlqConfig(AppConfig):
    """Import every app's `handlers` module, so that `@handler` has registered them, and the system checks."""

    name = "dlq"

    def ready(self) -> None:
        """Register."""
        from dlq import checks, copying, relay_parking  # noqa: F401 - checks register by being imported

        relay_parking.register()
        copying.register()
        autodiscover_modules("handlers")
