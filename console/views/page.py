"""What every view shares: the permission in front, and how a page is rendered."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme

from console.permissions import Action, Denied, may

V = TypeVar("V", bound=Callable[..., HttpResponse])


def permitted(action: Action) -> Callable[[V], V]:
    """Let a view be seen by those who may do `action`; the others get 403 with the reason."""

    def wrap(view: V) -> V:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            decision = may(request.user, action)
            if isinstance(decision, Denied):
                raise PermissionDenied(decision.reason)
            return view(request, *args, **kwargs)

        return cast("V", guarded)

    return wrap


def safe_next(request: HttpRequest, default: str = "/") -> str:
    """Where the form, or the address, asks to go back to, when that is a page of this console."""
    wanted = request.POST.get("next") or request.GET.get("next", "")
    hosts = {request.get_host()}
    is_ours = url_has_allowed_host_and_scheme(wanted, allowed_hosts=hosts, require_https=request.is_secure())
    return wanted if is_ours else default


def see_other(address: str) -> HttpResponse:
    """Lead to a page after an act: it is read anew, and a reload does nothing twice."""
    response = HttpResponseRedirect(address)
    response.status_code = 303
    return response


def render_page(
    request: HttpRequest, template: str, context: Mapping[str, object], *, status: int = 200
) -> HttpResponse:
    """Render a page, or for a live refresh its panels only: the template extends `page_base`."""
    response = render(request, template, dict(context), status=status)
    response["Cache-Control"] = "no-store"
    return response
