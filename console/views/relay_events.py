"""Where one event went: by its id, or by its position in the outbox."""

from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.faults import Fault, read_or_fault
from console.permissions import Action
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page
from console.words import duration_words
from relay.facade import find_row, get_event_trace
from relay.types import EventState, EventTrace

POSITION_MAX = 2**63 - 1


@require_safe
@permitted(Action.VIEW)
def relay_find(request: HttpRequest) -> HttpResponse:
    """Go to the event that an id or a position names."""
    asked = request.GET.get("event", "").strip()
    event_id = _as_uuid(asked)
    if event_id is not None:
        return HttpResponseRedirect(reverse("relay_event", args=[event_id]))
    digits = asked.replace(",", "")
    if not (digits.isascii() and digits.isdigit() and int(digits) <= POSITION_MAX):
        reason = "Type an event id (a UUID, as in the event-id header) or a position in the outbox (a whole number)."
        return refuse_filter(request, reason, page="Event", back=reverse("relay"))
    row = read_or_fault("The outbox could not be read", find_row, int(digits))
    if isinstance(row, Fault):
        return render_page(request, "relay/event.html", {"fault": row, "as_of": timezone.now()})
    if row is None:
        return _missing(request, "position", asked)
    return HttpResponseRedirect(reverse("relay_event", args=[row.event_id]))


@require_safe
@permitted(Action.VIEW)
def relay_event(request: HttpRequest, event_id: UUID) -> HttpResponse:
    """Show one event: its row, whether it waits and why, or where it lies in Kafka."""
    found = read_or_fault("This event could not be read", get_event_trace, event_id)
    if isinstance(found, Fault):
        return render_page(request, "relay/event.html", {"fault": found, "as_of": timezone.now()})
    if found is None:
        return _missing(request, "event id", str(event_id))
    context = {"event": found, "as_of": found.as_of, "is_set_aside": _is_set_aside(found)}
    return render_page(request, "relay/event.html", context)


def _is_set_aside(event: EventTrace) -> bool:
    """Whether a failure set the row aside, so that it can be retried or skipped."""
    return event.state is EventState.WAITING and event.is_deferred


def _missing(request: HttpRequest, what: str, asked: str) -> HttpResponse:
    kept = duration_words(settings.RELAY_OUTBOX_RETENTION)
    why = (
        f"was never published here, its transaction was rolled back, or it was sent and purged: rows are kept for "
        f"{kept} after they are written."
    )
    context = {"missing": asked, "missing_what": what, "missing_why": why, "as_of": timezone.now()}
    return render_page(request, "relay/event.html", context, status=404)


def _as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
