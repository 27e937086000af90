"""A question before an act (decision 0602): one address asks by GET and does it by POST."""

from collections.abc import Callable
from dataclasses import replace

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from console.actions.base import ActDenied, BadInput, StaleAct, require
from console.asks import Ask
from console.permissions import Action, may
from console.views.acts import refuse_act
from console.views.page import render_page, safe_next, see_other

asks = require_http_methods(["GET", "HEAD", "POST"])
"""What a question's address takes."""


def answer_ask(
    request: HttpRequest,
    action: Action,
    ask: Callable[[QueryDict], Ask],
    act: Callable[[QueryDict], object],
    *,
    done: str,
    area: str,
    home: str,
    lead: Callable[[object], str] | None = None,
) -> HttpResponse:
    """GET: the question. POST: 303 back with `done`, 403, 409 when stale, 422 with the question and what is wrong.

    `area` is the page's name and `home` its URL name: where the question leads back to. `lead` gives the address after
    the act from what the act returned.
    """
    back = safe_next(request, reverse(home))
    is_post = request.method == "POST"
    given = request.POST if is_post else request.GET
    question: Ask | None = None
    try:
        if is_post:
            require(request.user, action)
        question = ask(given)
        if not is_post:
            return _render(request, question, back, area)
        found = act(given)
    except ActDenied as denied:
        raise PermissionDenied(str(denied)) from denied
    except StaleAct as stale:
        return refuse_act(request, 409, "It has changed since you looked", stale, back)
    except BadInput as bad:
        if question is None:
            return refuse_act(request, 422, "This cannot be done as it stands", bad, back)
        return _render(request, question, back, area, wrong=bad)
    messages.success(request, done)
    return see_other(lead(found) if lead else back)


def read_seen(given: QueryDict) -> int:
    """The version that the form was made from.

    Raises:
        BadInput: it is not there.
    """
    text = given.get("seen", "")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise BadInput("seen", "The form does not say which state it was made from. Go back and load the page again.")
    return int(text)


def _render(request: HttpRequest, question: Ask, back: str, area: str, wrong: BadInput | None = None) -> HttpResponse:
    context = {
        "ask": replace(question, post_to=request.path),
        "back": back,
        "area": area,
        "allowed": may(request.user, question.action),
        "error": str(wrong) if wrong else "",
        "error_field": wrong.field if wrong else "",
        "typed": request.POST,
    }
    return render_page(request, "components/ask.html", context, status=422 if wrong else 200)
