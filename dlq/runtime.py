"""Run one consumer group in this process.

Threads: the owner (the caller of `run_group`) polls, pauses and commits and never waits for a handler or the
database; workers handle records; the clerk keeps books; the keeper brings policies, breakers and stored records; the
watch ends late handlers; the heartbeat says what goes on. An offset is committed only up to the frontier, after the
database commit of everything before it.
"""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from queue import Empty
from typing import assert_never

import structlog
from django.conf import settings
from django.db import connection

from dlq.attempts import Applied, Attempts, Delivery, Duplicate, Held, Ignored, Outcome, Parked, Retry, Stored
from dlq.breaker import BreakerBook
from dlq.clerk import Clerk
from dlq.domain.start import Anew, Chosen, Lost, Start
from dlq.handlers import Routes, find_clashes
from dlq.keeper import Keeper
from dlq.policies import PolicyBook
from dlq.pool import Permits
from dlq.replay.executor import Executor
from dlq.work import Job, Longest, Shelf, ShelfView
from relay.facade import HeartbeatThread, label_key, open_consumer, process_name
from relay.types import CommitPoint, ConsumerProblem, ConsumerRecord, OffsetMissing, PartitionRef, Role

log = structlog.get_logger(__name__)

_BACKOFF_DOUBLINGS = 16


class ConsumerDied(Exception):
    """The consumer cannot go on in this process; the text says why. A supervisor starts it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run: worker threads, and the name in heartbeats."""

    concurrency: int
    name: str


def run_group(
    group: str, *, stop: threading.Event, concurrency: int | None = None, name: str | None = None
) -> Mapping[str, int]:
    """Consume `group` until `stop` is set, then finish what runs within `CONSUMER_STOP_WITHIN_S`.

    Returns:
        How many records were applied, deduplicated, ignored, parked and put back.

    Raises:
        UnknownGroup: no handler is registered for `group`.
        ValueError: handlers clash, or `concurrency` is below 1.
        ConsumerConfigError: the Kafka settings cannot work.
        ConsumerDied: a fatal error of the client, or too many stuck handlers.
    """
    options = RunOptions(
        concurrency=concurrency if concurrency is not None else settings.CONSUMER_CONCURRENCY,
        name=name or process_name(Role.CONSUMER),
    )
    if options.concurrency < 1:
        raise ValueError(f"concurrency is {options.concurrency}; it must be at least 1 thread")
    clashes = find_clashes()
    if clashes:
        raise ValueError("; ".join(clashes))
    return GroupRun(group, Routes(group), options, stop).run()


class GroupRun:
    """One run; the owner's thread calls `run`. It is the consumer's listener: callbacks come inside `poll`."""

    def __init__(self, group: str, routes: Routes, options: RunOptions, stop: threading.Event) -> None:
        self._group = group
        self._options = options
        self._stop = stop
        self._shelf = Shelf(settings.CONSUMER_BUFFER_RECORDS, settings.CONSUMER_BUFFER_BYTES)
        self._ours: set[PartitionRef] = set()
        self._starting: set[PartitionRef] = set()
        self._lost: set[PartitionRef] = set()
        self._paused: set[PartitionRef] = set()
        self._problem = ""
        self._resting = ""
        self._next_commit_at = 0.0
        self._commit_answer_by = 0.0
        self._polls = Longest()
        self._polled_at = time.monotonic()
        self._tally: Counter[str] = Counter()
        self._tally_lock = threading.Lock()
        self._consumer = open_consumer(group, routes.topics, self, client_id=options.name)
        self._routes = routes
        self._breakers = BreakerBook(group)
        policies = PolicyBook(group)
        self._attempts = Attempts(group, routes, self._consumer.topic_id, policies=policies, breakers=self._breakers)
        self._clerk = Clerk(group, options.name, self._consumer)
        self._keeper = Keeper(
            group,
            options.name,
            self._shelf,
            self._attempts,
            policies=policies,
            breakers=self._breakers,
            may_store=self._may_store,
        )
        self._permits = Permits(options.concurrency)
        self._replays = Executor(
            group,
            options.name,
            self._attempts,
            permits=self._permits,
            threads=options.concurrency,
            may_run=lambda: self._clerk.looked.is_set() and not self._clerk.stopped_words,
            announce=self._clerk.hints.parked.set,
        )
        self._heartbeat = HeartbeatThread(Role.CONSUMER, options.name, self.describe)
        self._workers = [
            threading.Thread(target=self._work, args=(slot,), name=f"worker-{slot}", daemon=True)
            for slot in range(options.concurrency)
        ]

    def run(self) -> Mapping[str, int]:
        """Start the threads, own the consumer until told to stop, then leave the group."""
        for thread in (self._clerk, self._keeper, self._attempts.watch, self._heartbeat, *self._workers):
            thread.start()
        # A group that a person stopped is not read for a moment first: no poll before the switch was looked at, nor
        # before policies and breakers were read.
        self._clerk.looked.wait(settings.CONSUMER_SWITCH_WAIT_S)
        self._keeper.looked.wait(settings.CONSUMER_SWITCH_WAIT_S)
        self._replays.start()
        try:
            while not self._stop.is_set():
                self._turn()
        finally:
            self._end()
        return dict(self._tally)

    # -- The owner's loop --
    def _turn(self) -> None:
        now = time.monotonic()
        self._polls.note(now, now - self._polled_at)
        self._polled_at = now
        self._obey_switch()
        self._poll_batch()
        self._settle_starts()
        self._resume_where_room()
        self._commit_if_due()
        self._check_stuck()

    def _obey_switch(self) -> None:
        """Leave the group while a person wants it stopped; the process goes on polling and joins again when told."""
        wanted = self._clerk.stopped_words
        if bool(wanted) != bool(self._resting):
            log.info("consumer.switched", group=self._group, stopped=bool(wanted))
            (self._consumer.leave if wanted else self._consumer.join)()
        self._resting = wanted

    def _poll_batch(self) -> None:
        timeout_s = (settings.CONSUMER_PAUSED_POLL_MS if self._paused else settings.CONSUMER_POLL_MS) / 1000
        for _ in range(settings.CONSUMER_BATCH_RECORDS):
            polled = self._consumer.poll(timeout_s)
            timeout_s = 0.0
            if polled is None:
                return
            self._take(polled)

    def _take(self, polled: ConsumerRecord | OffsetMissing | ConsumerProblem) -> None:
        match polled:
            case ConsumerRecord():
                self._problem = ""
                self._shelf.add(polled)
                self._pause_if_full([polled.place])
            case OffsetMissing(place=place):
                if place not in self._starting | self._lost:  # else it is being decided
                    self._starting.add(place)
                    self._clerk.decide(polled)
            case ConsumerProblem(fatal=True):
                raise ConsumerDied(f"the Kafka client gave up: {polled.text} ({polled.code})")
            case ConsumerProblem():
                self._problem = f"{polled.code}: {polled.text}"
                log.warning("consumer.problem", group=self._group, code=polled.code, error=polled.text)
            case _:
                assert_never(polled)

    def _settle_starts(self) -> None:
        """Act on the clerk's decisions: start the partition, or leave it stopped."""
        while True:
            try:
                missing, decision = self._clerk.decisions.get_nowait()
            except Empty:
                return
            if isinstance(decision, Anew):
                self._begin_anew(missing.place)
                continue
            if isinstance(decision, Chosen):
                self._go_on_at(missing.place, decision.offset)
                continue
            if missing.place not in self._starting:
                continue  # it was revoked meanwhile, and asks again if it still has no offset
            self._starting.discard(missing.place)
            match decision:
                case Lost():
                    self._lost.add(missing.place)
                case Start(offset=offset):
                    self._start_at(missing.place, offset)
                case _:
                    assert_never(decision)

    def _go_on_at(self, place: PartitionRef, offset: int) -> None:
        """Start a partition that stopped after a loss where a person chose; the group's offset goes there at once."""
        if place not in self._lost:
            return  # let go meanwhile: whoever has it asks again
        self._lost.discard(place)
        self._start_at(place, offset)
        self._consumer.commit_soon({place: CommitPoint(offset=offset)})

    def _begin_anew(self, place: PartitionRef) -> None:
        """Read a topic that was made anew from its beginning; what runs of the old one moves no offset."""
        if place not in self._ours:
            return
        self._forget([place])
        self._shelf.close_lots([place])
        self._shelf.open_lots([place])
        self._start_at(place, None)
        self._clerk.note_begun_anew(place)

    def _pause_if_full(self, places: Collection[PartitionRef]) -> None:
        """Pause fetching partitions that hold their share of the shelf; polling goes on."""
        full = [place for place in places if place not in self._paused and self._shelf.is_full(place)]
        if full:
            self._paused.update(full)
            self._consumer.pause(full)

    def _resume_where_room(self) -> None:
        room = [place for place in self._paused if self._shelf.has_room(place)]
        if room:
            self._paused.difference_update(room)
            self._consumer.resume(room)

    def _start_at(self, place: PartitionRef, offset: int | None) -> None:
        """Begin to fetch at an offset (None = the first); the client forgets a pause by that."""
        self._consumer.start_at(place, offset)
        self._paused.discard(place)
        self._pause_if_full([place])

    def _commit_if_due(self) -> None:
        now = time.monotonic()
        if now < self._next_commit_at or now < self._commit_answer_by:
            return
        self._next_commit_at = now + settings.CONSUMER_COMMIT_EVERY_MS / 1000
        points = self._shelf.commit_points()
        if points:
            self._commit_answer_by = now + settings.CONSUMER_COMMIT_ANSWER_S
            self._consumer.commit_soon(points)

    def _check_stuck(self) -> None:
        stuck = self._shelf.count_older(settings.HANDLER_DEADLINE_S + settings.HANDLER_STUCK_GRACE_S)
        limit = min(self._options.concurrency, settings.HANDLER_STUCK_THREADS)
        if stuck >= limit:
            raise ConsumerDied(
                f"{stuck} handlers have not returned {settings.HANDLER_STUCK_GRACE_S} s after their deadline of"
                f" {settings.HANDLER_DEADLINE_S} s; a thread cannot be stopped, so the process ends"
            )

    def _end(self) -> None:
        """Stop within the bound: let running handlers finish, commit, leave."""
        until = time.monotonic() + settings.CONSUMER_STOP_WITHIN_S
        self._replays.end(0)
        self._shelf.drop_all_queued()
        if not self._shelf.wait_in_flight(None, settings.CONSUMER_STOP_WITHIN_S * 0.6):
            log.warning("consumer.stopped_while_handling", group=self._group)
        self._shelf.close()
        self._keeper.stop()
        self._attempts.watch.stop()
        self._replays.end(max(0.5, until - time.monotonic()))
        self._leave(max(0.5, until - time.monotonic()))
        self._clerk.end(max(0.5, until - time.monotonic()))
        self._heartbeat.stop()

    def _leave(self, timeout_s: float) -> None:
        """Leave the group; with the broker away that has no end of its own, so it gets one here."""
        leaving = threading.Thread(target=self._consumer.close, name="leave", daemon=True)
        leaving.start()
        leaving.join(timeout_s)
        if leaving.is_alive():
            log.warning("consumer.left_without_answer", group=self._group)

    # -- Callbacks of the consumer, in the owner's thread --
    def on_assigned(self, places: Sequence[PartitionRef]) -> None:
        """Begin to keep frontiers; everything assigned is unpaused. Shares shrink, so others may be full now."""
        self._problem = ""
        self._ours.update(places)
        self._forget(places)
        self._clerk.note_assigned(places)
        self._shelf.open_lots(places)
        self._pause_if_full(self._ours)

    def on_revoked(self, places: Sequence[PartitionRef]) -> None:
        """Let what runs finish for a moment, commit what is done, let go."""
        self._shelf.drop_queued(places)
        self._shelf.wait_in_flight(places, settings.CONSUMER_REVOKE_WAIT_S)
        points = self._shelf.commit_points(places)
        if points:
            self._consumer.commit_soon(points)
        self._let_go(places)

    def on_lost(self, places: Sequence[PartitionRef]) -> None:
        """They are somebody else's: forget them, commit nothing."""
        log.warning("consumer.partitions_lost", group=self._group, partitions=[str(place) for place in places])
        self._let_go(places)

    def on_committed(self, offsets: Mapping[PartitionRef, CommitPoint], error: str | None) -> None:
        """Note what Kafka took; what it refused is offered again with the next commit, if it is still ours."""
        self._commit_answer_by = 0.0
        if error is not None:
            log.info("consumer.commit_refused", group=self._group, error=error)
            return
        self._problem = ""
        self._shelf.note_committed(offsets)
        self._clerk.note_committed(offsets)

    def on_trouble(self, code: str, text: str) -> None:
        """Show it until something works again."""
        self._problem = f"{code}: {text}"

    def _let_go(self, places: Sequence[PartitionRef]) -> None:
        self._ours.difference_update(places)
        self._forget(places)
        self._shelf.close_lots(places)
        self._clerk.note_let_go(places)

    def _forget(self, places: Sequence[PartitionRef]) -> None:
        self._starting.difference_update(places)
        self._lost.difference_update(places)
        self._paused.difference_update(places)

    # -- Workers --
    def _work(self, slot: int) -> None:
        try:
            while (job := self._shelf.take()) is not None:
                delivery = Delivery(
                    record=job.record,
                    slot=slot,
                    is_stored=job.row is not None,
                    topic_id=job.topic_id,
                    to_store=job.to_store,
                )
                with self._permits:
                    outcome = self._attempts.work(delivery)
                self._settle(job, outcome)
        finally:
            connection.close()

    def _settle(self, job: Job, outcome: Outcome) -> None:
        with self._tally_lock:
            self._tally[type(outcome).__name__.lower()] += 1
        match outcome:
            case Retry(reason=reason, after_s=after_s):
                job.tries = job.tries + 1 if after_s is None else 0
                wait_s = _backoff_s(job.tries) if after_s is None else after_s
                self._log_retry(job, reason, wait_s)
                self._shelf.put_back(job, wait_s, reason)
                return
            case Held(reason=reason, after_s=after_s, handler=handler, is_full=is_full):
                self._shelf.put_back(job, after_s, reason, held_by=handler, is_full=is_full)
                return
            case Applied():
                self._clerk.hints.applied.set()
            case Parked():
                self._clerk.hints.parked.set()
            case Duplicate() | Ignored() | Stored():
                pass
            case _:
                assert_never(outcome)
        self._shelf.finish(job)

    def _may_store(self, job: Job) -> bool:
        """A record that only waits for its breaker is stored when another handler has records on its topic."""
        return not job.held_by or self._routes.count_handlers(job.record.place.topic) > 1

    def _log_retry(self, job: Job, reason: str, wait_s: float) -> None:
        log.info(
            "consumer.retry",
            group=self._group,
            partition=str(job.record.place),
            offset=job.record.offset,
            error=reason,
            wait_s=round(wait_s, 1),
        )

    # -- Heartbeat --
    def describe(self) -> tuple[str, Mapping[str, str]]:
        """Say what this process does, for the System page."""
        view = self._shelf.view()
        overdue = self._shelf.count_older(settings.HANDLER_DEADLINE_S)
        tally = self._tally
        facts = {
            "group": self._group,
            "partitions": str(len(self._ours)),
            "in flight": str(view.in_flight),
            "queued": str(view.records - view.in_flight),
            "applied": str(tally["applied"]),
            "deduplicated": str(tally["duplicate"]),
            "parked": str(tally["parked"]),
            "ignored": str(tally["ignored"]),
            "replayed": str(sum(self._replays.tally().values())),
            "retried": str(tally["retry"]),
            "stored": str(tally["stored"]),
            "longest handler s": f"{view.longest_s:.1f}",
            "past deadline": str(overdue),
            "ended at deadline": str(self._attempts.watch.late),
            **self._describe_time(view),
        }
        return self._doing(view, overdue), facts

    def _describe_time(self, view: ShelfView) -> Mapping[str, str]:
        """Tell batch time against the poll interval, and how long there was no poll."""
        limit_s = settings.CONSUMER_MAX_POLL_INTERVAL_MS / 1000
        worst_s = max(view.worst_s, view.longest_s)
        batch = min(view.records, settings.CONSUMER_BATCH_RECORDS)
        return {
            "worst handler s": f"{worst_s:.1f}",
            "batch time s": f"{batch} x {worst_s:.1f} = {batch * worst_s:.0f}",
            "longest without poll s": f"{self._polls.longest_s:.1f} of {limit_s:.0f}",
        }

    def _doing(self, view: ShelfView, overdue: int) -> str:
        parts = []
        if self._lost:
            parts.append(f"stopped on {', '.join(sorted(str(place) for place in self._lost))}: data loss")
        if overdue:
            parts.append(f"{overdue} handlers past their deadline")
        parts.extend(
            f"{handler} is held, probing in {self._breakers.probe_in_s(handler):.0f} s"
            for handler in self._breakers.open_handlers()
        )
        if view.held:
            parts.append(_describe_held(view))
        if self._problem:
            parts.append(self._problem)
        if self._resting:
            parts.append(self._resting)
        elif not self._ours:
            parts.append("waiting for partitions")
        return "; ".join(parts) or ("handling" if view.in_flight else "waiting for records")


def _describe_held(view: ShelfView) -> str:
    job, wait_s = min(view.held, key=lambda held: (held[0].record.place, held[0].record.offset))
    more = f" and {len(view.held) - 1} more" if len(view.held) > 1 else ""
    until = datetime.now(UTC) + timedelta(seconds=wait_s)
    return f"held by {label_key(job.record.key)}{more} until {until:%H:%M:%S} UTC after {job.waits_for}"


def _backoff_s(tries: int) -> float:
    """Return how long to wait while the database or the broker is away: base x 2^n to a limit, jittered by a fifth."""
    base_s = min(settings.CONSUMER_RETRY_BASE_S, settings.CONSUMER_OUTAGE_BASE_S)
    doubled: float = base_s * 2 ** min(tries - 1, _BACKOFF_DOUBLINGS)
    return float(min(doubled, settings.CONSUMER_OUTAGE_LIMIT_S)) * (0.8 + secrets.randbelow(400) / 1000)
