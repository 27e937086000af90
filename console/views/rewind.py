"""Rewind a consumer group: choose, preview each partition, apply with a reason, see what became of each."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.actions.base import ActDenied, BadInput, StaleAct
from console.actions.lag import rewind_group
from console.faults import Fault, read_or_fault
from console.filters import BadFilter, read_choice, read_moment, read_name
from console.permissions import Action
from console.rewind_token import sign_rewind
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page
from dlq import facade as dlq
from dlq.facade import AppliedCount
from relay.facade import (
    BadRewind,
    RewindUnavailable,
    get_lag_state,
    preview_rewind,
    read_group_members,
)
from relay.types import GroupMembers, RewindPlan, RewindStrategy, RewindWish

STRATEGIES = (
    (RewindStrategy.EARLIEST, "The first record that Kafka keeps", ""),
    (RewindStrategy.LATEST, "The end: pass over everything that waits", ""),
    (RewindStrategy.OFFSET, "An offset", "offset"),
    (RewindStrategy.TIME, "The first record from a time on", "at"),
    (RewindStrategy.SHIFT, "Some offsets back (negative) or on", "shift"),
)
DIGITS = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A plan as the page shows it: `token` is "" when nothing moves; `skipped` is None for a foreign group."""

    plan: RewindPlan
    token: str
    again: int
    passed_over: int
    skipped: AppliedCount | None


@require_safe
@permitted(Action.VIEW)
def rewind(request: HttpRequest) -> HttpResponse:
    """Show the choice, and once something is chosen what it would do. Reads only."""
    return _page(request, request.GET)


@require_POST
@permitted(Action.REWIND_GROUP)
def rewind_apply(request: HttpRequest) -> HttpResponse:
    """Apply a preview with a reason: 409 when something has changed since, 422 without a usable reason."""
    token = request.POST.get("token", "")
    query = QueryDict(request.POST.get("query", "")[: settings.LIST_FILTER_CHARS * 8])
    try:
        outcomes = rewind_group(request.user, token, reason=request.POST.get("reason", ""))
    except ActDenied as denied:
        raise PermissionDenied(str(denied)) from denied
    except StaleAct as stale:
        return _page(request, query, stale=str(stale), status=409)
    except BadInput as bad:
        if bad.field == "token":
            return refuse_filter(request, str(bad), page="Lag", back=reverse("lag"))
        return _page(request, query, bad_reason=str(bad), typed=request.POST.get("reason", ""), status=422)
    except RewindUnavailable as error:
        return _page(request, query, unsure=str(error), status=502)
    failed = [one for one in outcomes if not one.ok]
    context = {
        "group": query.get("group", ""),
        "topic": query.get("topic", ""),
        "outcomes": outcomes,
        "failed": failed,
        "again_url": f"{reverse('rewind')}?{query.urlencode()}",
    }
    return render_page(request, "lag/rewind_done.html", context, status=502 if failed else 200)


def _page(
    request: HttpRequest,
    query: QueryDict,
    *,
    stale: str = "",
    bad_reason: str = "",
    typed: str = "",
    unsure: str = "",
    status: int = 200,
) -> HttpResponse:
    try:
        group, topic = read_name(query, "group"), read_name(query, "topic")
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Lag", back=reverse("lag"))
    if not group:
        return refuse_filter(request, "No group is named. Choose one on Lag.", page="Lag", back=reverse("lag"))
    preview, error = _read_preview(query, group, topic)
    who = preview.plan.who if preview else read_or_fault("The group's members could not be read", _members, group)
    topics = _topics(group, topic)
    context = {
        "group": group,
        "topic": topic,
        "topics": topics,
        "first_topic": topics[0] if topics else "",
        "typed": {name: query.get(name, "") for name in ("partitions", "strategy", "offset", "at", "shift")},
        "strategies": STRATEGIES,
        "preview": preview,
        "error": error,
        "who": None if isinstance(who, Fault) else who,
        "fault": who if isinstance(who, Fault) else None,
        "is_ours": _is_ours(group),
        "switch": dlq.get_switch(group),
        "query": query.urlencode(),
        "stale": stale,
        "bad_reason": bad_reason,
        "reason": typed,
        "unsure": unsure,
        "page_url": f"{reverse('rewind')}?{query.urlencode()}",
        "group_url": f"{reverse('lag_history')}?{urlencode({'group': group, 'topic': topic})}",
    }
    return render_page(request, "lag/rewind.html", context, status=422 if error and status == 200 else status)


def _members(group: str) -> GroupMembers:
    return read_group_members(group)


def _topics(group: str, topic: str) -> list[str]:
    """The group's topics by the last pass, and the one that is asked for."""
    known = {p.topic for found in get_lag_state().groups if found.group == group for p in found.partitions}
    return sorted(known | ({topic} if topic else set()))


def _is_ours(group: str) -> bool:
    return any(spec.name == group for spec in dlq.list_groups())


# -- The preview -------------------------------------------------------------------------------------------
def _read_preview(query: QueryDict, group: str, topic: str) -> tuple[Preview | None, str]:
    """The preview that the address asks for, or what is wrong with it; (None, "") = nothing is asked yet."""
    if not query.get("strategy"):
        return None, ""
    try:
        wish = _read_wish(query, group, topic)
        plan = preview_rewind(wish)
    except (BadFilter, BadRewind) as bad:
        return None, str(bad)
    except RewindUnavailable as error:
        return None, f"The broker could not be asked: {error}. Nothing was changed; try again."
    return (
        Preview(
            plan=plan,
            token=sign_rewind(plan, query.urlencode()),
            again=sum(step.again for step in plan.steps),
            passed_over=sum(step.passed_over for step in plan.steps),
            skipped=_skipped(plan) if _is_ours(group) else None,
        ),
        "",
    )


def _skipped(plan: RewindPlan) -> AppliedCount:
    spans = {s.partition: (s.after, s.before) for s in plan.steps if s.again and s.after is not None}
    return dlq.count_applied(
        plan.wish.group, plan.wish.topic, {p: (first, before) for p, (first, before) in spans.items() if before}
    )


def _read_wish(query: QueryDict, group: str, topic: str) -> RewindWish:
    strategy = RewindStrategy(read_choice(query, "strategy", [s.value for s in RewindStrategy], "earliest"))
    if not topic:
        raise BadFilter("Choose a topic: a rewind is of one topic at a time.")
    return RewindWish(
        group=group,
        topic=topic,
        strategy=strategy,
        partitions=_read_partitions(query.get("partitions", "")),
        offset=read_number(query, "offset") if strategy is RewindStrategy.OFFSET else None,
        at=read_time(query) if strategy is RewindStrategy.TIME else None,
        shift=read_number(query, "shift") if strategy is RewindStrategy.SHIFT else None,
    )


def _read_partitions(text: str) -> tuple[int, ...]:
    """`0, 2-4` as (0, 2, 3, 4); empty = all."""
    found: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, _, last = (piece.strip() for piece in part.partition("-"))
        if not _is_small(first) or not _is_small(last or first):
            raise BadFilter("partitions is a list such as 0, 2, 4-7; leave it empty for all.")
        found.update(range(int(first), min(int(last or first), int(first) + settings.REWIND_PARTITIONS_MAX) + 1))
    return tuple(sorted(found))


def _is_small(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 6


def read_number(query: QueryDict, name: str) -> int:
    """A whole number as people type it.

    Raises:
        BadFilter: it is none.
    """
    text = query.get(name, "").strip().replace(",", "")
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS):
        raise BadFilter(f"Type a whole number as {name}, for example {'-100' if name == 'shift' else '1000'}.")
    return int(text)


def read_time(query: QueryDict) -> datetime:
    """The time in the field `at`.

    Raises:
        BadFilter: there is none, or it is not one.
    """
    at = read_moment(query, "at")
    if at is None:
        raise BadFilter("Type a time, for example 2026-03-10T10:42.")
    return at
