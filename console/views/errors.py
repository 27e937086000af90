"""Error pages that say what it means and what to do, with the id to quote."""

import sys

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.views.decorators.csrf import requires_csrf_token


def request_id(request: HttpRequest) -> str:
    """The correlation id of this request."""
    return str(request.META.get("signalbox.request_id", "none"))


@requires_csrf_token
def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """404; what Django says about the address is not shown."""
    del exception
    return _error(request, 404, "Nothing is here", "No page has this address.", "Check the address, or start from Now.")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """400; why exactly is in the log."""
    del exception
    return _error(
        request,
        400,
        "This request cannot be read",
        "Its host name is not one that this console answers to, or it is damaged. Nothing was changed.",
        "Open the console by its own address. A new host name belongs into ALLOWED_HOSTS.",
    )


def method_refused(request: HttpRequest, allowed: str) -> HttpResponse:
    """405; reached by a person whose session ended before the form was sent."""
    takes_form = "POST" in allowed and "GET" not in allowed
    meaning = "This address only takes a form." if takes_form else "This page takes no form."
    response = _error(
        request,
        405,
        "Nothing was sent",
        f"{meaning} If you had to sign in first, your form was not sent: nothing was changed.",
        "Open the page with the form again and repeat what you did.",
    )
    response["Allow"] = allowed
    return response


@requires_csrf_token
def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """403, with the reason that the permission check gave."""
    reason = str(exception) if exception and str(exception) else "Your account may not see this."
    return _error(
        request, 403, "You may not do this", reason, "Ask an admin for the group, or see what your groups allow."
    )


@requires_csrf_token
def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403 for a form whose token is missing or old; why exactly is nobody's business."""
    del reason
    return _error(
        request,
        403,
        "This form is out of date",
        "It was made before you signed in, or by another site. Nothing was changed.",
        "Go back, load the page again and repeat what you did.",
    )


def failed(request: HttpRequest) -> HttpResponse:
    """500; 503 when the database went away before a view was reached (session, sign-in)."""
    if isinstance(sys.exc_info()[1], OperationalError | InterfaceError):
        return database_away(request)
    return _error(
        request,
        500,
        "Signalbox could not make this page",
        "An error happened while the page was made. What you asked for was not done, or was undone.",
        "Try again. If it stays, look for the id below in the web process's log.",
    )


def database_away(request: HttpRequest) -> HttpResponse:
    """503: PostgreSQL does not answer. Made without the database: no session, no user, no navigation."""
    response = _error(
        request,
        503,
        "PostgreSQL does not answer",
        "The console reads everything from the database, so it cannot show how things stand now. "
        "Rows that were committed are kept; the relay and the consumers wait and go on by themselves.",
        "Check the database process and its disk. This page loads itself again every 5 s.",
    )
    response["Retry-After"] = "5"
    response["Refresh"] = "5"
    return response


def _error(request: HttpRequest, status: int, title: str, meaning: str, todo: str) -> HttpResponse:
    """Render without touching the database: the frame's user and navigation are left out. The API gets a document."""
    if request.path.startswith("/api/"):
        return _problem(request, status, title, f"{meaning} {todo}")
    html = render_to_string(
        "errors/error.html",
        {"status": status, "title": title, "meaning": meaning, "todo": todo, "request_id": request_id(request)},
    )
    return HttpResponse(html, status=status, headers={"Cache-Control": "no-store"})


def _problem(request: HttpRequest, status: int, title: str, detail: str) -> HttpResponse:
    """RFC 9457, as console/api/problems.py makes them."""
    body = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "request_id": request_id(request),
    }
    headers = {"Cache-Control": "no-store"}
    return JsonResponse(body, status=status, content_type="application/problem+json", headers=headers)
