"""Writers of the checker: concurrent transactions with a row lock a key, delays, savepoints, rollbacks, a long one."""

import random
import threading
import time
from dataclasses import dataclass, field

from django.db import Error, connection, connections, transaction

from relay.check.judge import Row
from relay.check.worktable import WorkTable, payload_of
from relay.publishing import publish_many
from relay.types import EventDraft

ROLLED_BACK_SHARE = 0.05
SAVEPOINT_SHARE = 0.2
SAVEPOINT_ROLLED_BACK_SHARE = 0.5
DELAYED_SHARE = 0.1
DELAY_MOST_S = 0.02
LONG_TRANSACTION_S = 3.0
KEYS_A_TRANSACTION = 4
ROWS_A_KEY = 4
RETRY_WAIT_S = 0.5
HEADER = "check-run"


class _Undo(Exception):
    """Ends a savepoint or transaction that is rolled back on purpose."""


@dataclass(slots=True)
class Budget:
    """How many rows are still to be written, and what was done. Thread-safe.

    Writers wait at `allowed` rows: they must not be done before the relays were killed among their rows.
    """

    rows: int
    allowed: float = 0
    reserved: int = 0
    written: int = 0
    rolled_back: int = 0
    undone: int = 0
    errors: int = 0
    last_error: str = ""
    is_stopping: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, wanted: int) -> int:
        """Reserve up to `wanted` rows, waiting until more are allowed; 0 = nothing is left."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_stopping or self.reserved < self.allowed or self._left() == 0)
            taken = 0 if self.is_stopping else min(wanted, self._left())
            self.reserved += taken
            return taken

    def settle(self, taken: int, *, written: int) -> None:
        """Give back what a transaction reserved and did not commit."""
        with self._changed:
            self.reserved += written - taken
            self.written += written
            self._changed.notify_all()

    def allow(self, rows: float) -> None:
        """Let writers go on to `rows` rows."""
        with self._changed:
            self.allowed = rows
            self._changed.notify_all()

    def stop(self) -> None:
        """Let every writer end with the transaction that it is in."""
        with self._changed:
            self.is_stopping = True
            self._changed.notify_all()

    def note(self, *, rolled_back: int = 0, undone: int = 0, error: str = "") -> None:
        """Count transactions and savepoints that were rolled back, and errors."""
        with self._changed:
            self.rolled_back += rolled_back
            self.undone += undone
            self.errors += bool(error)
            self.last_error = error or self.last_error

    def _left(self) -> int:
        return max(0, self.rows - self.reserved)


class Writers:
    """Threads that write until the budget is used up; `run` marks their records."""

    def __init__(self, table: WorkTable, *, rows: int, keys: int, writers: int, seed: int) -> None:
        self.budget = Budget(rows=rows)
        self._table = table
        self._keys = keys
        self._threads = [
            threading.Thread(target=self._work, args=[random.Random(f"{seed}/{n}"), n == 0], daemon=True)  # noqa: S311
            for n in range(writers)
        ]

    def start(self) -> None:
        """Start every writer."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let every writer end with the transaction that it is in."""
        self.budget.stop()
        for thread in self._threads:
            thread.join(timeout=LONG_TRANSACTION_S + 30)

    @property
    def is_done(self) -> bool:
        """Every writer has ended."""
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, rng: random.Random, has_long: bool) -> None:
        wait_s = LONG_TRANSACTION_S if has_long else None
        try:
            while taken := self.budget.take(rng.randint(1, KEYS_A_TRANSACTION * ROWS_A_KEY)):
                self._try(rng, taken, wait_s)
                wait_s = None
        finally:
            connections.close_all()

    def _try(self, rng: random.Random, taken: int, wait_s: float | None) -> None:
        written = 0
        try:
            written = self._transaction(rng, taken, wait_s)
        except _Undo:
            self.budget.note(rolled_back=1)
        except Error as error:  # the database went away: its tables say what was committed
            self.budget.note(error=f"{type(error).__name__}: {str(error).strip()[:200]}")
            connection.close()
            time.sleep(RETRY_WAIT_S)
        finally:
            self.budget.settle(taken, written=written)

    def _transaction(self, rng: random.Random, taken: int, wait_s: float | None) -> int:
        with transaction.atomic(), connection.cursor() as cursor:
            keys = rng.sample(range(self._keys), k=min(self._keys, rng.randint(1, KEYS_A_TRANSACTION)))
            counts = self._table.lock(cursor, sorted(keys))
            before = sum(counts.values())
            self._publish(rng, counts, taken)
            if rng.random() < SAVEPOINT_SHARE:
                self._savepoint(rng, counts)
            self._delay(rng, wait_s)
            _undo_some(rng, ROLLED_BACK_SHARE if wait_s is None else 0)
            self._table.store(cursor, counts)
            return sum(counts.values()) - before

    def _publish(self, rng: random.Random, counts: dict[int, int], rows: int) -> None:
        drafts = []
        keys = list(counts)
        for _ in range(rows):
            key = rng.choice(keys)
            counts[key] += 1
            drafts.append(self._draft(Row(key, counts[key])))
        publish_many(drafts)

    def _savepoint(self, rng: random.Random, counts: dict[int, int]) -> None:
        tried = dict(counts)
        try:
            with transaction.atomic():
                self._publish(rng, tried, rng.randint(1, ROWS_A_KEY))
                _undo_some(rng, SAVEPOINT_ROLLED_BACK_SHARE)
        except _Undo:
            self.budget.note(undone=1)
            return
        counts.update(tried)

    def _delay(self, rng: random.Random, wait_s: float | None) -> None:
        if wait_s is not None:
            time.sleep(wait_s)
        elif rng.random() < DELAYED_SHARE:
            time.sleep(rng.random() * DELAY_MOST_S)

    def _draft(self, row: Row) -> EventDraft:
        return EventDraft(
            topic=self._table.topic,
            key=row.key,
            type="check.row",
            payload=payload_of(self._table.run, row),
            headers={HEADER: self._table.run},
        )


def _undo_some(rng: random.Random, share: float) -> None:
    if rng.random() < share:
        raise _Undo
