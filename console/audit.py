"""Write and read the audit of operator acts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from console.models import AuditAction, AuditEntry
from console.permissions import token_scope


class NotInAct(RuntimeError):
    """An audit row was to be written outside the transaction of its act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """One page, newest first, with the ids to continue from."""

    rows: Sequence[AuditEntry]
    older: int | None
    newer: int | None


def record_act(
    actor: User, action: AuditAction, *, kind: str, object_id: str, reason: str = "", **detail: object
) -> AuditEntry:
    """Write one audit row in the caller's transaction, with the request's correlation id.

    `detail` holds facts (numbers, names), never payload, keys or headers; it names the token that the person came by.

    Raises:
        NotInAct: no transaction is open; the act and its row could part.
        ValueError: `detail` is larger than `AUDIT_DETAIL_BYTES`.
    """
    if not connection.in_atomic_block:
        raise NotInAct(
            f"{action} must be recorded inside the transaction of its act: wrap both in transaction.atomic()"
        )
    scope = token_scope(actor)
    if scope is not None:
        detail["token"] = scope.name
    size = len(json.dumps(detail).encode())
    if size > settings.AUDIT_DETAIL_BYTES:
        raise ValueError(f"the detail of {action} has {size} bytes, at most {settings.AUDIT_DETAIL_BYTES} are kept")
    return AuditEntry.objects.create(
        actor_name=actor.get_username(),
        actor_id=actor.pk,
        action=action.value,
        object_kind=kind,
        object_id=object_id[:200],
        reason=reason[: settings.AUDIT_REASON_CHARS],
        detail=detail,
        request_id=str(structlog.contextvars.get_contextvars().get("request_id", ""))[:64],
    )


def list_audit(
    *, actor: str = "", action: str = "", before: int | None = None, after: int | None = None, limit: int
) -> AuditPage:
    """One page by keyset on the id: entries older than `before`, or the ones just newer than `after`."""
    rows = AuditEntry.objects.all()
    if actor:
        rows = rows.filter(actor_name=actor)
    if action:
        rows = rows.filter(action=action)
    if after is not None:
        found = list(rows.filter(id__gt=after).order_by("id")[: limit + 1])
        shown = found[:limit][::-1]
        return AuditPage(rows=shown, older=shown[-1].id if shown else None, newer=_first(shown, len(found) > limit))
    if before is not None:
        rows = rows.filter(id__lt=before)
    found = list(rows.order_by("-id")[: limit + 1])
    shown = found[:limit]
    return AuditPage(
        rows=shown,
        older=shown[-1].id if len(found) > limit else None,
        newer=_first(shown, before is not None),
    )


def list_recent_acts(limit: int) -> list[AuditEntry]:
    """The newest entries."""
    return list(AuditEntry.objects.order_by("-id")[:limit])


def _first(rows: Sequence[AuditEntry], has_newer: bool) -> int | None:
    return rows[0].id if rows and has_newer else None
