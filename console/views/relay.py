"""Relay: what waits unsent and why, who publishes, which keys and topics are held."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.faults import Fault, read_or_fault
from console.permissions import Action
from console.shard_map import shard_map
from console.views.page import permitted, render_page
from relay.facade import get_relay_status
from relay.types import Aspect, RelayStatus, UnsentRow


@require_safe
@permitted(Action.VIEW)
def relay(request: HttpRequest) -> HttpResponse:
    """Show the oldest unsent row first, then everything that explains it."""
    found = read_or_fault("The state of the relay could not be read", get_relay_status)
    if isinstance(found, Fault):
        return render_page(request, "relay/relay.html", {"fault": found, "as_of": timezone.now()})
    context = {
        "relay": found,
        "waiting": _worth_listing(found),
        "waiting_shown_s": settings.RELAY_WAITING_SHOWN_S,
        "as_of": found.as_of,
        "map": shard_map(found.shards, found.runners),
        "failed": [key for key in found.deferred if key.failed],
        "waiting_keys": [key for key in found.deferred if not key.failed],
        "partitions_low": found.partitions_ahead <= settings.RELAY_PARTITIONS_LOW,
        "partitions_wanted": settings.RELAY_PARTITIONS_AHEAD,
    }
    return render_page(request, "relay/relay.html", context)


def _worth_listing(status: RelayStatus) -> list[UnsentRow]:
    """While all is well, rows that were only just committed come and go too fast to be read."""
    if status.verdict.aspect is not Aspect.OK:
        return list(status.waiting)
    return [row for row in status.waiting if row.age_s >= settings.RELAY_WAITING_SHOWN_S]
