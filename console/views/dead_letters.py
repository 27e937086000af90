"""Dead letters: the list with its filters, and one of them with what happened to it. Contents stay hidden."""

from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.faults import Fault, read_or_fault
from console.filters import BadFilter, read_choice, read_text
from console.letter_filter import ANY_STATE, NAMES, STATES, read_letter_filter
from console.permissions import Action
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page
from dlq.facade import BadCursor, get_dead_letter, get_dlq_status, get_failure_group, list_dead_letters, list_discards
from dlq.types import DeadLetterFilter, DeadLetterPage, DeadLetterState, DlqStatus, LetterSort

SPANS = ("1h", "3h", "24h", "3d", "7d")
SORT_WORDS = {
    LetterSort.NEWEST: "newest first",
    LetterSort.OLDEST: "oldest first",
    LetterSort.TRIES: "most tries first",
    LetterSort.PLACE: "by topic, partition and offset",
}
# What the links of a page say: before, at the beginning, after, at the end.
_MORE = ("Before", "This is the beginning", "More", "No more")
PAGE_WORDS = {
    LetterSort.NEWEST: ("Newer", "These are the newest", "Older", "No older ones"),
    LetterSort.OLDEST: ("Older", "These are the oldest", "Newer", "No newer ones"),
    LetterSort.TRIES: _MORE,
    LetterSort.PLACE: _MORE,
}


@require_safe
@permitted(Action.VIEW)
def dead_letters(request: HttpRequest) -> HttpResponse:
    """List dead letters, narrowed and sorted by the address."""
    try:
        wanted, cursor = read_letter_filter(request.GET), read_text(request.GET, "cursor")
        sort = LetterSort(read_choice(request.GET, "sort", [s.value for s in LetterSort], LetterSort.NEWEST.value))
        page = _checked(read_or_fault("The dead letters could not be read", _read_page, wanted, cursor, sort))
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Dead letters", back=reverse("dead_letters"))
    status = read_or_fault("The counts of dead letters could not be read", get_dlq_status)
    chips = _chips(request.GET)
    before, first, after, last = PAGE_WORDS[sort]
    context = {
        "page": page,
        "status": status,
        "as_of": timezone.now() if isinstance(page, Fault) else page.as_of,
        "wanted": wanted,
        "state": wanted.state or ANY_STATE,
        "states": STATES,
        "spans": SPANS,
        "since": request.GET.get("since", "").strip(),
        "until": request.GET.get("until", "").strip(),
        "sort": sort.value,
        "sorts": SORT_WORDS.items(),
        "sort_words": SORT_WORDS[sort],
        "words_before": before,
        "words_first": first,
        "words_after": after,
        "words_last": last,
        "chips": chips,
        "is_filtered": bool(chips),
        "exact_count": _exact_count(wanted, {name for name, _, _ in chips}, status),
        "filter_query": _filter_query(request.GET),
        "replay_url": reverse("replay_preview"),
        "discard_url": reverse("dead_letters_discard"),
        "counts_shown": settings.DLQ_COUNT_ROWS,
        "groups": _names(status, 1),
        "topics": _names(status, 0),
    }
    return render_page(request, "dead_letters/list.html", context)


@require_safe
@permitted(Action.VIEW)
def dead_letter(request: HttpRequest, dead_letter_id: UUID) -> HttpResponse:
    """Show one dead letter: what happened, where, why, and how large what it holds is."""
    found = read_or_fault("This dead letter could not be read", get_dead_letter, dead_letter_id)
    as_of = timezone.now()
    if isinstance(found, Fault):
        return render_page(request, "dead_letters/detail.html", {"fault": found, "as_of": as_of})
    if found is None:
        context = {"missing_id": dead_letter_id, "as_of": as_of}
        return render_page(request, "dead_letters/detail.html", context, status=404)
    discards = read_or_fault("Its discards could not be read", list_discards, dead_letter_id)
    context = {
        "letter": found,
        "row": found.row,
        "as_of": as_of,
        "restorable": None if isinstance(discards, Fault) else next((d for d in discards if d.is_restorable), None),
        "replay_url": reverse("replay_preview"),
        "discard_url": reverse("dead_letters_discard"),
    }
    return render_page(request, "dead_letters/detail.html", context)


def _read_page(wanted: DeadLetterFilter, cursor: str, sort: LetterSort) -> DeadLetterPage | BadCursor:
    """One page; a cursor that is not ours is a value here, so that it is not taken for a broken source."""
    try:
        return list_dead_letters(wanted, cursor=cursor or None, limit=settings.LIST_PAGE_ROWS, sort=sort)
    except BadCursor as refused:
        return refused


def _checked(found: DeadLetterPage | BadCursor | Fault) -> DeadLetterPage | Fault:
    if isinstance(found, BadCursor):
        raise BadFilter(f"{str(found).capitalize()}.") from found
    return found


def _chips(query: QueryDict) -> list[tuple[str, str, str]]:
    """The filters that are set, as (parameter, text, address without it)."""
    return [(name, text, _without(query, name)) for name in NAMES if (text := query.get(name, "").strip())]


def _exact_count(wanted: DeadLetterFilter, chips: set[str], status: DlqStatus | Fault) -> int | None:
    """How many match, where a kept count says it: no list is ever counted by reading it."""
    if wanted.state != DeadLetterState.PARKED.value or isinstance(status, Fault):
        return None
    if chips == {"failure"} and wanted.failure_group is not None:
        found = get_failure_group(wanted.failure_group)
        return found.group.open if found else None
    if chips - {"topic", "group"}:
        return None
    return sum(
        n for topic, group, n in status.by_topic_group if wanted.topic in ("", topic) and wanted.group in ("", group)
    )


def _filter_query(query: QueryDict) -> str:
    """The filters of the address without its page and order: what "all that match" means."""
    kept = QueryDict(mutable=True)
    kept.update({name: text for name in ("state", *NAMES) if (text := query.get(name, "").strip())})
    return kept.urlencode()


def _without(query: QueryDict, name: str) -> str:
    rest = query.copy()
    for parameter in (name, "cursor"):
        rest.pop(parameter, None)
    return f"{reverse('dead_letters')}?{rest.urlencode()}"


def _names(status: object, place: int) -> list[str]:
    """The topics (0) or groups (1) that have dead letters, for the filter's suggestions."""
    return sorted({found[place] for found in getattr(status, "by_topic_group", ())})
