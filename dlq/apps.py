"""Start-up of the app `dlq`."""

from django.apps import AppConfig


class DlqConfig(AppConfig):
    """Name and label; wiring at start goes into `ready()`."""

    name = "dlq"
