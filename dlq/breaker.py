"""Breakers: one row a handler of a group, shared by all its processes; the rules are pure, in `dlq.domain.breaker`.

The row is locked before any waiting row is written: whoever opens it changes waiting rows of other keys. What a process
knows of it is at most `CONSUMER_BREAKER_REFRESH_S` old; what it does not know yet, the row says when a failure is
counted. Incidents are opened and closed in the transaction that changes the state.

Errors: StaleBreaker.
"""

import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from dlq import retrying
from dlq.domain.breaker import BreakerLimits, Run, after_failure, next_probe_s
from dlq.types import BreakerState, BreakerView
from relay.facade import close_incident, open_incident
from relay.types import IncidentKind

log = structlog.get_logger(__name__)

_LOCK = """
INSERT INTO dlq_breaker AS b (group_name, handler) VALUES (%s, %s)
ON CONFLICT (group_name, handler) DO UPDATE SET handler = b.handler
RETURNING state, failures, culprits
"""
_COUNT = """
UPDATE dlq_breaker SET failures = %s, culprits = %s, error_class = %s WHERE group_name = %s AND handler = %s
"""
_OPEN = """
UPDATE dlq_breaker SET state = 'open', failures = %s, culprits = '{}', error_class = %s, opened_at = clock_timestamp(),
    probes = 0, probe_at = clock_timestamp() + make_interval(secs => %s), probe_token = NULL, probe_until = NULL,
    version = version + 1, changed_by = '', changed_at = clock_timestamp()
WHERE group_name = %s AND handler = %s
"""
_CLOSE = """
WITH was AS (SELECT state FROM dlq_breaker WHERE group_name = %(group)s AND handler = %(handler)s FOR UPDATE)
UPDATE dlq_breaker b SET state = 'closed', failures = 0, culprits = '{}', opened_at = NULL, probe_at = NULL,
    probe_token = NULL, probe_until = NULL, probes = 0, version = b.version + (was.state = 'open')::int,
    changed_by = CASE WHEN was.state = 'open' THEN %(actor)s ELSE b.changed_by END,
    changed_at = CASE WHEN was.state = 'open' THEN clock_timestamp() ELSE b.changed_at END
FROM was
WHERE b.group_name = %(group)s AND b.handler = %(handler)s AND (b.state = 'open' OR b.failures > 0)
  AND (%(version)s::int IS NULL OR b.version = %(version)s)
RETURNING was.state
"""
_CLAIM_PROBE = """
UPDATE dlq_breaker
SET probe_token = %s, probe_until = clock_timestamp() + make_interval(secs => %s)
WHERE group_name = %s AND handler = %s AND state = 'open' AND probe_at <= clock_timestamp()
  AND (probe_token IS NULL OR probe_until < clock_timestamp())
"""
_PROBE_FAILED = """
UPDATE dlq_breaker
SET probes = probes + 1, probe_token = NULL, probe_until = NULL,
    probe_at = clock_timestamp() + make_interval(secs => least(%(most)s, %(first)s * 2 ^ least(probes + 1, 16)))
WHERE group_name = %(group)s AND handler = %(handler)s AND state = 'open' AND probe_token = %(token)s
"""
_RELEASE_PROBE = """
UPDATE dlq_breaker
SET probe_token = NULL, probe_until = NULL, probe_at = clock_timestamp() + make_interval(secs => %s)
WHERE group_name = %s AND handler = %s AND state = 'open' AND probe_token = %s
"""
_STATES = """
SELECT handler, state, failures, greatest(0, extract(epoch FROM
    CASE WHEN probe_token IS NULL OR probe_until < probe_at THEN probe_at ELSE greatest(probe_at, probe_until) END
    - clock_timestamp()))::float8
FROM dlq_breaker WHERE group_name = %s LIMIT %s
"""
_LIST = """
SELECT group_name, handler, state, failures, error_class, opened_at,
    greatest(0, extract(epoch FROM probe_at - clock_timestamp()))::float8, probes, version, changed_by, changed_at
FROM dlq_breaker WHERE NOT %s OR state = 'open' ORDER BY state DESC, group_name, handler LIMIT %s
"""


class StaleBreaker(Exception):
    """The breaker is not as the person saw it; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Go:
    """The handler may run; `token` is set for the one record that probes an open breaker."""

    token: UUID | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """The handler's dependency is down: look again after so many seconds."""

    after_s: float


@dataclass(frozen=True, slots=True)
class _Known:
    is_open: bool
    is_dirty: bool
    probe_at: float


_CLOSED = _Known(is_open=False, is_dirty=False, probe_at=0.0)


class BreakerBook:
    """The breakers of one group as this process knows them. Any thread may call it."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._closed: set[str] = set()

    def take_closed(self) -> list[str]:
        """The handlers whose breaker closed since this was asked last."""
        with self._lock:
            closed, self._closed = sorted(self._closed), set()
        return closed

    def refresh(self) -> None:
        """Read the rows.

        Raises:
            DatabaseError: nothing was changed.
        """
        with connection.cursor() as cursor:
            cursor.execute(_STATES, [self._group, settings.CONSUMER_BREAKERS_SHOWN])
            rows = cursor.fetchall()
        now = time.monotonic()
        read = {
            handler: _Known(is_open=state == BreakerState.OPEN, is_dirty=failures > 0, probe_at=now + (probe_s or 0.0))
            for handler, state, failures, probe_s in rows
        }
        with self._lock:
            before, self._known = self._known, read
            still = {name for name, known in read.items() if known.is_open}
            self._closed |= {name for name, known in before.items() if known.is_open} - still

    def open_handlers(self) -> Sequence[str]:
        """The handlers whose breaker is open."""
        with self._lock:
            return sorted(name for name, known in self._known.items() if known.is_open)

    def probe_in_s(self, handler: str) -> float:
        """How long until a record of an open breaker's handler is let through, as far as it is known."""
        left_s = self._get(handler).probe_at - time.monotonic()
        return min(max(0.0, left_s), settings.CONSUMER_BREAKER_PROBE_MAX_S)

    def ask(self, handler: str) -> Go | Wait:
        """Tell whether a record may run now; claims the probe, outside any transaction, when one is due."""
        known = self._get(handler)
        if not known.is_open:
            return Go()
        left_s = known.probe_at - time.monotonic()
        if left_s > 0:
            return Wait(min(left_s, settings.CONSUMER_BREAKER_PROBE_MAX_S) + _chance_s())
        token = uuid4()
        with connection.cursor() as cursor:
            lease_s = settings.HANDLER_DEADLINE_S + settings.HANDLER_STUCK_GRACE_S
            cursor.execute(_CLAIM_PROBE, [token, lease_s, self._group, handler])
            if cursor.rowcount == 1:
                return Go(token)
        self.refresh()
        known = self._get(handler)
        if not known.is_open:
            return Go()
        left_s = max(known.probe_at - time.monotonic(), settings.CONSUMER_BREAKER_REFRESH_S)
        return Wait(min(left_s, settings.CONSUMER_BREAKER_PROBE_MAX_S) + _chance_s())

    # -- In the transaction that ends an attempt -----------------------------------------------------------
    def lock(self, cursor: Any, handler: str) -> Run:
        """Lock the row until the transaction ends, before any waiting row is written; what it counts so far."""
        cursor.execute(_LOCK, [self._group, handler])
        state, failures, culprits = cursor.fetchone()
        return Run(failures=failures, culprits=tuple(culprits), is_open=state == BreakerState.OPEN)

    def would_open(self, run: Run, culprit: int) -> bool:
        """Tell whether one more failure opens it."""
        return after_failure(run, culprit, read_limits()).is_open

    def count(self, cursor: Any, handler: str, run: Run, culprit: int, error_class: str) -> bool:
        """Count a failure on the waiting row `culprit` (0 or below = it has none); True when that opens the breaker.

        Then the tries of the whole run are refunded.
        """
        limits = read_limits()
        new = after_failure(run, culprit, limits)
        if not new.is_open:
            values = [new.failures, list(new.culprits), error_class[:200], self._group, handler]
            cursor.execute(_COUNT, values)
            self._note(handler, _Known(is_open=False, is_dirty=True, probe_at=0.0))
            return False
        wait_s = next_probe_s(0, limits)
        cursor.execute(_OPEN, [new.failures, error_class[:200], wait_s, self._group, handler])
        retrying.refund(cursor, new.culprits)
        open_incident(
            IncidentKind.BREAKER_OPEN,
            _cause(self._group, handler),
            title=f"{handler} of {self._group} is held: what it needs is down",
            meaning=f"{new.failures} tries of different records failed in a row, the last with {error_class[:100]}. Its"
            " records wait and spend no tries; one at a time tests whether it works again.",
            action="Bring back what the handler calls. It goes on by itself; close the breaker to try at once.",
            link="/quarantine/",
        )
        self._note(handler, _Known(is_open=True, is_dirty=True, probe_at=time.monotonic() + wait_s))
        return True

    def probe_failed(self, cursor: Any, handler: str, token: UUID) -> None:
        """Let the next probe wait longer."""
        limits = read_limits()
        values = {
            "most": limits.probe_max_s,
            "first": limits.probe_s,
            "group": self._group,
            "handler": handler,
            "token": token,
        }
        cursor.execute(_PROBE_FAILED, values)

    def note_success(self, cursor: Any, handler: str, token: UUID | None) -> None:
        """End the run of failures, and close the breaker; a statement only where there may be something to end."""
        if token is None and not self._get(handler).is_dirty:
            return
        _close(cursor, self._group, handler, actor="", version=None)
        self._note(handler, _CLOSED)

    def release(self, handler: str, token: UUID) -> None:
        """Give a probe back that said nothing about the dependency; the next record tries soon. Never raises."""
        try:
            with connection.cursor() as cursor:
                cursor.execute(_RELEASE_PROBE, [settings.CONSUMER_BREAKER_REFRESH_S, self._group, handler, token])
        except DatabaseError as error:  # it ends by itself, with the lease
            log.warning("breaker.probe_not_released", error=type(error).__name__)
            connection.close()

    def note_open(self, handler: str) -> None:
        """Remember that the row says open; until when is read at the next refresh."""
        now, known = time.monotonic(), self._get(handler)
        if not known.is_open or known.probe_at <= now:
            at = now + settings.CONSUMER_BREAKER_REFRESH_S
            self._note(handler, _Known(is_open=True, is_dirty=True, probe_at=at))

    def _get(self, handler: str) -> _Known:
        with self._lock:
            return self._known.get(handler, _CLOSED)

    def _note(self, handler: str, known: _Known) -> None:
        with self._lock:
            before = self._known.get(handler, _CLOSED)
            self._known[handler] = known
            if before.is_open and not known.is_open:
                self._closed.add(handler)


def read_limits() -> BreakerLimits:
    """Read the limits from the settings."""
    return BreakerLimits(
        failures=settings.CONSUMER_BREAKER_FAILURES,
        records=settings.CONSUMER_BREAKER_RECORDS,
        probe_s=settings.CONSUMER_BREAKER_PROBE_S,
        probe_max_s=settings.CONSUMER_BREAKER_PROBE_MAX_S,
    )


def list_breakers(*, only_open: bool = False) -> list[BreakerView]:
    """The breakers that ever counted a failure, open ones first: at most `CONSUMER_BREAKERS_SHOWN`."""
    with connection.cursor() as cursor:
        cursor.execute(_LIST, [only_open, settings.CONSUMER_BREAKERS_SHOWN])
        rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
    return [_view(row) for row in rows]


def close_breaker(group: str, handler: str, *, expected_version: int, actor: str) -> None:
    """Close an open breaker by hand: the handler's records run again within seconds, in every process.

    `expected_version` is of the breaker that the person saw.

    Raises:
        StaleBreaker: it is closed already, or was opened again meanwhile.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_LOCK, [group, handler])
        state = cursor.fetchone()[0]
        if state != BreakerState.OPEN or not _close(
            cursor, group, handler, actor=actor[:150], version=expected_version
        ):
            raise StaleBreaker(
                f"The breaker of {handler} in {group} is not as your page shows it: it was closed or opened again"
                " meanwhile. Look at it again."
            )


def _close(cursor: Any, group: str, handler: str, *, actor: str, version: int | None) -> bool:
    cursor.execute(_CLOSE, {"group": group, "handler": handler, "actor": actor, "version": version})
    row = cursor.fetchone()
    if row is not None and row[0] == BreakerState.OPEN:
        close_incident(IncidentKind.BREAKER_OPEN, _cause(group, handler))
    return row is not None


def _cause(group: str, handler: str) -> str:
    return f"{group}/{handler}"


def _chance_s() -> float:
    """Let held records come back one after the other, in no fixed order, so that each may be the probe."""
    return secrets.randbelow(250) / 1000


def _view(row: tuple[Any, ...]) -> BreakerView:
    group, handler, state, failures, error_class, opened_at, probe_in_s, probes, version, by, changed_at = row
    opened: datetime | None = opened_at
    return BreakerView(
        group=group,
        handler=handler,
        state=BreakerState(state),
        failures=failures,
        error_class=error_class,
        opened_at=opened,
        probe_in_s=probe_in_s if opened is not None else None,
        probes=probes,
        version=version,
        changed_by=by,
        changed_at=changed_at,
    )
