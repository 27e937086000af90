"""Errors of the API as problem documents (RFC 9457): what is wrong, what to do, the id to quote."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler

from console.actions.base import ActDenied, BadInput, StaleAct
from console.filters import BadFilter
from console.views.errors import request_id
from dlq.facade import BadGroupQuery, BadQuery

CONTENT_TYPE = "application/problem+json"
_TITLES = {
    400: "This cannot be read",
    401: "Say who you are",
    403: "You may not do this",
    404: "Nothing is here",
    405: "This address does not take that method",
    409: "It has changed since you looked",
    413: "This is too large",
    415: "This content type cannot be read",
    422: "This cannot be done as it stands",
    503: "PostgreSQL does not answer",
}
_DATABASE_AWAY = "Nothing can be read or changed now. What was committed is kept. Ask again in 5 s."


class NotThere(Exception):
    """What the address names does not exist; the text says what."""


def answer_error(error: Exception, context: dict[str, Any]) -> HttpResponseBase | None:
    """Turn an error of a view into a problem document; None lets Django answer 500."""
    request: HttpRequest = context["request"]._request  # noqa: SLF001 - DRF's way to Django's own request
    if isinstance(error, OperationalError | InterfaceError):
        return problem(request, 503, _DATABASE_AWAY, headers={"Retry-After": "5"})
    if isinstance(error, BadInput):
        return problem(request, 422, str(error), field=error.field)
    status = _own_status(error)
    if status:
        return problem(request, status, str(error))
    return _drf_problem(request, error, exception_handler(error, context))


def problem(
    request: HttpRequest, status: int, detail: str, *, headers: dict[str, str] | None = None, **more: object
) -> JsonResponse:
    """Make a problem document."""
    body = {
        "type": "about:blank",
        "title": _TITLES.get(status, "This did not succeed"),
        "status": status,
        "detail": detail,
        "request_id": request_id(request),
        **more,
    }
    return JsonResponse(
        body, status=status, content_type=CONTENT_TYPE, headers={"Cache-Control": "no-store", **(headers or {})}
    )


def _own_status(error: Exception) -> int:
    if isinstance(error, ActDenied | PermissionDenied):
        return 403
    if isinstance(error, StaleAct):
        return 409
    if isinstance(error, BadQuery | BadGroupQuery | BadFilter):
        return 422
    return 404 if isinstance(error, NotThere) else 0


def _drf_problem(request: HttpRequest, error: Exception, answer: Response | None) -> HttpResponseBase | None:
    if answer is None:
        return None
    headers = {name: answer[name] for name in ("WWW-Authenticate", "Allow", "Retry-After") if name in answer}
    if isinstance(error, exceptions.ValidationError):
        return problem(
            request, 422, "Some values cannot be used; `invalid` says which.", headers=headers, invalid=answer.data
        )
    detail = "Nothing has this address." if isinstance(error, Http404) else str(getattr(error, "detail", error))
    return problem(request, answer.status_code, detail, headers=headers)
