"""Start-up of the returns pipeline demo; installed only when `SIGNALBOX_DEMO` is on."""

from django.apps import AppConfig


class DemoConfig(AppConfig):
    """Label `demo`; its tables, topics and handlers are apart from the product."""

    name = "console.demo"
    label = "demo"
