"""What every endpoint shares: which action it needs, checked input, pages by cursor."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http import QueryDict
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.filters import BadFilter, read_text
from console.permissions import Action


class Endpoint(APIView):
    """A view of the API. `needs`: which action a method takes; to see pages when it names none."""

    needs: Mapping[str, Action] = {}

    @property
    def action_needed(self) -> Action:
        """The action that the request's method takes."""
        return self.needs.get(self.request.method or "", Action.VIEW)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Let nobody between here and the caller keep the answer."""
        final = super().finalize_response(request, response, *args, **kwargs)
        final["Cache-Control"] = "no-store"
        return final


def take(kind: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The checked values of a request's body.

    Raises:
        ValidationError: with the fields that cannot be used.
    """
    given = kind(data=request.data)
    given.is_valid(raise_exception=True)
    return dict(given.validated_data)


def page_of(request: Request) -> tuple[str | None, int]:
    """The cursor and the number of rows that the address asks for.

    Raises:
        BadFilter: the number is not from 1 to `API_PAGE_ROWS_MAX`.
    """
    query: QueryDict = request.query_params
    text = query.get("limit", "").strip() or str(settings.API_PAGE_ROWS)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:6]) <= settings.API_PAGE_ROWS_MAX):
        raise BadFilter(f"limit is a whole number from 1 to {settings.API_PAGE_ROWS_MAX}.")
    return read_text(query, "cursor") or None, int(text)


def answer(kind: type[serializers.Serializer[Any]], value: object, status: int = 200) -> Response:
    """One value as its serializer shows it."""
    return Response(kind(value).data, status=status)
