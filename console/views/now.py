"""The page Now."""

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.faults import read_or_fault
from console.permissions import Action
from console.views.page import permitted, render_page
from relay.facade import list_open_incidents


@require_GET
@permitted(Action.VIEW)
def now(request: HttpRequest) -> HttpResponse:
    """Show in five seconds whether all is well."""
    incidents = read_or_fault("The open incidents could not be read", list_open_incidents)
    return render_page(request, "now/now.html", {"incidents": incidents, "as_of": timezone.now()})
