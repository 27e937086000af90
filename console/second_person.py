"""What waits for a second person: asked, read, decided. Who may is decided in `console.actions.dlq`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.functions import Least, Now

from console.live.groups import LiveGroup
from console.live.hints import hint
from console.models import SecondAct, SecondRequest, SecondState


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a second person is asked for: the frozen selection, its scope and consequence in words, and why."""

    act: SecondAct
    preview: str
    scope: str
    count: int
    options: Mapping[str, object]
    reason: str
    valid_until: datetime


@dataclass(frozen=True, slots=True)
class SecondView:
    """A request, and how it stood at `now` by the database clock."""

    row: SecondRequest
    now: datetime

    @property
    def is_waiting(self) -> bool:
        """Tell whether somebody may answer it."""
        return self.row.state == SecondState.WAITING and self.row.expires_at > self.now

    @property
    def is_expired(self) -> bool:
        """Tell whether nobody answered in time."""
        return self.row.state == SecondState.WAITING and self.row.expires_at <= self.now

    @property
    def left_s(self) -> float:
        """How long somebody may still answer."""
        return max(0.0, (self.row.expires_at - self.now).total_seconds())

    @property
    def state_words(self) -> str:
        """How it stands, in words."""
        return "expired: nobody answered in time" if self.is_expired else str(SecondState(self.row.state).label)


def keep_wish(wish: Wish, person: User) -> SecondRequest:
    """Write the request in the caller's transaction; it ends with `SECOND_PERSON_WITHIN_S` or the frozen selection."""
    row = SecondRequest.objects.create(
        act=wish.act,
        preview=wish.preview,
        scope=wish.scope[:500],
        count=wish.count,
        options=dict(wish.options),
        reason=wish.reason,
        asked_by=person.get_username(),
        asked_by_id=person.pk,
        expires_at=Least(Now() + timedelta(seconds=settings.SECOND_PERSON_WITHIN_S), wish.valid_until),
    )
    row.refresh_from_db()
    _announce()
    return row


def get_request(request_id: int) -> SecondView | None:
    """One request; None = there is none."""
    row = SecondRequest.objects.filter(pk=request_id).first()
    return SecondView(row, _now()) if row else None


def list_requests() -> list[SecondView]:
    """The newest requests: at most `SECOND_REQUESTS_LISTED`."""
    now = _now()
    return [SecondView(row, now) for row in SecondRequest.objects.order_by("-id")[: settings.SECOND_REQUESTS_LISTED]]


def list_waiting() -> list[SecondView]:
    """The requests that somebody may answer now, the first to expire first: at most `SECOND_REQUESTS_LISTED`."""
    now = _now()
    rows = SecondRequest.objects.filter(state=SecondState.WAITING, expires_at__gt=Now()).order_by("expires_at")
    return [SecondView(row, now) for row in rows[: settings.SECOND_REQUESTS_LISTED]]


def find_waiting(act: SecondAct, preview: str) -> SecondRequest | None:
    """The request that waits for this frozen selection already."""
    living = SecondRequest.objects.filter(state=SecondState.WAITING, expires_at__gt=Now())
    return living.filter(act=act, preview=preview).first()


def lock_waiting(request_id: int) -> SecondRequest | None:
    """The request, locked until the transaction ends; None = it is answered or expired. Two never get it."""
    living = SecondRequest.objects.select_for_update().filter(state=SecondState.WAITING, expires_at__gt=Now())
    return living.filter(pk=request_id).first()


def decide(row: SecondRequest, state: SecondState, person: User, *, answer: str = "", outcome: str = "") -> None:
    """Write the answer to a locked request."""
    SecondRequest.objects.filter(pk=row.pk, state=SecondState.WAITING).update(
        state=state,
        decided_by=person.get_username(),
        decided_by_id=person.pk,
        decided_at=Now(),
        answer=answer,
        outcome=outcome,
    )
    row.refresh_from_db()
    _announce()


def _announce() -> None:
    """Let open pages look again after the commit."""
    transaction.on_commit(lambda: hint(LiveGroup.DLQ), robust=True)


def _now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found
