"""The audit page: every act of a person, newest first."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.audit import list_audit
from console.faults import read_or_fault
from console.filters import read_text
from console.models import AuditAction
from console.permissions import Action
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page

MAX_ID = 2**63 - 1


@require_safe
@permitted(Action.VIEW)
def audit(request: HttpRequest) -> HttpResponse:
    """Show one page of entries, narrowed by actor and action."""
    action = request.GET.get("action", "")
    try:
        actor = read_text(request.GET, "actor")
        before, after = _read_id(request, "before"), _read_id(request, "after")
        _check_action(action)
    except ValueError as refused:
        return refuse_filter(request, str(refused), page="Audit", back=reverse("audit"))
    page = read_or_fault(
        "The audit could not be read",
        lambda: list_audit(actor=actor, action=action, before=before, after=after, limit=settings.LIST_PAGE_ROWS),
    )
    context = {
        "page": page, "actor": actor, "action": action, "actions": AuditAction.choices, "as_of": timezone.now(),
        "is_first": before is None and after is None,
    }  # fmt: skip
    return render_page(request, "audit/audit.html", context)


def _read_id(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_ID)) and int(text) <= MAX_ID):
        raise ValueError(f'"{name}" must be the number of an entry, not "{text[:40]}".')
    return int(text)


def _check_action(action: str) -> None:
    if action and action not in AuditAction.values:
        raise ValueError(f'There is no act called "{action[:60]}". Choose one from the list.')
