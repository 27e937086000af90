"""Keeps what the workers look at: policies, breakers, the stored records that are due, and whether more may be stored.

A thread of its own, so that neither the poll nor the clerk's questions to the broker delay it. Each errand is tried
again at its next time when the database is away.
"""

import threading
import time
from collections.abc import Callable

import structlog
from django.conf import settings
from django.db import connection

from dlq import retrying
from dlq.attempts import Attempts
from dlq.breaker import BreakerBook
from dlq.policies import PolicyBook
from dlq.work import Job, Shelf
from relay.facade import close_incident, open_incident, run_if_due
from relay.types import IncidentKind

log = structlog.get_logger(__name__)


class Keeper(threading.Thread):
    """One a process. `looked` is set when policies and breakers were read once."""

    def __init__(
        self,
        group: str,
        name: str,
        shelf: Shelf,
        attempts: Attempts,
        *,
        policies: PolicyBook,
        breakers: BreakerBook,
        may_store: Callable[[Job], bool],
    ) -> None:
        """`may_store` tells whether a held record may go to the database to make room."""
        super().__init__(name="keeper", daemon=True)
        self.looked = threading.Event()
        self._group = group
        self._process = name
        self._shelf = shelf
        self._attempts = attempts
        self._policies = policies
        self._breakers = breakers
        self._may_store = may_store
        self._ended = threading.Event()
        self._is_reported = False
        self._was_loaded = False
        self._next_at: dict[str, float] = {}

    def run(self) -> None:
        """Do what is due until ended."""
        try:
            while not self._ended.is_set():
                self._turn()
                self._ended.wait(0.0 if self._was_loaded else settings.CONSUMER_KEEPER_EVERY_S)
        finally:
            connection.close()

    def stop(self) -> None:
        """End the thread; waits a moment for an errand that runs."""
        self._ended.set()
        self.join(1)

    def _turn(self) -> None:
        self._was_loaded = False
        self._do("policies", settings.DLQ_POLICY_REFRESH_S, self._policies.refresh)
        self._do("breakers", settings.CONSUMER_BREAKER_REFRESH_S, self._look_at_breakers)
        self._do("crowded", settings.CONSUMER_RELIEVE_EVERY_S, self._relieve)
        self._do("room", settings.CONSUMER_ROOM_CHECK_EVERY_S, self._check_room)
        self._do("due", settings.CONSUMER_KEEPER_EVERY_S, self._bring_due)
        self._do("passed", settings.CONSUMER_WAITING_SWEEP_EVERY_S, self._sweep)

    def _do(self, name: str, every_s: float, errand: Callable[[], None]) -> None:
        now = time.monotonic()
        if now < self._next_at.get(name, 0.0):
            return
        self._next_at[name] = now + every_s
        try:
            errand()
        except Exception as error:  # noqa: BLE001 - the loop's edge: logged, and tried again at its next time
            log.warning("keeper.errand_failed", group=self._group, errand=name, error=type(error).__name__)
            connection.close()

    def _look_at_breakers(self) -> None:
        self._breakers.refresh()
        self.looked.set()
        if closed := self._breakers.take_closed():
            log.info("breaker.closed", group=self._group, handlers=closed)
            self._shelf.wake(closed)

    def _relieve(self) -> None:
        moved = self._shelf.relieve(self._may_store, settings.CONSUMER_FRONTIER_RECORDS)
        if moved:
            log.info("consumer.relieved", group=self._group, keys=moved)

    def _bring_due(self) -> None:
        """Put stored records that are due on the shelf, as many as it may hold of them."""
        here = self._shelf.stored_here()
        records = retrying.load_due(
            self._group,
            self._shelf.places(),
            but=here,
            held=[name for name in self._breakers.open_handlers() if self._breakers.probe_in_s(name) > 0],
            limit=settings.CONSUMER_STORED_HERE - self._shelf.count_stored(),
            limit_bytes=settings.CONSUMER_BUFFER_BYTES // 4,
        )
        taken = [self._shelf.add_stored(stored.id, stored.record, stored.topic_id) for stored in records]
        self._was_loaded = any(taken)

    def _check_room(self) -> None:
        full = retrying.is_room_full(self._group)
        self._attempts.is_room_full = full
        held = self._shelf.find_full()
        if full or held:
            self._report(held or "the group has as many records waiting as it may")
        elif self._is_reported:
            close_incident(IncidentKind.WAITING_FULL, self._group)
            self._is_reported = False

    def _report(self, why: str) -> None:
        open_incident(
            IncidentKind.WAITING_FULL,
            self._group,
            title=f"{self._group} can let no more records wait: {why}",
            meaning="Records of keys that wait for another try go to the database when their partition is crowded. As"
            " many as may wait there are waiting, so the partitions behind them stop. Nothing is dropped.",
            action="Look why the first of them fail: fix what they need, or change the policy so that they are parked.",
            link="/lag/",
        )
        self._is_reported = True

    def _sweep(self) -> None:
        run_if_due(
            "dlq.forget_passed_waiting",
            every_s=settings.CONSUMER_WAITING_SWEEP_EVERY_S,
            runner=self._process,
            job=retrying.forget_passed,
        )
