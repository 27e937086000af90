"""Failure groups, the entry of Dead letters: what fails for one cause, since when, how much is open, who has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from console.actions import triage as acts
from console.actions.base import BadInput
from console.asks import Ask, Field
from console.faults import Fault, read_or_fault
from console.filters import BadFilter, read_choice, read_text
from console.permissions import Action
from console.views.acts import run_act
from console.views.asking import answer_ask, asks
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page
from console.words import clock_words, count_words
from dlq.facade import (
    BadGroupQuery,
    FailureGroup,
    FailureGroupDetail,
    FailureGroupPage,
    GroupFilter,
    GroupShow,
    GroupSort,
    GroupState,
    find_group,
    get_dlq_status,
    get_failure_group,
    list_failure_groups,
)
from relay.types import Aspect, Verdict

SHOW_WORDS = {
    GroupShow.TODO: "open, not snoozed",
    GroupShow.SNOOZED: "open and snoozed",
    GroupShow.OPEN: "open",
    GroupShow.ALL: "every one, also with nothing open",
}
SORT_WORDS = {
    GroupSort.OPEN: "most open",
    GroupSort.LAST: "last seen",
    GroupSort.FIRST: "first seen",
    GroupSort.TOTAL: "most ever",
}
_ASPECTS = {
    GroupState.CAME_BACK: Aspect.BAD,
    GroupState.DONE: Aspect.OK,
    GroupState.FIXED: Aspect.OK,
    GroupState.SNOOZED: Aspect.IDLE,
    GroupState.NEW: Aspect.WARN,
    GroupState.GROWING: Aspect.WARN,
    GroupState.STEADY: Aspect.WARN,
    GroupState.QUIET: Aspect.IDLE,
}
# What an error's line ends with while its text may not be shown; the page of the group has it whole.
HIDDEN_TEXT = "its text is hidden until redaction rules can be applied to it"
SPAN_LABELS = ("1 h", "3 h", "24 h", "3 d", "7 d")
SNOOZES = {"3600": "1 hour", "14400": "4 hours", "86400": "1 day", "604800": "7 days"}


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group as a row of the table: its verdict, and where each number leads."""

    group: FailureGroup
    verdict: Verdict
    cause: str
    windows: list[tuple[str, int, str]]
    open_url: str


# -- Pages -------------------------------------------------------------------------------------------------
@require_safe
@permitted(Action.VIEW)
def failure_groups(request: HttpRequest) -> HttpResponse:
    """List failure groups with their windows of time."""
    try:
        wanted, cursor = _read_filter(request.GET), read_text(request.GET, "cursor")
        page = _checked(read_or_fault("The failure groups could not be read", _read_page, wanted, cursor))
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Failure groups", back=reverse("failure_groups"))
    status = read_or_fault("The counts of dead letters could not be read", get_dlq_status)
    places = getattr(status, "by_topic_group", ())
    context = {
        "page": page,
        "lines": [] if isinstance(page, Fault) else [_line(group) for group in page.groups],
        "status": status,
        "as_of": timezone.now() if isinstance(page, Fault) else page.as_of,
        "wanted": wanted,
        "shows": SHOW_WORDS.items(),
        "sorts": SORT_WORDS.items(),
        "sort_words": SORT_WORDS[wanted.sort],
        "is_filtered": bool(wanted.text or wanted.topic or wanted.group),
        "is_first": not cursor,
        "topics": sorted({topic for topic, _, _ in places}),
        "groups": sorted({group for _, group, _ in places}),
        "span_labels": SPAN_LABELS,
    }
    return render_page(request, "failure_groups/list.html", context)


@require_safe
@permitted(Action.VIEW)
def failure_group(request: HttpRequest, number: int) -> HttpResponse:
    """Show one group: its numbers, what people say of it, where its open ones are, what was merged into it."""
    found = read_or_fault("This failure group could not be read", get_failure_group, number)
    if isinstance(found, FailureGroupDetail):
        return render_page(request, "failure_groups/detail.html", _detail_context(found))
    if isinstance(found, Fault):
        return render_page(request, "failure_groups/detail.html", {"fault": found, "as_of": timezone.now()})
    head = find_group(number)
    if head is not None:
        return HttpResponseRedirect(reverse("failure_group", args=[head]))
    context = {"missing": number, "as_of": timezone.now()}
    return render_page(request, "failure_groups/detail.html", context, status=404)


def _detail_context(found: FailureGroupDetail) -> Mapping[str, object]:
    group = found.group
    places = [
        (topic, name, count, _letters(group.number, topic=topic, group=name)) for topic, name, count in found.places
    ]
    return {
        "detail": found,
        "group": group,
        "line": _line(group),
        "as_of": found.as_of,
        "places": places,
        "all_url": _letters(group.number, state="any"),
        "discarded_url": _letters(group.number, state="discarded"),
        "applied_url": _letters(group.number, state="applied"),
    }


def _line(group: FailureGroup) -> GroupLine:
    windows = [(w.label, w.parked, _letters(group.number, state="any", since=_stamp(w.since))) for w in group.windows]
    return GroupLine(
        group=group,
        verdict=_verdict(group),
        cause=group.error_message.removesuffix(f"; {HIDDEN_TEXT}"),
        windows=windows,
        open_url=_letters(group.number),
    )


def _verdict(group: FailureGroup) -> Verdict:
    word, reason = group.state.value, ""
    if group.state in (GroupState.FIXED, GroupState.CAME_BACK):
        reason = f"in {group.fixed_in}" if group.state is GroupState.FIXED else f"after {group.fixed_in}"
    if group.state is GroupState.SNOOZED and group.snoozed_until is not None:
        reason = f"to {clock_words(timezone.localtime(group.snoozed_until), timezone.localtime())}"
    return Verdict(aspect=_ASPECTS[group.state], word=word, reason=reason)


def _letters(number: int, **more: str) -> str:
    return f"{reverse('dead_letters')}?{urlencode({'failure': number, **more})}"


def _stamp(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _read_page(wanted: GroupFilter, cursor: str) -> FailureGroupPage | BadGroupQuery:
    """One page; a cursor that is not ours is a value here, so that it is not taken for a broken source."""
    try:
        return list_failure_groups(wanted, cursor=cursor or None, limit=settings.LIST_PAGE_ROWS)
    except BadGroupQuery as refused:
        return refused


def _checked(found: FailureGroupPage | BadGroupQuery | Fault) -> FailureGroupPage | Fault:
    if isinstance(found, BadGroupQuery):
        raise BadFilter(f"{str(found).capitalize()}.") from found
    return found


def _read_filter(query: QueryDict) -> GroupFilter:
    return GroupFilter(
        text=read_text(query, "q"),
        topic=read_text(query, "topic"),
        group=read_text(query, "group"),
        show=GroupShow(read_choice(query, "show", [s.value for s in GroupShow], GroupShow.TODO.value)),
        sort=GroupSort(read_choice(query, "sort", [s.value for s in GroupSort], GroupSort.OPEN.value)),
    )


# -- Acts --------------------------------------------------------------------------------------------------
@require_POST
@permitted(Action.VIEW)
def describe(request: HttpRequest, number: int) -> HttpResponse:
    """Keep the name, the owner and the note of a group."""
    given = request.POST
    return run_act(
        request,
        lambda: acts.describe_group(
            request.user,
            number,
            name=given.get("name", ""),
            owner=given.get("owner", ""),
            note=given.get("note", ""),
            seen=_seen(given),
        ),
        done=f"What is said of G-{number} is kept.",
        back=reverse("failure_group", args=[number]),
    )


@asks
@permitted(Action.VIEW)
def snooze(request: HttpRequest, number: int) -> HttpResponse:
    """Leave a group out of what needs a look for a while."""

    def ask(query: QueryDict) -> Ask:
        return _ask(
            number,
            query,
            title="Snooze {}",
            words=["It is left out of the list until then. Its records stay parked, and new ones are counted."],
            button="Snooze it",
            fields=[Field(name="for", label="For", value=query.get("for", "14400"), choices=list(SNOOZES.items()))],
        )

    def act(given: QueryDict) -> None:
        seconds = given.get("for", "")
        if seconds not in SNOOZES:
            raise BadInput("for", "Choose for how long.")
        acts.snooze_group(request.user, number, for_s=float(seconds), seen=_seen(given))

    return _answer(request, number, ask, act, done=f"G-{number} is snoozed. It is listed under “open and snoozed”.")


@asks
@permitted(Action.VIEW)
def fixed(request: HttpRequest, number: int) -> HttpResponse:
    """Say in which version the cause of a group is mended."""

    def ask(query: QueryDict) -> Ask:
        return _ask(
            number,
            query,
            title="{} is fixed",
            words=[
                "From this moment on, a further failure of this group says that it came back.",
                "Nothing is replayed by this: what is open stays parked until you replay or discard it.",
            ],
            button="It is fixed",
            fields=[
                Field(
                    name="fixed_in",
                    label="Fixed in version",
                    value=query.get("fixed_in", ""),
                    hint="For example 2.14.1, or the change that mended it.",
                    most_chars=80,
                )
            ],
        )

    def act(given: QueryDict) -> None:
        acts.mark_group_fixed(request.user, number, fixed_in=given.get("fixed_in", ""), seen=_seen(given))

    return _answer(
        request, number, ask, act, done=f"G-{number} is called fixed. Replay one of its dead letters to see."
    )


@asks
@permitted(Action.VIEW)
def reopen(request: HttpRequest, number: int) -> HttpResponse:
    """Take back that a group is snoozed or fixed."""

    def ask(query: QueryDict) -> Ask:
        return _ask(
            number,
            query,
            title="Reopen {}",
            words=["It is neither snoozed nor called fixed any more. Its note and owner stay."],
            button="Reopen it",
        )

    return _answer(
        request,
        number,
        ask,
        lambda given: acts.reopen_group(request.user, number, seen=_seen(given)),
        done=f"G-{number} is open again.",
    )


@asks
@permitted(Action.VIEW)
def merge(request: HttpRequest, number: int) -> HttpResponse:
    """Make a group part of another one."""

    def ask(query: QueryDict) -> Ask:
        return _ask(
            number,
            query,
            title="Merge {} into another group",
            words=[
                "Both count as one from then on, also what fails later. It can be split off again.",
                "Its own name and note are kept for then; the other group's are shown.",
            ],
            button="Merge it",
            fields=[
                Field(name="into", label="Into the group", value=query.get("into", ""), hint="G-118", most_chars=22)
            ],
        )

    def act(given: QueryDict) -> int:
        into = _number(given.get("into", ""))
        acts.merge_group(request.user, number, into=into, seen=_seen(given))
        return into

    return _answer(
        request,
        number,
        ask,
        act,
        done="Merged: the numbers below are of both.",
        lead=lambda into: reverse("failure_group", args=[into]),
    )


@asks
@permitted(Action.VIEW)
def split(request: HttpRequest, number: int) -> HttpResponse:
    """Make a fingerprint of a group a group of its own again."""

    def ask(query: QueryDict) -> Ask:
        part = _number(query.get("part", ""))
        return _ask(
            number,
            query,
            title=f"Split G-{part} off {{}}",
            words=["It is a group of its own again, with the name, the owner and the note that it had before."],
            button="Split it off",
            hidden={"part": str(part)},
        )

    return _answer(
        request,
        number,
        ask,
        lambda given: acts.split_group(request.user, _number(given.get("part", "")), of=number, seen=_seen(given)),
        done="Split off: each is a group of its own again.",
    )


def _ask(number: int, query: QueryDict, *, title: str, hidden: Mapping[str, str] | None = None, **ask: Any) -> Ask:
    group = acts.require_group(number)
    return Ask(
        title=title.format(group.label),
        action=Action.TRIAGE_GROUPS,
        hidden={"seen": query.get("seen", str(group.version)), **(hidden or {})},
        facts=[
            ("Group", f"{group.label}, {group.title}"),
            ("Open", count_words(group.open, "dead letter", "dead letters")),
            ("Handler", group.handler or "none"),
        ],
        **ask,
    )


def _answer(request: HttpRequest, number: int, ask: Any, act: Any, *, done: str, lead: Any = None) -> HttpResponse:
    return answer_ask(
        request,
        Action.TRIAGE_GROUPS,
        ask,
        act,
        done=done,
        area="Failure groups",
        home="failure_groups",
        lead=lead or (lambda _: reverse("failure_group", args=[number])),
    )


def _seen(given: QueryDict) -> int:
    text = given.get("seen", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BadInput("seen", "The form does not say what it was made from. Go back and open it again.")
    return int(text)


def _number(text: str) -> int:
    digits = text.strip().upper().removeprefix("G-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise BadInput("into", "Type the number of a group as the list has it, for example G-118.")
    return int(digits)
