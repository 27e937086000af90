"""The ASGI application: pages through Django, the live socket through Channels; origin checked, session read."""

import os
from typing import Any

from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured


def _build() -> Any:
    pages = get_asgi_application()  # first: it loads the apps that these imports need
    refuse_unset_secret()
    from channels.auth import AuthMiddlewareStack
    from channels.routing import ProtocolTypeRouter, URLRouter
    from channels.security.websocket import AllowedHostsOriginValidator
    from django.urls import path

    from console.live.consumer import LiveConsumer
    from console.processes import WebProcess

    sockets = AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter([path("ws/live", LiveConsumer.as_asgi())])))
    return WebProcess(ProtocolTypeRouter({"http": pages, "websocket": sockets}))


def refuse_unset_secret() -> None:
    """Pages signed with a secret that everybody can read in the source would let anybody in.

    Raises:
        ImproperlyConfigured: SECRET_KEY is not set.
    """
    from console.checks import check_secret_key

    for problem in check_secret_key(None):
        raise ImproperlyConfigured(f"{problem.msg} {problem.hint}")


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings.run")
application = _build()
