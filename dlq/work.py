"""The shelf between the thread that owns the consumer and the threads that work: bounded, keyed, frontier-keeping.

Every method takes the one lock; none does I/O. A `Lot` is one assignment of one partition: work of a lot that is no
longer live may finish (its database commit is safe by its dedupe row), but moves no offset. Stored records (rows of
`dlq_waiting`) share the lanes with the delivered ones of their key; the database decides which goes first.
"""

import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from dlq.domain.frontier import Frontier
from dlq.domain.lanes import Lanes
from relay.types import CommitPoint, ConsumerRecord, PartitionRef


@dataclass(eq=False, slots=True)
class Lot:
    """One assignment of one partition."""

    place: PartitionRef
    frontier: Frontier = field(default_factory=Frontier)
    live: bool = True
    committed: int = -1
    records: int = 0
    bytes: int = 0


@dataclass(eq=False, slots=True)
class Job:
    """A record on its way to being finished: delivered, or stored: then `row` is its waiting row's number.

    `topic_id` of a stored one is the broker's id of its topic when it was delivered.

    `tries` in a row that could not even be noted. `held_by`: the handler whose breaker holds it. `to_store`: its bytes
    go to the database instead of a try.
    """

    record: ConsumerRecord
    lot: Lot
    lane: Hashable
    row: int | None = None
    topic_id: str | None = None
    tries: int = 0
    started_at: float = 0.0
    waits_for: str = ""
    held_by: str = ""
    is_full: bool = False
    to_store: bool = False


class Longest:
    """The longest of what was measured within the last minute or two, in seconds; times are on a monotonic clock."""

    def __init__(self) -> None:
        self._worst = (0.0, 0.0)
        self._turns_at = 0.0

    def note(self, now: float, took_s: float) -> None:
        """Measure one."""
        if now >= self._turns_at:
            self._worst = (0.0, self._worst[0])
            self._turns_at = now + 60
        self._worst = (max(self._worst[0], took_s), self._worst[1])

    @property
    def longest_s(self) -> float:
        """What it is now."""
        return max(self._worst)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfView:
    """What can be said of the shelf at one moment. `held` are keys that wait for another try, with why and how long.

    `longest_s`: the longest of those that run; `worst_s`: the longest that any took in the last minute or two.
    """

    partitions: int
    records: int
    in_flight: int
    longest_s: float
    worst_s: float
    held: Sequence[tuple[Job, float]]


class Shelf:
    """Delivered, unfinished work, at most `limit_records` and `limit_bytes` (one record is always let in)."""

    def __init__(self, limit_records: int, limit_bytes: int) -> None:
        self._limits = (limit_records, limit_bytes)
        self._lock = threading.Condition()
        self._lanes: Lanes[Job] = Lanes()
        self._lots: dict[PartitionRef, Lot] = {}
        self._jobs: set[Job] = set()
        self._running: set[Job] = set()
        self._held: dict[Job, float] = {}
        # Stored records that are here, and those that are not to be brought again before a time.
        self._rows: set[int] = set()
        self._resting: dict[int, float] = {}
        self._worst = Longest()
        self._closed = False

    # -- The owner's side --
    def open_lots(self, places: Collection[PartitionRef]) -> None:
        """Begin a lot for each assigned partition."""
        with self._lock:
            for place in places:
                self._lots[place] = Lot(place)

    def close_lots(self, places: Collection[PartitionRef]) -> None:
        """End the lots of these partitions: nothing of them moves an offset from here on."""
        with self._lock:
            for place in places:
                if (lot := self._lots.pop(place, None)) is not None:
                    lot.live = False
            self._drop(lambda job: job.lot.live)

    def drop_queued(self, places: Collection[PartitionRef]) -> None:
        """Forget what is queued of these partitions; what runs goes on, and still counts."""
        with self._lock:
            self._drop(lambda job: job.lot.place not in places)

    def drop_all_queued(self) -> None:
        """Forget everything that does not run."""
        with self._lock:
            self._drop(lambda _: False)

    def wait_in_flight(self, places: Collection[PartitionRef] | None, timeout_s: float) -> bool:
        """Wait until nothing of these partitions (None = of any) runs; False when time ran out."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._runs(places), timeout_s)

    def add(self, record: ConsumerRecord) -> bool:
        """Take a delivered record; False when its partition is not ours or it was delivered before."""
        with self._lock:
            lot = self._lots.get(record.place)
            if lot is None or not lot.frontier.deliver(record.offset, record.leader_epoch):
                return False
            lane = (record.place, record.offset if record.key is None else record.key)
            job = Job(record, lot, lane)
            self._jobs.add(job)
            lot.records += 1
            lot.bytes += record.size_bytes
            self._lanes.put(lane, job)
            self._lock.notify()
            return True

    def add_stored(self, row: int, record: ConsumerRecord, topic_id: str | None = None) -> bool:
        """Take a stored record; False when its partition is not ours or it is here already.

        Add a key's in order; they go before its delivered ones, which go behind them by the database's rule.
        """
        with self._lock:
            lot = self._lots.get(record.place)
            if lot is None or row in self._rows:
                return False
            lane = (record.place, record.offset if record.key is None else record.key)
            job = Job(record, lot, lane, row=row, topic_id=topic_id)
            self._rows.add(row)
            self._jobs.add(job)
            self._lanes.put_before(lane, job, lambda other: other.row is None)
            self._lock.notify()
            return True

    def stored_here(self) -> frozenset[int]:
        """The rows of stored records that are here or are to rest: not to be brought now."""
        now = time.monotonic()
        with self._lock:
            self._resting = {row: until for row, until in self._resting.items() if until > now}
            return frozenset(self._rows | self._resting.keys())

    def count_stored(self) -> int:
        """How many stored records are here."""
        with self._lock:
            return len(self._rows)

    def find_full(self) -> str:
        """Why a record is held that may not be stored, or ""."""
        with self._lock:
            return next((job.waits_for for job in self._held if job.is_full), "")

    def places(self) -> list[PartitionRef]:
        """The partitions that are ours."""
        with self._lock:
            return list(self._lots)

    def relieve(self, may_store: Callable[[Job], bool], spread: int) -> int:
        """Send waiting keys of crowded partitions to the database; how many.

        A partition is crowded when waiting keys fill half of its share, or hold its frontier `spread` records back.
        """
        with self._lock:
            crowded = [lot for lot in self._lots.values() if self._is_crowded(lot, spread)]
            jobs = [job for job in self._held if job.lot in crowded and self._may_relieve(job) and may_store(job)]
            for job in jobs:
                job.to_store = True
                self._lanes.wake(job.lane)
            self._lock.notify_all()
            return len(jobs)

    def wake(self, handlers: Collection[str]) -> None:
        """Let records run at once that were held by the breakers of these handlers."""
        with self._lock:
            for job in self._held:
                if job.held_by in handlers:
                    self._lanes.wake(job.lane)
            self._lock.notify_all()

    def is_full(self, place: PartitionRef) -> bool:
        """Whether fetching this partition has to pause: it holds its even share of the shelf.

        The share is a partition's own, so that the records of one, however many, leave room for the others'.
        """
        with self._lock:
            lot = self._lots.get(place)
            return lot is not None and self._fills(lot, 1.0)

    def has_room(self, place: PartitionRef) -> bool:
        """Whether fetching it may go on: half empty, so that pausing (which throws a prefetch away) stays rare."""
        with self._lock:
            lot = self._lots.get(place)
            return lot is not None and not self._fills(lot, 0.5)

    def _fills(self, lot: Lot, part: float) -> bool:
        """Whether a lot holds at least this part of its share (one record counts as room for one more)."""
        records, size = (limit / len(self._lots) * part for limit in self._limits)
        return lot.records >= max(1.0, records) or lot.bytes >= size

    def commit_points(self, places: Collection[PartitionRef] | None = None) -> dict[PartitionRef, CommitPoint]:
        """Return what may be committed and was not yet, for live lots (of `places`, or all)."""
        with self._lock:
            lots = [lot for lot in self._lots.values() if places is None or lot.place in places]
            points = {lot.place: lot.frontier.point for lot in lots}
            return {
                place: point
                for place, point in points.items()
                if point is not None and point.offset > self._lots[place].committed
            }

    def note_committed(self, points: Mapping[PartitionRef, CommitPoint]) -> None:
        """Remember what Kafka took."""
        with self._lock:
            for place, point in points.items():
                if (lot := self._lots.get(place)) is not None:
                    lot.committed = max(lot.committed, point.offset)

    def close(self) -> None:
        """Wake every worker to end."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    def view(self) -> ShelfView:
        """Describe the shelf."""
        now = time.monotonic()
        with self._lock:
            return ShelfView(
                partitions=len(self._lots),
                records=len(self._jobs),
                in_flight=len(self._running),
                longest_s=max((now - job.started_at for job in self._running), default=0.0),
                worst_s=self._worst.longest_s,
                held=[(job, max(0.0, due - now)) for job, due in self._held.items()],
            )

    def count_older(self, seconds: float) -> int:
        """How many records have been in a handler for longer than this."""
        now = time.monotonic()
        with self._lock:
            return sum(now - job.started_at > seconds for job in self._running)

    # -- The workers' side --
    def take(self) -> Job | None:
        """Wait for the next record that may run; None when the shelf is closed."""
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                taken = self._lanes.take(now)
                if taken is not None:
                    return self._start(taken[1], now)
                due = self._lanes.next_due()
                self._lock.wait(None if due is None else max(0.0, due - now))
            return None

    def finish(self, job: Job) -> None:
        """The record is applied, skipped, parked or stored, and that is committed."""
        with self._lock:
            self._stop(job)
            self._remove(job)
            if job.row is None:
                job.lot.frontier.finish(job.record.offset)
            self._lanes.done(job.lane)
            self._lock.notify_all()

    def put_back(self, job: Job, after_s: float, why: str, *, held_by: str = "", is_full: bool = False) -> None:
        """The record waits for another try, and its key with it. A stored one leaves; it is brought when it is due."""
        with self._lock:
            self._stop(job)
            job.to_store = False
            if job.row is not None or job not in self._jobs or not job.lot.live:
                self._leave(job, after_s)
            else:
                job.waits_for, job.held_by, job.is_full = why, held_by, is_full
                self._held[job] = time.monotonic() + after_s
                self._lanes.put_back(job.lane, job, self._held[job], lambda other: other.row is not None)
            self._lock.notify_all()

    # -- Under the lock --
    def _leave(self, job: Job, after_s: float) -> None:
        self._remove(job)
        self._lanes.done(job.lane)
        if job.row is not None:
            self._resting[job.row] = time.monotonic() + after_s

    def _may_relieve(self, job: Job) -> bool:
        return job.row is None and not job.is_full and not job.to_store

    def _is_crowded(self, lot: Lot, spread: int) -> bool:
        if lot.frontier.spread > spread:
            return True
        if not self._fills(lot, 0.5):
            return False
        waiting = [job for held in self._held if held.lot is lot for job in self._lanes.items(held.lane)]
        records, size = (limit / len(self._lots) / 2 for limit in self._limits)
        return len(waiting) >= max(1.0, records) or sum(job.record.size_bytes for job in waiting) >= size

    def _start(self, job: Job, now: float) -> Job:
        self._held.pop(job, None)
        job.started_at = now
        self._running.add(job)
        return job

    def _stop(self, job: Job) -> None:
        now = time.monotonic()
        self._worst.note(now, now - job.started_at)
        self._running.discard(job)

    def _runs(self, places: Collection[PartitionRef] | None) -> bool:
        return any(places is None or job.lot.place in places for job in self._running)

    def _remove(self, job: Job) -> None:
        if job not in self._jobs:
            return
        self._jobs.discard(job)
        if job.row is not None:
            self._rows.discard(job.row)
            return
        job.lot.records -= 1
        job.lot.bytes -= job.record.size_bytes

    def _drop(self, keep: Callable[[Job], bool]) -> None:
        self._lanes.drop(keep)
        for job in [job for job in self._jobs if job not in self._running and not keep(job)]:
            self._held.pop(job, None)
            self._remove(job)
        self._lock.notify_all()
