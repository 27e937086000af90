"""Open, refresh and close incidents. Call inside or outside a transaction; each call is one statement."""

from collections.abc import Collection

from django.db import connection, transaction
from django.db.models import Case, When
from django.db.models.functions import Now

from relay.models.ops import Incident
from relay.signals import incidents_changed
from relay.types import IncidentKind, IncidentView, Severity

RECENT_INCIDENTS = 20
# They tell of what has happened: nothing becomes right by itself, so whoever takes one closes it.
TOLD_ONCE = frozenset(
    {
        IncidentKind.RELAY_ORDER_BROKEN,
        IncidentKind.RELAY_TOPIC_REMADE,
        IncidentKind.RELAY_RESTORED,
        IncidentKind.RELAY_DUPLICATE_ID,
    }
)

_OPEN = """
INSERT INTO relay_incident AS i (kind, cause, severity, title, meaning, action, link, times)
VALUES (%s, %s, %s, %s, %s, %s, %s, 1)
ON CONFLICT (kind, cause) WHERE closed_at IS NULL DO UPDATE
SET last_seen_at = clock_timestamp(), times = i.times + 1, severity = excluded.severity, title = excluded.title,
    meaning = excluded.meaning, action = excluded.action, link = excluded.link
RETURNING (xmax = 0)
"""


def open_incident(
    kind: IncidentKind,
    cause: str,
    *,
    title: str,
    meaning: str,
    action: str,
    link: str = "",
    severity: Severity = Severity.BAD,
) -> bool:
    """Open an incident, or refresh the one that is open for the same (kind, cause).

    Texts must hold no payload, key or header value. Longer texts are cut to their column.

    Returns:
        True when it was not open before.
    """
    texts = (title[:300], meaning[:600], action[:600], link[:300])
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [kind.value, cause[:200], severity.value, *texts])
        is_new: bool = cursor.fetchone()[0]
    if is_new:
        _announce()
    return is_new


def close_incident(kind: IncidentKind, cause: str) -> bool:
    """Close the open incident of (kind, cause); True when there was one."""
    closed = Incident.objects.filter(kind=kind, cause=cause[:200], closed_at__isnull=True).update(closed_at=Now())
    if closed:
        _announce()
    return bool(closed)


def close_other_incidents(kind: IncidentKind, still_open: Collection[str]) -> int:
    """Close every open incident of `kind` whose cause is not in `still_open`; how many were closed."""
    rows = Incident.objects.filter(kind=kind, closed_at__isnull=True).exclude(cause__in=[c[:200] for c in still_open])
    closed = rows.update(closed_at=Now())
    if closed:
        _announce()
    return closed


def list_open_incidents() -> list[IncidentView]:
    """Open incidents, newest first; there is at most one a cause, so the list is short."""
    return [_view(i) for i in Incident.objects.filter(closed_at__isnull=True).order_by("-opened_at", "-pk")]


def list_recent_incidents() -> list[IncidentView]:
    """The last `RECENT_INCIDENTS` closed ones, newest first."""
    rows = Incident.objects.filter(closed_at__isnull=False).order_by("-closed_at")[:RECENT_INCIDENTS]
    return [_view(i) for i in rows]


def acknowledge_incident(incident_id: int, *, actor: str) -> bool:
    """Record that `actor` has taken an open incident; False when it is closed or somebody took it first.

    One that tells of what has happened (`TOLD_ONCE`) is closed by that; when it happens again, a new one is opened.
    """
    is_told = Case(When(kind__in=[kind.value for kind in TOLD_ONCE], then=Now()))
    taken = Incident.objects.filter(pk=incident_id, closed_at__isnull=True, acknowledged_by__isnull=True).update(
        acknowledged_by=actor, acknowledged_at=Now(), closed_at=is_told
    )
    if taken:
        _announce()
    return bool(taken)


def _announce() -> None:
    transaction.on_commit(lambda: incidents_changed.send(sender=Incident), robust=True)


def _view(row: Incident) -> IncidentView:
    return IncidentView(
        id=row.pk,
        kind=IncidentKind(row.kind),
        cause=row.cause,
        severity=Severity(row.severity),
        title=row.title,
        meaning=row.meaning,
        action=row.action,
        link=row.link,
        runbook=row.kind.replace("_", "-"),
        opened_at=row.opened_at,
        closed_at=row.closed_at,
        last_seen_at=row.last_seen_at,
        times=row.times,
        acknowledged_by=row.acknowledged_by,
        acknowledged_at=row.acknowledged_at,
    )
