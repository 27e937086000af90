"""Dead letters: the list with its filters, and one of them with what happened to it. Contents stay hidden."""

from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.faults import Fault, read_or_fault
from console.filters import BadFilter, read_text
from console.letter_filter import ANY_STATE, NAMES, STATES, read_letter_filter
from console.permissions import Action
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page
from dlq.facade import BadCursor, get_dead_letter, get_dlq_status, list_dead_letters
from dlq.types import DeadLetterFilter, DeadLetterPage

SPANS = ("1h", "3h", "24h", "3d", "7d")


@require_safe
@permitted(Action.VIEW)
def dead_letters(request: HttpRequest) -> HttpResponse:
    """List dead letters, newest first, narrowed by the address."""
    try:
        wanted, cursor = read_letter_filter(request.GET), read_text(request.GET, "cursor")
        page = _checked(read_or_fault("The dead letters could not be read", _read_page, wanted, cursor))
    except BadFilter as refused:
        return refuse_filter(request, str(refused), page="Dead letters", back=reverse("dead_letters"))
    status = read_or_fault("The counts of dead letters could not be read", get_dlq_status)
    chips = _chips(request.GET)
    context = {
        "page": page,
        "status": status,
        "as_of": timezone.now() if isinstance(page, Fault) else page.as_of,
        "wanted": wanted,
        "state": wanted.state or ANY_STATE,
        "states": STATES,
        "spans": SPANS,
        "since": request.GET.get("since", "").strip(),
        "chips": chips,
        "is_filtered": bool(chips),
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
    return render_page(request, "dead_letters/detail.html", {"letter": found, "row": found.row, "as_of": as_of})


def _read_page(wanted: DeadLetterFilter, cursor: str) -> DeadLetterPage | BadCursor:
    """One page; a cursor that is not ours is a value here, so that it is not taken for a broken source."""
    try:
        return list_dead_letters(wanted, cursor=cursor or None, limit=settings.LIST_PAGE_ROWS)
    except BadCursor as refused:
        return refused


def _checked(found: DeadLetterPage | BadCursor | Fault) -> DeadLetterPage | Fault:
    if isinstance(found, BadCursor):
        raise BadFilter(f"{str(found).capitalize()}.") from found
    return found


def _chips(query: QueryDict) -> list[tuple[str, str, str]]:
    """The filters that are set, as (parameter, text, address without it)."""
    return [(name, text, _without(query, name)) for name in NAMES if (text := query.get(name, "").strip())]


def _without(query: QueryDict, name: str) -> str:
    rest = query.copy()
    for parameter in (name, "cursor"):
        rest.pop(parameter, None)
    return f"{reverse('dead_letters')}?{rest.urlencode()}"


def _names(status: object, place: int) -> list[str]:
    """The topics (0) or groups (1) that have dead letters, for the filter's suggestions."""
    return sorted({found[place] for found in getattr(status, "by_topic_group", ())})
