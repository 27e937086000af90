"""Replays by API: the same previews, permissions and audit as the pages. A start needs the id of a preview."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions import dlq as acts
from console.api.base import Endpoint, answer, page_of, take
from console.api.problems import NotThere
from console.api.replay_shapes import (
    DoneShape,
    HoldGiven,
    ItemPageShape,
    JobPageShape,
    JobShape,
    NothingGiven,
    PreviewGiven,
    PreviewShape,
    RateGiven,
    ReasonGiven,
    RequestListShape,
    RequestShape,
    RetryGiven,
    StartGiven,
)
from console.api.shapes import CURSOR, LIMIT
from console.filters import read_choice
from console.letter_filter import read_letter_filter
from console.models import SecondAct
from console.permissions import Action
from console.second_person import SecondView, get_request, list_requests
from dlq import facade as dlq
from dlq.types import ReplayJob, ReplayOutcome, Selection

_POST = {"POST": Action.REPLAY_DEAD_LETTERS}


class Previews(Endpoint):
    """Frozen selections."""

    needs = _POST

    @extend_schema(operation_id="preview_replay", request=PreviewGiven, responses={201: PreviewShape})
    def post(self, request: Request) -> Response:
        """Freeze a selection and say what a replay of it would do. Nothing is replayed."""
        given = take(PreviewGiven, request)
        found = acts.preview_replay(request.user, read_selection(given), rate_per_s=given.get("rate_per_s"))
        return answer(PreviewShape, found, status=201)


class Preview(Endpoint):
    """One frozen selection."""

    @extend_schema(operation_id="get_replay_preview", responses=PreviewShape)
    def get(self, request: Request, preview_id: UUID) -> Response:
        """Show a frozen selection, with what came since."""
        del request
        return answer(PreviewShape, _found(dlq.get_preview, preview_id))


class Replays(Endpoint):
    """The replays."""

    needs = _POST

    @extend_schema(operation_id="list_replays", parameters=[CURSOR, LIMIT], responses=JobPageShape)
    def get(self, request: Request) -> Response:
        """List replays, newest first."""
        cursor, limit = page_of(request)
        return answer(JobPageShape, dlq.list_replays(cursor, limit))

    @extend_schema(operation_id="start_replay", request=StartGiven, responses={201: DoneShape, 202: DoneShape})
    def post(self, request: Request) -> Response:
        """Start the replay of a preview, once. 202: too many for one person, so another one is asked."""
        given = take(StartGiven, request)
        done = acts.start_replay(
            request.user, given["preview_id"], rate_per_s=given.get("rate_per_s"), reason=given["reason"]
        )
        return show_done(done)


class Replay(Endpoint):
    """One replay."""

    @extend_schema(operation_id="get_replay", responses=JobShape)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Show a replay with its counts."""
        del request
        return answer(JobShape, _found(dlq.get_replay, job_id))


class ReplayItems(Endpoint):
    """The dead letters of a replay."""

    @extend_schema(
        operation_id="list_replay_items",
        parameters=[OpenApiParameter("outcome", str, enum=[o.value for o in ReplayOutcome]), CURSOR, LIMIT],
        responses=ItemPageShape,
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the dead letters of a replay in their order, each with its outcome."""
        cursor, limit = page_of(request)
        wanted = read_choice(request.query_params, "outcome", ["any", *(o.value for o in ReplayOutcome)], "any")
        outcome = None if wanted == "any" else ReplayOutcome(wanted)
        try:
            return answer(ItemPageShape, dlq.list_replay_items(job_id, outcome, cursor, limit))
        except dlq.UnknownReplay as unknown:
            raise NotThere(str(unknown)) from unknown


class PauseReplay(Endpoint):
    """Hold a replay."""

    needs = _POST

    @extend_schema(operation_id="pause_replay", request=HoldGiven, responses=JobShape)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Let a replay begin no more dead letters."""
        return _hold(acts.pause_replay, request, job_id)


class ResumeReplay(Endpoint):
    """Let a replay go on."""

    needs = _POST

    @extend_schema(operation_id="resume_replay", request=HoldGiven, responses=JobShape)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Let a paused replay go on, with one dead letter first."""
        return _hold(acts.resume_replay, request, job_id)


class CancelReplay(Endpoint):
    """End a replay."""

    needs = _POST

    @extend_schema(operation_id="cancel_replay", request=HoldGiven, responses=JobShape)
    def post(self, request: Request, job_id: UUID) -> Response:
        """End a replay; what was not begun stays parked. A reason is needed."""
        return _hold(acts.cancel_replay, request, job_id)


class ReplayRate(Endpoint):
    """How fast a replay goes."""

    needs = _POST

    @extend_schema(operation_id="set_replay_rate", request=RateGiven, responses=JobShape)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Change how many dead letters a second may begin."""
        given = take(RateGiven, request)
        _found(dlq.get_replay, job_id)
        job = acts.set_replay_rate(request.user, job_id, seen=given["version"], rate_per_s=given["rate_per_s"])
        return answer(JobShape, job)


class ReplayFailed(Endpoint):
    """What failed in a replay."""

    needs = _POST

    @extend_schema(operation_id="preview_failed", request=RetryGiven, responses={201: PreviewShape})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Freeze what failed in this replay and is still parked, as a new preview."""
        given = take(RetryGiven, request)
        _found(dlq.get_replay, job_id)
        found = acts.preview_failed(request.user, job_id, rate_per_s=given.get("rate_per_s"))
        return answer(PreviewShape, found, status=201)


# -- The second person -------------------------------------------------------------------------------------
class SecondRequests(Endpoint):
    """What second persons are asked for."""

    @extend_schema(operation_id="list_second_requests", responses=RequestListShape)
    def get(self, request: Request) -> Response:
        """List the newest requests."""
        del request
        return answer(RequestListShape, {"requests": list_requests()})


class SecondRequest(Endpoint):
    """One request."""

    @extend_schema(operation_id="get_second_request", responses=RequestShape)
    def get(self, request: Request, request_id: int) -> Response:
        """Show one request."""
        del request
        return answer(RequestShape, _request(request_id))


class SecondConfirm(Endpoint):
    """Yes, as another person."""

    @extend_schema(operation_id="confirm_second_request", request=NothingGiven, responses=RequestShape)
    def post(self, request: Request, request_id: int) -> Response:
        """Confirm as another person, signed in (no token): then it is done."""
        acts.confirm_second(request.user, request_id, SecondAct(_request(request_id).row.act))
        return answer(RequestShape, _request(request_id))


class SecondRefuse(Endpoint):
    """No, as another person."""

    @extend_schema(operation_id="refuse_second_request", request=ReasonGiven, responses=RequestShape)
    def post(self, request: Request, request_id: int) -> Response:
        """Refuse as another person, signed in (no token), with a reason."""
        act = SecondAct(_request(request_id).row.act)
        acts.refuse_second(request.user, request_id, act, reason=take(ReasonGiven, request)["reason"])
        return answer(RequestShape, _request(request_id))


class SecondWithdraw(Endpoint):
    """Never mind."""

    @extend_schema(operation_id="withdraw_second_request", request=NothingGiven, responses=RequestShape)
    def post(self, request: Request, request_id: int) -> Response:
        """Take back what one asked for oneself."""
        acts.withdraw_second(request.user, request_id, SecondAct(_request(request_id).row.act))
        return answer(RequestShape, _request(request_id))


# -- Parts -------------------------------------------------------------------------------------------------
def show_done(done: acts.Started | acts.Asked) -> Response:
    """What a start became."""
    if isinstance(done, acts.Asked):
        shown = {"replay": None, "second_request": _request(done.request.pk)}
        return answer(DoneShape, shown, status=202)
    return answer(DoneShape, {"replay": done.job, "second_request": None}, status=201)


def _hold(act: Callable[..., ReplayJob], request: Request, job_id: UUID) -> Response:
    given = take(HoldGiven, request)
    _found(dlq.get_replay, job_id)
    return answer(JobShape, act(request.user, job_id, seen=given["version"], reason=given["reason"]))


def read_selection(given: dict[str, Any]) -> Selection:
    """What a call selects: ids, or a filter.

    Raises:
        ValidationError: both, neither, or too many ids.
    """
    if ("ids" in given) == ("filter" in given):
        raise ValidationError({"ids": ["Send either ids or a filter."]})
    if "ids" in given:
        return Selection(ids=_bounded(given["ids"]))
    query = QueryDict(mutable=True)
    query.update(given["filter"])
    return Selection(filter=read_letter_filter(query))


def _bounded(ids: list[UUID]) -> list[UUID]:
    if not 0 < len(ids) <= settings.REPLAY_IDS_MAX:
        raise ValidationError({"ids": [f"From 1 to {settings.REPLAY_IDS_MAX} ids; use a filter for more."]})
    return ids


def _found(read: Callable[[UUID], Any], one: UUID) -> Any:
    try:
        return read(one)
    except dlq.UnknownReplay as unknown:
        raise NotThere(str(unknown)) from unknown


def _request(request_id: int) -> SecondView:
    view = get_request(request_id)
    if view is None:
        raise NotThere(f"There is no request {request_id}.")
    return view
