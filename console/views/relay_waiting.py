"""Every waiting row of the outbox with why it waits, narrowed by the address. A key is named by one of its rows."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.faults import Fault, read_or_fault
from console.filters import BadFilter, read_choice, read_text
from console.permissions import Action
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page
from relay.facade import BadWaitingQuery, find_row, list_topics, list_waiting
from relay.types import RowRef, WaitingFilter, WaitingPage, WaitingState

ANY = ""
POSITION_DIGITS = 19
STATE_WORDS = {
    WaitingState.FAILED: "failed: needs a person",
    WaitingState.DEFERRED: "tried again later",
    WaitingState.BEHIND: "behind an earlier row of its key",
    WaitingState.PAUSED: "paused by a person",
    WaitingState.HELD: "its topic is held",
    WaitingState.LATE: "committed late",
    WaitingState.UNREAD: "not read yet",
}


@require_safe
@permitted(Action.VIEW)
def relay_waiting(request: HttpRequest) -> HttpResponse:
    """List waiting rows, oldest first."""
    try:
        key_row = _key_row(request.GET)
        wanted, cursor = _read_filter(request.GET, key_row), read_text(request.GET, "cursor")
        page = _checked(read_or_fault("The waiting rows could not be read", _read_page, wanted, cursor))
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Waiting rows", back=reverse("relay_waiting"))
    context = {
        "page": page,
        "as_of": timezone.now(),
        "wanted": wanted,
        "state": next(iter(wanted.states), ANY),
        "state_words": STATE_WORDS.items(),
        "key_row": key_row,
        "is_filtered": bool(wanted.topic or wanted.states or key_row),
        "is_first": not cursor,
        "topics": sorted(spec.name for spec in list_topics()),
    }
    return render_page(request, "relay/waiting_page.html", context)


def _read_page(wanted: WaitingFilter, cursor: str) -> WaitingPage | BadWaitingQuery:
    """One page; a cursor that is not ours is a value here, so that it is not taken for a broken source."""
    try:
        return list_waiting(wanted, cursor=cursor or None, limit=settings.LIST_PAGE_ROWS)
    except BadWaitingQuery as refused:
        return refused


def _checked(found: WaitingPage | BadWaitingQuery | Fault) -> WaitingPage | Fault:
    if isinstance(found, BadWaitingQuery):
        raise BadFilter(str(found)) from found
    return found


def _read_filter(query: QueryDict, key_row: RowRef | None) -> WaitingFilter:
    state = read_choice(query, "state", [*(state.value for state in WaitingState), ANY], ANY)
    return WaitingFilter(
        topic=key_row.topic if key_row else read_text(query, "topic") or None,
        key=key_row.key if key_row else None,
        states=frozenset({WaitingState(state)}) if state else frozenset(),
    )


def _key_row(query: QueryDict) -> RowRef | None:
    """The row whose key is asked for: keys themselves stand in no address."""
    text = query.get("of", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= POSITION_DIGITS):
        raise BadFilter("of is the position of a row, a whole number: it names the key of that row.")
    row = find_row(int(text))
    if row is None or row.key is None:
        raise BadFilter(f"No row with a key is at position {text} any more, so its key is not known.")
    return row
