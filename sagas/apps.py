"""Start-up of the app `sagas`."""

from django.apps import AppConfig


class SagasConfig(AppConfig):
    """Name and label; wiring at start goes into `ready()`."""

    name = "sagas"
