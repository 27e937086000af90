"""Works replays in a consumer process: takes items of its group's jobs and sends them through their handlers.

Threads: the executor itself only talks to the database (take, renew, give back); its workers run handlers, each item in
one transaction (`dlq.replay.working`). What a killed process had taken goes back into the queue when its lease ends.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import assert_never
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import connection, transaction

from dlq.attempts import Applied, Attempts, Duplicate, Failed, Held, Ignored, ReplayOutcome, Retry, read_scene
from dlq.domain.failure import describe_failure
from dlq.pool import Permits
from dlq.quarantine import close_relieved
from dlq.replay.leasing import Taken, give_back, renew_leases, settle_left, take_items
from dlq.replay.selecting import forget_old_previews
from dlq.replay.sending import send_item
from dlq.replay.stored import StoredLetter, load_records, load_small_records
from dlq.replay.working import ItemStep, skip_gone
from dlq.types import FailureClass, ReplayMode
from relay.facade import PublishError, run_if_due

log = structlog.get_logger(__name__)

_REST_S = 1.0
_MODES = (ReplayMode.HANDLER, ReplayMode.TOPIC)


class Executor(threading.Thread):
    """One a consumer process. `permits` are shared with the workers of live records.

    `may_run` says whether the group is to work; `announce` is told that something changed.
    """

    def __init__(
        self,
        group: str,
        name: str,
        attempts: Attempts,
        *,
        permits: Permits,
        threads: int,
        may_run: Callable[[], bool],
        announce: Callable[[], None],
    ) -> None:
        super().__init__(name="replays", daemon=True)
        self._group = group
        self._process = name
        self._attempts = attempts
        self._permits = permits
        self._may_run = may_run
        self._announce = announce
        self._token = uuid4()
        self._lock = threading.Condition()
        self._queue: deque[Taken] = deque()
        self._held: dict[tuple[object, int], Taken] = {}
        self._letters: dict[UUID, StoredLetter] = {}
        self._tally: Counter[str] = Counter()
        self._ended = False
        self._resting_until = 0.0
        self._next_renewal_at = 0.0
        self._next_sweep_at = 0.0
        self._scene = read_scene()
        self._workers = [
            threading.Thread(target=self._work, args=(slot,), name=f"replay-{slot}", daemon=True)
            for slot in range(threads)
        ]

    # -- Asked by the runtime ------------------------------------------------------------------------------
    def end(self, timeout_s: float) -> None:
        """Take no more, give back what was not begun, and wait for what runs, at most so long."""
        with self._lock:
            self._ended = True
            self._lock.notify_all()
        until = time.monotonic() + timeout_s
        for thread in (self, *self._workers):
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))

    def tally(self) -> Mapping[str, int]:
        """How many items ended how in this process."""
        with self._lock:
            return dict(self._tally)

    # -- The executor's thread -----------------------------------------------------------------------------
    def run(self) -> None:
        """Take and renew until ended."""
        for worker in self._workers:
            worker.start()
        try:
            while not self._ended:
                self._wait(self._turn())
            self._return_queued()
        except Exception as error:  # noqa: BLE001 - ending: the leases run out by themselves
            log.warning("replays.not_given_back", group=self._group, error=type(error).__name__)
        finally:
            connection.close()

    def _turn(self) -> float:
        """Do what is due; how many seconds nothing is."""
        try:
            self._renew_if_due()
            self._sweep_if_due()
            is_due = self._take()
        except Exception as error:  # noqa: BLE001 - the loop's edge: the database is away, or a turn is tried again
            log.warning("replays.turn_failed", group=self._group, error=type(error).__name__)
            connection.close()
            return _REST_S
        return settings.REPLAY_BUSY_LOOK_MS / 1000 if is_due else settings.REPLAY_LOOK_EVERY_MS / 1000

    def _take(self) -> bool:
        """Fill the queue from the jobs that are due; False when none is."""
        if time.monotonic() < self._resting_until or not self._may_run():
            return False
        is_due = False
        for mode in _MODES:
            with self._lock:
                room = settings.REPLAY_BATCH_ITEMS - len(self._held)
            taken = take_items(self._group, mode, token=self._token, by=self._process, most=max(0, room))
            is_due = is_due or taken is not None
            letters = load_small_records([item.letter_id for item in taken]) if taken else {}
            with self._lock:
                self._letters.update(letters)
                self._held.update({(item.job_id, item.number): item for item in taken or ()})
                self._queue.extend(taken or ())
                self._lock.notify_all()
        return is_due

    def _wait(self, seconds: float) -> None:
        """Wait a moment, at most until few items are left to work."""
        with self._lock:
            low = settings.REPLAY_BATCH_ITEMS // 4
            was_low = len(self._held) <= low
            self._lock.wait_for(lambda: self._ended or (not was_low and len(self._held) <= low), seconds)

    def _renew_if_due(self) -> None:
        if time.monotonic() < self._next_renewal_at:
            return
        self._next_renewal_at = time.monotonic() + settings.REPLAY_RENEW_EVERY_S
        with self._lock:
            jobs = {item.job_id for item in self._held.values()}
        if jobs:
            renew_leases(self._token, sorted(jobs))

    def _sweep_if_due(self) -> None:
        if time.monotonic() < self._next_sweep_at:
            return
        self._next_sweep_at = time.monotonic() + settings.REPLAY_LEASE_S
        settle_left()
        close_relieved(self._group)
        run_if_due(
            "dlq.forget_previews",
            every_s=settings.DLQ_BUCKET_SWEEP_EVERY_S,
            runner=self._process,
            job=forget_old_previews,
        )

    def _return_queued(self) -> None:
        with self._lock:
            queued = list(self._queue)
            self._queue.clear()
        if queued:
            give_back(queued, self._token)

    # -- Workers -------------------------------------------------------------------------------------------
    def _work(self, slot: int) -> None:
        try:
            while (item := self._next()) is not None:
                self._work_on(item, slot)
        finally:
            connection.close()

    def _next(self) -> Taken | None:
        with self._lock:
            self._lock.wait_for(lambda: self._ended or bool(self._queue))
            return None if self._ended else self._queue.popleft()

    def _work_on(self, item: Taken, slot: int) -> None:
        word = "put back"
        try:
            word = self._replay(item, slot)
            if word == "put back":
                give_back([item], self._token)
        except Exception as error:  # noqa: BLE001 - the worker's edge: the lease runs out, and the item is taken again
            log.warning("replays.item_failed", group=self._group, error=type(error).__name__)
            connection.close()
            self._rest(_REST_S)
        finally:
            with self._lock:
                self._held.pop((item.job_id, item.number), None)
                self._tally[word] += 1
                self._lock.notify_all()
        self._announce()

    def _replay(self, item: Taken, slot: int) -> str:
        with self._lock:
            letter = self._letters.pop(item.letter_id, None)
        letter = letter or load_records([item.letter_id]).get(item.letter_id)
        if letter is None:
            skip_gone(item, slot)
            return "skipped"
        step = ItemStep(item, slot)
        if item.mode is ReplayMode.TOPIC:
            return self._send(item, letter, step)
        with self._permits:
            outcome = self._attempts.replay(
                letter.record, step, topic_id=letter.topic_id, slot=slot, attempt=letter.attempts + 1
            )
        if isinstance(outcome, Held | Retry):
            self._rest(min(max(outcome.after_s or 0.0, _REST_S), settings.REPLAY_REST_MAX_S))
            return "put back"
        return _word(outcome)

    def _send(self, item: Taken, letter: StoredLetter, step: ItemStep) -> str:
        try:
            send_item(item, letter, step)
        except PublishError as error:
            failure = describe_failure(
                error,
                handler="",
                attempts=letter.attempts + 1,
                scene=self._scene,
                fixed_text=str(error),
                failure_class=FailureClass.PERMANENT,
            )
            with transaction.atomic(), connection.cursor() as cursor:
                if step.begin(cursor):
                    step.settle(cursor, Failed(failure))
            return "failed again"
        return "sent"

    def _rest(self, seconds: float) -> None:
        """The database or what the handlers need is away: take nothing for a while, and give the rest back."""
        with self._lock:
            self._resting_until = max(self._resting_until, time.monotonic() + seconds)
            queued = list(self._queue)
            self._queue.clear()
            for item in queued:
                self._held.pop((item.job_id, item.number), None)
                self._letters.pop(item.letter_id, None)
        if queued:
            try:
                give_back(queued, self._token)
            except Exception as error:  # noqa: BLE001 - the leases run out by themselves
                log.warning("replays.not_given_back", group=self._group, error=type(error).__name__)
                connection.close()


def _word(outcome: ReplayOutcome | None) -> str:
    match outcome:
        case Applied():
            return "applied"
        case Duplicate():
            return "deduplicated"
        case Failed():
            return "failed again"
        case Ignored() | None:
            return "skipped"
        case _:
            assert_never(outcome)
