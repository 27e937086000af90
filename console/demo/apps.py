"""Start-up of the returns pipeline demo; installed only when `SIGNALBOX_DEMO` is on."""

from importlib import import_module

from django.apps import AppConfig
from django.conf import settings


class DemoConfig(AppConfig):
    """Label `demo`; its tables, topics and handlers are apart from the product.

    The product imports `handlers` of every installed app at start; those declare the topics they need.
    """

    name = "console.demo"
    label = "demo"

    def ready(self) -> None:
        """Declare the topics, and register the smoke run's handler where it runs."""
        import_module("console.demo.topics")
        if settings.DEMO_SMOKE:
            import_module("console.demo.smoke.handlers")
