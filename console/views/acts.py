"""What a POST of an act answers: back to the page with words, or the refusal on a page of its own."""

from collections.abc import Callable

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from console.actions.base import ActDenied, BadInput, StaleAct
from console.actions.incidents import acknowledge_incident
from console.actions.relay import pause_relay, resume_relay
from console.views.page import render_page, safe_next


def run_act(request: HttpRequest, act: Callable[[], None], *, done: str, back: str) -> HttpResponse:
    """Run an act and answer: 303 back with `done`, 403, 409 when stale, 422 when a value cannot be used.

    Nothing was changed when it is refused. The page that the person came from shows the committed state.
    """
    back = safe_next(request, back)
    try:
        act()
    except ActDenied as denied:
        raise PermissionDenied(str(denied)) from denied
    except StaleAct as stale:
        return _refuse(request, 409, "It has changed since you looked", stale, back)
    except BadInput as bad:
        return _refuse(request, 422, "This cannot be done as it stands", bad, back)
    messages.success(request, done)
    response = HttpResponseRedirect(back)
    response.status_code = 303
    return response


@require_POST
def acknowledge(request: HttpRequest, incident_id: int) -> HttpResponse:
    """Take an open incident."""
    return run_act(
        request,
        lambda: acknowledge_incident(request.user, incident_id),
        done="You have taken the incident. It stays open until what is wrong is right again.",
        back="/",
    )


@require_POST
def pause(request: HttpRequest) -> HttpResponse:
    """Pause the relay with a reason."""
    return run_act(
        request,
        lambda: pause_relay(request.user, reason=request.POST.get("reason", "")),
        done="The relay is paused. Rows wait in the outbox until somebody resumes it.",
        back="/",
    )


@require_POST
def resume(request: HttpRequest) -> HttpResponse:
    """Resume the relay."""
    return run_act(
        request,
        lambda: resume_relay(request.user),
        done="The relay is resumed. Rows that waited go out in their order.",
        back="/",
    )


def _refuse(request: HttpRequest, status: int, title: str, why: Exception, back: str) -> HttpResponse:
    return render_page(request, "errors/refused.html", {"title": title, "why": str(why), "back": back}, status=status)
