"""Runbooks: docs/runbooks/<kind>.md as pages; each incident links to its own."""

from functools import cache
from pathlib import Path

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_safe

from console.markdown import render_markdown, title_of
from console.permissions import Action
from console.views.page import permitted, render_page
from relay.types import IncidentKind

KINDS = {kind.value.replace("_", "-") for kind in IncidentKind}


@require_safe
@permitted(Action.VIEW)
def runbook(request: HttpRequest, kind: str) -> HttpResponse:
    """Show one runbook; the name is taken from the closed list of incidents, never as a path."""
    if kind not in KINDS:
        raise Http404
    text = read_runbook(kind)
    if not text:
        raise Http404
    body = mark_safe(render_markdown(text))  # noqa: S308 - our own files, and the renderer escapes every character
    return render_page(request, "system/runbook.html", {"title": title_of(text) or kind, "body": body, "kind": kind})


@cache
def read_runbook(kind: str) -> str:
    """The text of a runbook; empty when nobody has written it."""
    path = Path(settings.BASE_DIR) / "docs" / "runbooks" / f"{kind}.md"
    return path.read_text(encoding="utf-8") if path.is_file() else ""
