"""Replays: preview a frozen selection, start it, watch it, hold it. A second person answers here too."""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.actions import dlq as acts
from console.actions.base import ActDenied, ActError, BadInput, StaleAct
from console.asks import Ask, Field
from console.faults import Fault, read_or_fault
from console.filters import BadFilter, read_choice, read_text
from console.letter_filter import ANY_STATE, read_letter_filter
from console.models import SecondAct
from console.permissions import Action
from console.replay_words import (
    consequence_words,
    judge_job,
    judge_verdict,
    pace_words,
    scope_words,
    stages_of,
)
from console.second_person import SecondView, get_request, list_requests, list_waiting
from console.views.acts import refuse_act
from console.views.asking import answer_ask, asks, read_seen
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page, safe_next, see_other
from console.words import count_words, number_words
from dlq import facade as dlq
from dlq.types import ReplayJob, ReplayOutcome, ReplayPreview, ReplayVerdict, Selection
from relay.types import Aspect, Verdict

MATCHING = "matching"
OUTCOMES = {
    ReplayOutcome.QUEUED: (Aspect.IDLE, "queued"),
    ReplayOutcome.RUNNING: (Aspect.INFO, "running"),
    ReplayOutcome.APPLIED: (Aspect.OK, "applied"),
    ReplayOutcome.DEDUPLICATED: (Aspect.OK, "deduplicated"),
    ReplayOutcome.SENT: (Aspect.OK, "sent"),
    ReplayOutcome.FAILED: (Aspect.BAD, "failed again"),
    ReplayOutcome.SKIPPED: (Aspect.IDLE, "skipped"),
}


# -- Preview and start -------------------------------------------------------------------------------------
@require_POST
@permitted(Action.REPLAY_DEAD_LETTERS)
def preview(request: HttpRequest) -> HttpResponse:
    """Freeze what was selected (`ids`, or `scope=matching` with the list's `query`) and show what it would do.

    With `go=1` a single one that can be replayed is started at once: one is a click.
    """
    back = safe_next(request, reverse("dead_letters"))
    try:
        selection = read_selection(request.POST)
        rate = None if len(selection.ids) == 1 else settings.REPLAY_RATE_OFFERED_PER_S
        found = acts.preview_replay(request.user, selection, rate_per_s=rate)
        if request.POST.get("go") == "1" and _is_simple(found):
            return _start(request, found, None, "")
    except BadFilter as bad:
        return refuse_act(request, 422, "This selection cannot be read", bad, back)
    except ActError as error:
        return _refuse(request, error, back)
    return see_other(reverse("replay_preview_page", args=[found.id]))


@require_safe
@permitted(Action.VIEW)
def preview_page(request: HttpRequest, preview_id: UUID) -> HttpResponse:
    """Show a frozen selection: scope, consequence, verdicts with reasons, a sample, what came since."""
    return _preview_page(request, _get_preview(preview_id))


@require_POST
@permitted(Action.REPLAY_DEAD_LETTERS)
def start(request: HttpRequest, preview_id: UUID) -> HttpResponse:
    """Start the replay of a preview, or ask the second person that it needs."""
    found = _get_preview(preview_id)
    try:
        return _start(request, found, _read_rate(request.POST), request.POST.get("reason", ""))
    except BadInput as bad:
        return _preview_page(request, found, wrong=bad, status=422)
    except StaleAct as stale:
        return _preview_page(request, _get_preview(preview_id), stale=str(stale), status=409)


def _start(request: HttpRequest, found: ReplayPreview, rate: float | None, reason: str) -> HttpResponse:
    done = acts.start_replay(request.user, found.id, rate_per_s=rate, reason=reason)
    return _follow(request, done)


def _follow(request: HttpRequest, done: acts.Started | acts.Asked) -> HttpResponse:
    if isinstance(done, acts.Asked):
        messages.info(request, "Nothing is replayed yet: another person has to confirm it.")
        return see_other(reverse("second_request", args=[done.request.pk]))
    return see_other(reverse("replay", args=[done.job.id]))


def _preview_page(
    request: HttpRequest,
    found: ReplayPreview,
    *,
    wrong: BadInput | None = None,
    stale: str = "",
    status: int = 200,
) -> HttpResponse:
    rate = found.rate_per_s
    size = found.runnable + found.followers
    context = {
        "preview": found,
        "scope": scope_words(found, rate),
        "consequences": consequence_words(found),
        "verdicts": _verdicts(found),
        "samples": _samples(found, SecondAct.REPLAY),
        "size": size,
        "size_words": count_words(size, "dead letter"),
        "rate": request.POST.get("rate_per_s", "" if rate is None else f"{rate:g}"),
        "rate_most": settings.REPLAY_RATE_MAX_PER_S,
        "reason": request.POST.get("reason", ""),
        "needs_reason": size > settings.DLQ_REASON_ABOVE,
        "second_above": settings.DLQ_SECOND_PERSON_ABOVE,
        "second_minutes": settings.SECOND_PERSON_WITHIN_S // 60,
        "can_start": bool(found.runnable) and not found.expired and found.job_id is None,
        "again": _selection_fields(found.selection),
        "wrong": wrong,
        "stale": stale,
    }
    return render_page(request, "replays/preview.html", context, status=status)


def _is_simple(found: ReplayPreview) -> bool:
    return found.total == 1 and found.runnable == 1 and not found.followers


def read_selection(given: QueryDict) -> Selection:
    """What a form selects: `ids`, or `scope=matching` with the list's `query`.

    Raises:
        BadInput, BadFilter.
    """
    if given.get("scope") == MATCHING:
        return Selection(filter=read_letter_filter(QueryDict(given.get("query", "")[: settings.LIST_FILTER_CHARS * 8])))
    ids = given.getlist("ids")
    if not ids:
        raise BadInput("selection", "Nothing is selected. Go back and mark at least one dead letter.")
    if len(ids) > settings.REPLAY_IDS_MAX:
        raise BadInput("selection", f"At most {settings.REPLAY_IDS_MAX:,} can be named; select all matching instead.")
    try:
        return Selection(ids=[UUID(text) for text in ids])
    except ValueError as error:
        raise BadInput(
            "selection", "The form names something that is no dead letter. Go back and select again."
        ) from error


def _selection_fields(selection: Selection) -> list[tuple[str, str]]:
    """The hidden fields that ask for the same selection again."""
    if selection.filter is None:
        return [("ids", str(one)) for one in selection.ids]
    wanted = selection.filter
    query = QueryDict(mutable=True)
    named = {
        "group": wanted.group,
        "topic": wanted.topic,
        "type": wanted.event_type,
        "error": wanted.error_class,
        "fingerprint": wanted.fingerprint,
        "key": wanted.key_label,
        "state": wanted.state or ANY_STATE,
        "since": wanted.since.isoformat() if wanted.since else "",
        "until": wanted.until.isoformat() if wanted.until else "",
        "failure": "" if wanted.failure_group is None else str(wanted.failure_group),
        "replays": str(wanted.replays or ""),
        "needs_human": "1" if wanted.needs_human else "",
    }
    query.update({name: text for name, text in named.items() if text})
    return [("scope", MATCHING), ("query", query.urlencode())]


def _read_rate(given: QueryDict) -> float | None:
    text = given.get("rate_per_s", "").strip().replace(",", "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise BadInput("rate_per_s", "Type a number a second, such as 50; empty means as fast as they can.") from error


def _get_preview(preview_id: UUID) -> ReplayPreview:
    try:
        return dlq.get_preview(preview_id)
    except dlq.UnknownReplay as unknown:
        raise Http404(str(unknown)) from unknown


# -- Jobs --------------------------------------------------------------------------------------------------
@require_safe
@permitted(Action.VIEW)
def replays(request: HttpRequest) -> HttpResponse:
    """List replays, newest first, with what waits for a second person."""
    try:
        cursor = read_text(request.GET, "cursor")
        page = _list(cursor)
    except (BadFilter, dlq.BadCursor) as refused:
        return refuse_filter(request, f"{str(refused).rstrip('.')}.", page="Replay jobs", back=reverse("replays"))
    context = {
        "page": page,
        "rows": [] if isinstance(page, Fault) else [(job, judge_job(job)) for job in page.jobs],
        "waiting": list_waiting(),
        "requests": list_requests(),
        "is_first": not cursor,
    }
    return render_page(request, "replays/list.html", context)


def _list(cursor: str) -> Any:
    found = read_or_fault("The replays could not be read", _read_list, cursor)
    if isinstance(found, dlq.BadCursor):
        raise found
    return found


def _read_list(cursor: str) -> Any:
    try:
        return dlq.list_replays(cursor or None, settings.LIST_PAGE_ROWS)
    except dlq.BadCursor as bad:
        return bad


@require_safe
@permitted(Action.VIEW)
def replay(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Show a replay as the database has it: progress, outcomes, its items."""
    job = _get_job(job_id)
    try:
        wanted = read_choice(request.GET, "outcome", ["any", *(o.value for o in ReplayOutcome)], "any")
        outcome = None if wanted == "any" else ReplayOutcome(wanted)
        items = dlq.list_replay_items(
            job_id, outcome, read_text(request.GET, "cursor") or None, settings.LIST_PAGE_ROWS
        )
    except (BadFilter, dlq.BadCursor) as refused:
        back = reverse("replay", args=[job_id])
        return refuse_filter(request, f"{str(refused).rstrip('.')}.", page="Replay", back=back)
    tried = job.applied + job.deduplicated + job.sent + job.failed
    context = {
        "job": job,
        "verdict": judge_job(job),
        "stages": stages_of(job),
        "outcomes": [(aspect, word, getattr(job, o.value), o.value) for o, (aspect, word) in _shown(job)],
        "items": [(item, *OUTCOMES[item.outcome]) for item in items.items],
        "page": items,
        "outcome": wanted,
        "tried": tried,
        "failed_share": 100 * job.failed / tried if tried else 0.0,
        "stop_share": 100 * settings.REPLAY_STOP_RATIO,
        "failed_other": job.failed - job.failed_same,
    }
    return render_page(request, "replays/job.html", context)


def _shown(job: ReplayJob) -> list[tuple[ReplayOutcome, tuple[Aspect, str]]]:
    """A replay through handlers sends nothing, one to a topic applies nothing."""
    hidden = (
        {ReplayOutcome.SENT} if job.mode.value == "handler" else {ReplayOutcome.APPLIED, ReplayOutcome.DEDUPLICATED}
    )
    return [(outcome, shown) for outcome, shown in OUTCOMES.items() if outcome not in hidden]


@require_POST
@permitted(Action.REPLAY_DEAD_LETTERS)
def pause(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Pause a replay at once."""
    return _hold(request, job_id, acts.pause_replay, "The replay is paused: nothing more begins.")


@require_POST
@permitted(Action.REPLAY_DEAD_LETTERS)
def resume(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Let a paused replay go on."""
    return _hold(request, job_id, acts.resume_replay, "The replay goes on, with one first.")


def _hold(request: HttpRequest, job_id: UUID, act: Any, done: str) -> HttpResponse:
    back = reverse("replay", args=[job_id])
    try:
        act(request.user, job_id, seen=read_seen(request.POST), reason=request.POST.get("reason", ""))
    except ActError as error:
        return _refuse(request, error, back)
    messages.success(request, done)
    return see_other(back)


@asks
@permitted(Action.VIEW)
def cancel(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Cancel a replay with a reason."""

    def ask(_: QueryDict) -> Ask:
        job = _open_job(job_id)
        return Ask(
            title=f"Cancel this replay of {job.group}",
            words=[
                (
                    f"{count_words(job.queued, 'dead letter')} not begun yet: they stay parked, nothing is lost. "
                    "Those that run end as they end."
                ),
                "A cancelled replay cannot go on. To hold it for a while, pause it.",
            ],
            action=Action.REPLAY_DEAD_LETTERS,
            button="Cancel the replay",
            kind="danger",
            hidden={"seen": str(job.version)},
            facts=[
                ("Has an outcome", f"{number_words(job.settled)} of {number_words(job.total)}"),
                ("Runs now", number_words(job.running)),
            ],
            needs_reason=True,
        )

    return answer_ask(
        request,
        Action.REPLAY_DEAD_LETTERS,
        ask,
        lambda given: acts.cancel_replay(request.user, job_id, seen=read_seen(given), reason=given.get("reason", "")),
        done="The replay is cancelled. What was not begun stays parked.",
        area="Replay jobs",
        home="replays",
        lead=lambda _: reverse("replay", args=[job_id]),
    )


@asks
@permitted(Action.VIEW)
def rate(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Change how many a second may begin."""

    def ask(given: QueryDict) -> Ask:
        job = _open_job(job_id)
        now = "" if job.rate_per_s is None else f"{job.rate_per_s:g}"
        return Ask(
            title=f"Change the rate of this replay of {job.group}",
            words=[f"{count_words(job.queued, 'dead letter')} not begun yet. The new rate holds within a second."],
            action=Action.REPLAY_DEAD_LETTERS,
            button="Change the rate",
            hidden={"seen": str(job.version)},
            facts=[("Now", pace_words(job.queued + job.running, job.rate_per_s))],
            fields=[
                Field(
                    name="rate_per_s",
                    label="Dead letters a second, at most",
                    value=given.get("rate_per_s", now),
                    hint=f"Up to {number_words(settings.REPLAY_RATE_MAX_PER_S)}; empty: as fast as the consumers can.",
                    is_number=True,
                    is_required=False,
                    most_chars=12,
                )
            ],
        )

    return answer_ask(
        request,
        Action.REPLAY_DEAD_LETTERS,
        ask,
        lambda given: acts.set_replay_rate(request.user, job_id, seen=read_seen(given), rate_per_s=_read_rate(given)),
        done="The rate is changed.",
        area="Replay jobs",
        home="replays",
        lead=lambda _: reverse("replay", args=[job_id]),
    )


@require_POST
@permitted(Action.REPLAY_DEAD_LETTERS)
def failed(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Preview a replay of only what failed."""
    try:
        found = acts.preview_failed(request.user, job_id, rate_per_s=settings.REPLAY_RATE_OFFERED_PER_S)
    except ActError as error:
        return _refuse(request, error, reverse("replay", args=[job_id]))
    return see_other(reverse("replay_preview_page", args=[found.id]))


def _get_job(job_id: UUID) -> ReplayJob:
    try:
        return dlq.get_replay(job_id)
    except dlq.UnknownReplay as unknown:
        raise Http404(str(unknown)) from unknown


def _open_job(job_id: UUID) -> ReplayJob:
    try:
        job = dlq.get_replay(job_id)
    except dlq.UnknownReplay as unknown:
        raise StaleAct(str(unknown)) from unknown
    if job.has_ended:
        raise StaleAct(f"This replay has ended: it is {judge_job(job).word}.")
    return job


# -- The second person -------------------------------------------------------------------------------------
@require_safe
@permitted(Action.VIEW)
def second_request(request: HttpRequest, request_id: int) -> HttpResponse:
    """Show what a second person is asked: the scope, the sample, why, by whom, until when."""
    view = _get_request(request_id)
    found = read_or_fault("The selection could not be read", _preview_of, view)
    context = {
        "view": view,
        "row": view.row,
        "as_of": view.now,
        "is_own": view.row.asked_by_id == request.user.pk,
        "action": acts.NEEDED[SecondAct(view.row.act)].value,
        "preview": None if isinstance(found, Fault) else found,
        "verdicts": [] if found is None or isinstance(found, Fault) else _verdicts(found),
        "samples": [] if found is None or isinstance(found, Fault) else _samples(found, view.row.act),
    }
    return render_page(request, "replays/second.html", context)


@require_POST
@permitted(Action.VIEW)
def second_confirm(request: HttpRequest, request_id: int) -> HttpResponse:
    """Confirm as another person: then it is done."""
    back = reverse("second_request", args=[request_id])
    try:
        row = acts.confirm_second(request.user, request_id, _act_of(request_id))
    except ActError as error:
        return _refuse(request, error, back)
    messages.success(request, "Confirmed: what was asked is done.")
    return see_other(reverse("replay", args=[row.outcome]) if row.act == SecondAct.REPLAY else back)


@require_POST
@permitted(Action.VIEW)
def second_refuse(request: HttpRequest, request_id: int) -> HttpResponse:
    """Refuse as another person, with a reason."""
    back = reverse("second_request", args=[request_id])
    try:
        acts.refuse_second(request.user, request_id, _act_of(request_id), reason=request.POST.get("reason", ""))
    except ActError as error:
        return _refuse(request, error, back)
    messages.success(request, "Refused: nothing was done.")
    return see_other(back)


@require_POST
@permitted(Action.VIEW)
def second_withdraw(request: HttpRequest, request_id: int) -> HttpResponse:
    """Take back one's own request."""
    back = reverse("second_request", args=[request_id])
    try:
        acts.withdraw_second(request.user, request_id, _act_of(request_id))
    except ActError as error:
        return _refuse(request, error, back)
    messages.success(request, "Withdrawn: nothing was done.")
    return see_other(back)


def _get_request(request_id: int) -> SecondView:
    view = get_request(request_id)
    if view is None:
        raise Http404("There is no such request.")
    return view


def _act_of(request_id: int) -> SecondAct:
    return SecondAct(_get_request(request_id).row.act)


def _preview_of(view: SecondView) -> ReplayPreview | None:
    try:
        return dlq.get_preview(UUID(view.row.preview))
    except dlq.UnknownReplay:
        return None


def _verdicts(found: ReplayPreview) -> list[Any]:
    return [(judge_verdict(verdict), count) for verdict, count in found.counts.items()]


def _samples(found: ReplayPreview, act: str) -> list[Any]:
    judge = judge_verdict if act == SecondAct.REPLAY else _judge_discard
    return [(row, judge(verdict)) for row, verdict in found.samples]


def _judge_discard(verdict: ReplayVerdict) -> Verdict:
    if verdict in (ReplayVerdict.IN_REPLAY, ReplayVerdict.NOT_PARKED):
        return judge_verdict(verdict)
    return Verdict(aspect=Aspect.IDLE, word="ends without an effect")


# -- Answers -----------------------------------------------------------------------------------------------
def _refuse(request: HttpRequest, error: ActError, back: str) -> HttpResponse:
    if isinstance(error, ActDenied):
        raise PermissionDenied(str(error)) from error
    if isinstance(error, StaleAct):
        return refuse_act(request, 409, "It has changed since you looked", error, back)
    return refuse_act(request, 422, "This cannot be done as it stands", error, back)
