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
from dlq.facade import find_parked_row
from relay.facade import find_row, get_event_trace
from relay.types import Aspect, EventState, EventTrace, Verdict

POSITION_MAX = 2**63 - 1
PARKED = Verdict(aspect=Aspect.WARN, word="parked", reason="the relay gave it up, and it became a dead letter")


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
    letter = _parked_as(found)
    context = {"event": found, "as_of": found.as_of, "letter": letter, "verdict": PARKED if letter else found.verdict}
    return render_page(request, "relay/event.html", context)


def _parked_as(event: EventTrace) -> UUID | None:
    """The dead letter that the topic's policy made of the row: the relay is done with it and Kafka has it not."""
    if event.state is not EventState.SENT or event.landings:
        return None
    return find_parked_row(event.topic, event.shard, event.position)


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
