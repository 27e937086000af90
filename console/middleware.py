"""A correlation id for every request: in the answer's X-Request-ID, in every log line, on every error page."""

import re
import secrets
from collections.abc import Callable

import structlog
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers

from console.views.errors import database_away, method_refused

log = structlog.get_logger(__name__)
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")


class CorrelationMiddleware:
    """Take a sane X-Request-ID from the proxy or make one, bind it for the logs; give words to 405 and no database."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Serve the request with the id bound."""
        request_id = _request_id(request)
        request.META["signalbox.request_id"] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            response = self.get_response(request)
        finally:
            structlog.contextvars.unbind_contextvars("request_id")
        if response.status_code == 405 and not response.content:
            response = method_refused(request, response.get("Allow", ""))
        response["X-Request-ID"] = request_id
        patch_vary_headers(response, ["HX-Request"])
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer 503 when the database is away; everything else is Django's to answer."""
        if not isinstance(exception, OperationalError | InterfaceError):
            return None
        log.error("web.database_away", path=request.path, exc_info=exception)
        return database_away(request)


def _request_id(request: HttpRequest) -> str:
    given = request.headers.get("X-Request-ID", "")
    return given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)
