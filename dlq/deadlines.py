"""Deadlines: a thread cannot be stopped, so its database session is ended, and its try is counted without it.

The server ends the session (`pg_terminate_backend`): that works wherever the handler is, in a statement or far from
the database, and with it go the transaction and the key's lock. The late try is counted only under that lock, so never
while its effect could still be committed; see `docs/adr/0312-deadlines-are-fenced-by-the-keys-lock.md`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import structlog
from django.conf import settings
from django.db import connection

log = structlog.get_logger(__name__)

_LOOK_EVERY_S = 0.25
_END_SESSION = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = %s AND usename = current_user AND xact_start < clock_timestamp() - make_interval(secs => %s)
"""

T = TypeVar("T")
O = TypeVar("O")  # noqa: E741 - an outcome


class Ticket(Generic[T, O]):
    """One running try. Its failure is counted once: by its own thread, or by the watch when it is late."""

    def __init__(self, task: T, backend: int, *, is_counted: bool) -> None:
        self.task = task
        self.backend = backend
        self.is_counted = is_counted
        self.is_ended = False
        self.ends_at = time.monotonic() + settings.HANDLER_DEADLINE_S
        self.outcome: O | None = None
        self._claimed = False
        self._lock = threading.Lock()

    def claim(self) -> bool:
        """Take the right to count its failure; False when the other side has it."""
        with self._lock:
            was, self._claimed = self._claimed, True
            return not was

    def give_back(self) -> None:
        """It could not be counted: somebody may try again."""
        with self._lock:
            self._claimed = False


class Watch(threading.Thread, Generic[T, O]):
    """Ends the sessions of late tries and counts them, with a database connection of its own."""

    def __init__(self, count_late: Callable[[T], O]) -> None:
        super().__init__(name="deadlines", daemon=True)
        self._count_late = count_late
        self._running: set[Ticket[T, O]] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.late = 0

    @contextmanager
    def over(self, task: T, *, is_counted: bool = True) -> Iterator[Ticket[T, O]]:
        """Watch a try of this thread, whose database connection is open; one that is not counted is only ended."""
        ticket: Ticket[T, O] = Ticket(task, _backend(), is_counted=is_counted)
        with self._lock:
            self._running.add(ticket)
        try:
            yield ticket
        finally:
            with self._lock:
                self._running.discard(ticket)

    def run(self) -> None:
        """Look until ended."""
        try:
            while not self._ended.wait(_LOOK_EVERY_S):
                for ticket in self._find_late():
                    self._end(ticket)
        finally:
            connection.close()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()

    def _find_late(self) -> list[Ticket[T, O]]:
        late_at = time.monotonic() - settings.HANDLER_LATE_GRACE_S
        with self._lock:
            return [ticket for ticket in self._running if ticket.ends_at < late_at and not ticket.is_ended]

    def _end(self, ticket: Ticket[T, O]) -> None:
        if ticket.is_counted and not ticket.claim():
            return
        try:
            with connection.cursor() as cursor:
                cursor.execute(_END_SESSION, [ticket.backend, settings.HANDLER_DEADLINE_S / 2])
            if ticket.is_counted:
                ticket.outcome = self._count_late(ticket.task)
        except Exception as error:  # noqa: BLE001 - the loop's edge: tried again while the handler runs
            log.warning("deadline.not_counted", error=type(error).__name__)
            ticket.give_back()
            connection.close()
            return
        ticket.is_ended = True
        self.late += 1
        log.warning("deadline.passed", outcome=type(ticket.outcome).__name__)


def _backend() -> int:
    raw: Any = connection.connection
    return int(raw.info.backend_pid)
