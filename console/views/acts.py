"""What a POST of an act answers: back to the page with words, or the refusal on a page of its own."""

from collections.abc import Callable

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from console.actions.base import ActDenied, BadInput, StaleAct
from console.actions.incidents import acknowledge_incident
from console.views.page import render_page, safe_next, see_other


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
        return refuse_act(request, 409, "It has changed since you looked", stale, back)
    except BadInput as bad:
        return refuse_act(request, 422, "This cannot be done as it stands", bad, back)
    messages.success(request, done)
    return see_other(back)


@require_POST
def acknowledge(request: HttpRequest, incident_id: int) -> HttpResponse:
    """Take an open incident."""
    return run_act(
        request,
        lambda: acknowledge_incident(request.user, incident_id),
        done="You have taken the incident. It stays open until what is wrong is right again.",
        back="/",
    )


def refuse_act(request: HttpRequest, status: int, title: str, why: Exception, back: str) -> HttpResponse:
    """Answer that nothing was done, with the reason and the way back."""
    return render_page(request, "errors/refused.html", {"title": title, "why": str(why), "back": back}, status=status)
