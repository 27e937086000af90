"""Quarantined keys and breakers by API."""

from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions import dlq as acts
from console.api.base import Endpoint, answer, page_of, take
from console.api.problems import NotThere
from console.api.replay_shapes import (
    BreakerGiven,
    BreakerListShape,
    DoneShape,
    KeyPageShape,
    KeyShape,
    ReasonGiven,
)
from console.api.replays import show_done
from console.api.shapes import CURSOR, LIMIT
from console.filters import read_name, read_text
from console.permissions import Action
from dlq import facade as dlq
from dlq.types import QuarantinedKey, QuarantineFilter

_FILTER = [OpenApiParameter(name, str) for name in ("group", "topic", "key")]


class Keys(Endpoint):
    """The quarantined keys."""

    @extend_schema(operation_id="list_quarantined_keys", parameters=[*_FILTER, CURSOR, LIMIT], responses=KeyPageShape)
    def get(self, request: Request) -> Response:
        """List quarantined keys, newest first."""
        cursor, limit = page_of(request)
        query = request.query_params
        wanted = QuarantineFilter(
            group=read_name(query, "group"), topic=read_name(query, "topic"), key_label=read_text(query, "key")
        )
        return answer(KeyPageShape, dlq.list_quarantined(cursor, limit, wanted))


class Key(Endpoint):
    """One quarantined key."""

    @extend_schema(operation_id="get_quarantined_key", responses=KeyShape)
    def get(self, request: Request, key_id: UUID) -> Response:
        """Show a quarantined key with its head."""
        del request
        return answer(KeyShape, _found(key_id))


class ReleaseKey(Endpoint):
    """Let a key go."""

    needs = {"POST": Action.RELEASE_KEY}

    @extend_schema(operation_id="release_key", request=ReasonGiven, responses={201: DoneShape, 202: DoneShape})
    def post(self, request: Request, key_id: UUID) -> Response:
        """Replay a quarantined key from its head on, in order. 202: so many need a second person."""
        reason = take(ReasonGiven, request)["reason"]
        _found(key_id)
        return show_done(acts.release_key(request.user, key_id, reason=reason))


class Breakers(Endpoint):
    """The breakers."""

    @extend_schema(operation_id="list_breakers", responses=BreakerListShape)
    def get(self, request: Request) -> Response:
        """List the breakers that ever counted a failure, open ones first."""
        del request
        return answer(BreakerListShape, {"breakers": dlq.list_breakers()})


class CloseBreaker(Endpoint):
    """Let a handler run again."""

    needs = {"POST": Action.CLOSE_BREAKER}

    @extend_schema(operation_id="close_breaker", request=BreakerGiven, responses=BreakerListShape)
    def post(self, request: Request) -> Response:
        """Close an open breaker, as it was seen, with a reason."""
        given = take(BreakerGiven, request)
        acts.close_breaker(
            request.user, given["group"], given["handler"], seen=given["version"], reason=given["reason"]
        )
        return answer(BreakerListShape, {"breakers": dlq.list_breakers()})


def _found(key_id: UUID) -> QuarantinedKey:
    found = dlq.get_quarantined(key_id)
    if found is None:
        raise NotThere("This key is not quarantined (any more).")
    return found
