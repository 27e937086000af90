"""Failure groups, discard and restore by API."""

from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions import discards as acts
from console.api.base import Endpoint, answer, page_of, take
from console.api.problems import NotThere
from console.api.replay_shapes import Given, PreviewGiven, PreviewShape, ReasonGiven, RequestShape
from console.api.replays import read_selection
from console.api.shapes import CURSOR, LIMIT, LetterDetailShape, Shape
from console.filters import read_choice, read_text
from console.models import SecondRequest
from console.permissions import Action
from console.second_person import get_request
from dlq import facade as dlq
from dlq.facade import GroupFilter, GroupShow, GroupSort


class WindowShape(Shape):
    """How many were parked in a window."""

    # `label` is a word of the serializer's own.
    window = serializers.CharField(source="label")
    since = serializers.DateTimeField()
    parked = serializers.IntegerField()


class FailureGroupShape(Shape):
    """Dead letters of one cause."""

    number = serializers.IntegerField()
    name = serializers.CharField()
    handler = serializers.CharField()
    failure_class = serializers.CharField()
    error_class = serializers.CharField()
    error_message = serializers.CharField()
    state = serializers.CharField()
    open = serializers.IntegerField()
    applied = serializers.IntegerField()
    sent = serializers.IntegerField()
    discarded = serializers.IntegerField()
    total = serializers.IntegerField()
    first_seen_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField(allow_null=True)
    windows = WindowShape(many=True)
    owner = serializers.CharField()
    note = serializers.CharField()
    snoozed_until = serializers.DateTimeField(allow_null=True)
    fixed_in = serializers.CharField()
    fixed_at = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField()


class FailureGroupPageShape(Shape):
    """Failure groups."""

    as_of = serializers.DateTimeField()
    groups = FailureGroupShape(many=True)
    matching = serializers.IntegerField()
    next_cursor = serializers.CharField(allow_null=True)


class DiscardGiven(Given):
    """Discard a frozen selection; its id comes from a preview."""

    preview_id = serializers.UUIDField()
    reason = serializers.CharField()


class DiscardedShape(Shape):
    """What a discard did."""

    id = serializers.UUIDField()
    discarded = serializers.IntegerField()
    skipped = serializers.IntegerField()
    in_replay = serializers.IntegerField()
    restorable_until = serializers.DateTimeField()


class DiscardDoneShape(Shape):
    """A discard (201), or a request that another person has to confirm (202)."""

    discard = DiscardedShape(allow_null=True)
    second_request = RequestShape(allow_null=True)


class FailureGroups(Endpoint):
    """The failure groups."""

    @extend_schema(
        operation_id="list_failure_groups",
        parameters=[
            *(OpenApiParameter(name, str) for name in ("text", "topic", "group")),
            OpenApiParameter("show", str, enum=[s.value for s in GroupShow], default=GroupShow.TODO.value),
            OpenApiParameter("sort", str, enum=[s.value for s in GroupSort], default=GroupSort.OPEN.value),
            CURSOR,
            LIMIT,
        ],
        responses=FailureGroupPageShape,
    )
    def get(self, request: Request) -> Response:
        """List failure groups; by default those that need a look."""
        query = request.query_params
        wanted = GroupFilter(
            text=read_text(query, "text"),
            topic=read_text(query, "topic"),
            group=read_text(query, "group"),
            show=GroupShow(read_choice(query, "show", [s.value for s in GroupShow], GroupShow.TODO.value)),
            sort=GroupSort(read_choice(query, "sort", [s.value for s in GroupSort], GroupSort.OPEN.value)),
        )
        cursor, limit = page_of(request)
        return answer(FailureGroupPageShape, dlq.list_failure_groups(wanted, cursor=cursor, limit=limit))


class FailureGroup(Endpoint):
    """One failure group."""

    @extend_schema(operation_id="get_failure_group", responses=FailureGroupShape)
    def get(self, request: Request, number: int) -> Response:
        """Show one failure group."""
        del request
        found = dlq.get_failure_group(number)
        if found is None:
            raise NotThere(f"There is no failure group G-{number}, or it was merged into another one.")
        return answer(FailureGroupShape, found.group)


class DiscardPreviews(Endpoint):
    """Frozen selections, for a discard."""

    needs = {"POST": Action.DISCARD_DEAD_LETTERS}

    @extend_schema(operation_id="preview_discard", request=PreviewGiven, responses={201: PreviewShape})
    def post(self, request: Request) -> Response:
        """Freeze what is to be discarded. Nothing is discarded."""
        return answer(PreviewShape, acts.freeze_discard(request.user, read_selection(take(PreviewGiven, request))), 201)


class Discards(Endpoint):
    """Discards."""

    needs = {"POST": Action.DISCARD_DEAD_LETTERS}

    @extend_schema(
        operation_id="discard_dead_letters",
        request=DiscardGiven,
        responses={201: DiscardDoneShape, 202: DiscardDoneShape},
    )
    def post(self, request: Request) -> Response:
        """Discard a frozen selection. 202: too many for one person, so another one is asked."""
        given = take(DiscardGiven, request)
        done = acts.discard_frozen(request.user, given["preview_id"], reason=given["reason"])
        if isinstance(done, SecondRequest):
            return answer(DiscardDoneShape, {"discard": None, "second_request": get_request(done.pk)}, 202)
        return answer(DiscardDoneShape, {"discard": done, "second_request": None}, 201)


class Restore(Endpoint):
    """Take a discard back."""

    needs = {"POST": Action.DISCARD_DEAD_LETTERS}

    @extend_schema(operation_id="restore_dead_letter", request=ReasonGiven, responses=LetterDetailShape)
    def post(self, request: Request, dead_letter_id: UUID) -> Response:
        """Park a discarded dead letter again, with a reason."""
        reason = take(ReasonGiven, request)["reason"]
        if dlq.get_dead_letter(dead_letter_id) is None:
            raise NotThere(f"There is no dead letter {dead_letter_id}.")
        acts.restore_dead_letter(request.user, dead_letter_id, reason=reason)
        return answer(LetterDetailShape, dlq.get_dead_letter(dead_letter_id))
