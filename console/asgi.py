"""The ASGI application: pages through Django, the live socket through Channels; origin checked, session read."""

import os
from typing import Any

from django.core.asgi import get_asgi_application


def _build() -> Any:
    pages = get_asgi_application()  # first: it loads the apps that these imports need
    from channels.auth import AuthMiddlewareStack
    from channels.routing import ProtocolTypeRouter, URLRouter
    from channels.security.websocket import AllowedHostsOriginValidator
    from django.urls import path

    from console.live.consumer import LiveConsumer
    from console.processes import WebProcess

    sockets = AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter([path("ws/live", LiveConsumer.as_asgi())])))
    return WebProcess(ProtocolTypeRouter({"http": pages, "websocket": sockets}))


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings.run")
application = _build()
