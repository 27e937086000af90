"""Work on one record: lock its key, look what is known of it, handle, then keep the result, wait or park.

The order of things (I4): key's lock -> what waits and what is quarantined -> dedupe row -> handler -> result -> commit,
in one transaction; a failure rolls the effect back to a savepoint, and the same transaction notes the wait or parks.
Runs in worker threads. Nothing here moves an offset.

What happens after the handler's savepoint (the commit itself, hooks that run on commit) is never counted as a failure
of the record: it may have been committed, and the dedupe row of the next attempt knows.

A handler that breaks the transaction it was lent (closes the connection, ends the transaction, leaves a block open),
or whose session was ended, is dealt with in a transaction of its own, on a new connection.
"""

import secrets
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.utils import timezone

from dlq import quarantine, retrying, services
from dlq.attempt_log import Tried, note_attempt
from dlq.breaker import BreakerBook, Wait
from dlq.deadlines import Ticket, Watch
from dlq.domain.classify import classify, name_class, retry_after_s
from dlq.domain.envelope import Envelope, Undecodable, find_event_id, find_event_type, read_envelope, read_event
from dlq.domain.failure import Failure, Scene, describe_failure
from dlq.domain.policy import RetryPolicy
from dlq.domain.quarantine import lane_of
from dlq.domain.retrying import (
    Facts,
    GiveUp,
    Spent,
    Step,
    TryAgain,
    decide_after_failure,
    is_spent,
    next_step,
    waits_for_ever,
)
from dlq.handlers import HandlerSpec, Routes, Tx
from dlq.key_queue import lock_lane
from dlq.policies import PolicyBook
from dlq.retrying import Found, Subject
from dlq.types import AttemptOutcome, FailureClass, Ordering, Result
from relay.types import ConsumerRecord

log = structlog.get_logger(__name__)

_TRANSACTION_TIMEOUT_SINCE = 170_000
_DUE_SLACK_S = 0.05


class DeadlinePassed(TimeoutError):
    """The handler came back after its deadline: its effect is not committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A record to work on. `is_stored`: it comes from the waiting rows, and `topic_id` with it.

    `to_store`: put it there instead of trying.
    """

    record: ConsumerRecord
    slot: int
    is_stored: bool = False
    topic_id: str | None = None
    to_store: bool = False


# -- Outcomes ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Applied:
    """The effect is committed."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The group had applied this event before; counted."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """No handler of the group names this event type; nothing was written."""


@dataclass(frozen=True, slots=True)
class Parked:
    """It is a dead letter now, or was one already."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Its bytes wait in the database: its offset may move on."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A try failed and the record waits: its key with it, its offset stays.

    `after_s` None: nothing could be written (the database or the broker is away), so nothing is spent either.
    """

    reason: str
    after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """It was not tried and waits: it is not due, the breaker of `handler` is open, or no more may wait (`is_full`)."""

    reason: str
    after_s: float
    handler: str = ""
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """A replayed record failed; what becomes of it is the replay's to say. `asked_s`: what the failing side asked."""

    failure: Failure
    asked_s: float | None = None


Outcome = Applied | Duplicate | Ignored | Parked | Stored | Retry | Held
_DECIDED: Mapping[Step, Outcome | None] = {Step.TRY: None, Step.PASS: Duplicate(), Step.LEAVE: Stored()}
ReplayOutcome = Applied | Duplicate | Ignored | Failed


class ReplayStep(Protocol):
    """What a replay does around the attempt, in its transaction and under the key's lock."""

    def begin(self, cursor: Any) -> bool:
        """Check that the item is still to be replayed by us; False = leave it alone."""

    def settle(self, cursor: Any, outcome: ReplayOutcome) -> None:
        """Write what came of it; the effect commits with it, or not at all."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """An attempt's error, judged. `at_once`: no policy makes it wait."""

    what: Failure
    asked_s: float | None
    at_once: bool = False


class TransactionAbused(Exception):
    """The handler broke the transaction that it was lent; its text is fixed."""


class _Broken(Exception):
    """Carries a failure out of a transaction that can no longer be used."""

    def __init__(self, failure: _Failure) -> None:
        super().__init__(failure.what.error_class)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A record with all that is known before its transaction. `spec` None: it is no event, and `broken` says why."""

    subject: Subject
    policy: RetryPolicy
    slot: int
    envelope: Envelope | None = None
    spec: HandlerSpec | None = None
    broken: Undecodable | None = None
    probe: UUID | None = None

    @property
    def handler(self) -> str:
        """The handler's name, "" without one."""
        return self.subject.handler

    @property
    def is_keyed(self) -> bool:
        """Whether it has an order to keep."""
        return self.subject.lane is not None


class Attempts:
    """Works records of one group; one instance a process, called from its worker threads."""

    def __init__(
        self,
        group: str,
        routes: Routes,
        ask: Callable[[str], str | None],
        *,
        policies: PolicyBook,
        breakers: BreakerBook,
    ) -> None:
        """`ask` returns the broker's id of a topic and may raise when the broker is away."""
        self._group = group
        self._routes = routes
        self._ask_topic_id = ask
        self._policies = policies
        self._breakers = breakers
        self._scene = read_scene()
        self.watch: Watch[Task, Outcome] = Watch(self._count_late)
        self.is_room_full = False

    def work(self, delivery: Delivery) -> Outcome:
        """Finish the record, or say why it has to wait. Never raises."""
        try:
            return self._work(delivery)
        except quarantine.QuarantineFull as full:
            _report(full)
            return Held(str(full), settings.CONSUMER_FULL_RETRY_S, is_full=True)
        except retrying.WaitingFull as full:
            return Held(str(full), settings.CONSUMER_FULL_RETRY_S, is_full=True)
        except BaseException as error:  # noqa: BLE001 - also a hook that calls sys.exit(): the record waits
            _drop_unusable_connection()
            return Retry(name_class(error), retry_after_s(error))

    def _work(self, delivery: Delivery) -> Outcome:
        topic_id = delivery.topic_id if delivery.is_stored else self._ask_topic_id(delivery.record.place.topic)
        task = self._prepare(delivery.record, delivery.slot, topic_id)
        if task is None:
            return self._pass_over(delivery) if delivery.is_stored else Ignored()
        if task.spec is None or delivery.to_store:
            return self._attempt(task, delivery)
        with self._gate(task) as gated:
            if isinstance(gated, Wait):
                return Held("its breaker is open", gated.after_s, handler=task.handler)
            return self._attempt(gated, delivery)

    def _prepare(self, record: ConsumerRecord, slot: int, topic_id: str | None) -> Task | None:
        """Read the record; None when no handler of the group names its type."""
        try:
            envelope, broken = read_envelope(record), None
        except Undecodable as error:
            envelope, broken = None, error
        spec = self._routes.find(record.place.topic, envelope.event_type) if envelope else None
        if spec is None and broken is None:
            return None
        subject = self._subject(record, topic_id, handler=spec.name if spec else "", envelope=envelope)
        return Task(
            subject=subject,
            policy=self._policies.find(record.place.topic, subject.event_type),
            slot=slot,
            envelope=envelope,
            spec=spec,
            broken=broken,
        )

    @contextmanager
    def _gate(self, task: Task) -> Iterator[Task | Wait]:
        """Let the task pass the breaker of its handler; a probe that told nothing is given back."""
        asked = self._breakers.ask(task.handler)
        if isinstance(asked, Wait):
            yield asked
            return
        if asked.token is None:
            yield task
            return
        try:
            yield replace(task, probe=asked.token)
        finally:
            self._breakers.release(task.handler, asked.token)  # does nothing once it was settled

    # -- One transaction -----------------------------------------------------------------------------------
    def _attempt(self, task: Task, delivery: Delivery) -> Outcome:
        limit_session()
        with self.watch.over(task) as ticket:
            try:
                with transaction.atomic(), connection.cursor() as cursor:
                    return self._attempt_here(cursor, task, delivery, ticket)
            except _Broken as broken:
                failure = broken.failure
            _replace_connection()
            if not ticket.claim():
                return _counted_by_watch(ticket)
            return self._settle_anew(task, failure)

    def _attempt_here(self, cursor: Any, task: Task, delivery: Delivery, ticket: Ticket[Task, Outcome]) -> Outcome:
        found = self._lock(cursor, task)
        diverted = self._divert(cursor, task, delivery, found)
        if diverted is not None:
            return diverted
        outcome = self._apply(task, found.spent.attempts + 1, ticket)
        if isinstance(outcome, Applied):
            self._note_applied(cursor, task, found)
            return outcome
        if isinstance(outcome, Duplicate):
            self._skip(cursor, task, found)
            return outcome
        if not _is_whole():
            raise _Broken(outcome)
        if not ticket.claim():
            raise _Broken(outcome)
        return self._settle(cursor, task, found, outcome)

    def _subject(
        self, record: ConsumerRecord, topic_id: str | None, *, handler: str = "", envelope: Envelope | None = None
    ) -> Subject:
        return Subject(
            group=self._group,
            record=record,
            topic_id=topic_id,
            lane=None if record.key is None else lane_of(self._group, record.place.topic, record.key),
            handler=handler,
            event_id=envelope.event_id if envelope else find_event_id(record),
            event_type=envelope.event_type if envelope else find_event_type(record),
        )

    def _lock(self, cursor: Any, task: Task) -> Found:
        """Take the key's lock, then read, in a later statement, what is known of the record."""
        if task.subject.lane is not None:
            lock_lane(cursor, task.subject.lane)
        return retrying.look_up(cursor, task.subject)

    def _divert(self, cursor: Any, task: Task, delivery: Delivery, found: Found) -> Outcome | None:
        """Return what becomes of a record that is not to be tried now; None = try it."""
        step = next_step(self._facts(task, delivery, found))
        if step in _DECIDED:
            return _DECIDED[step]
        match step:
            case Step.REST:
                retrying.rest(cursor, found)
                return Stored()
            case Step.STORE:
                return self._store(cursor, task, found)
            case Step.PARK_BEHIND:
                return self._park_behind(cursor, task, found)
            case Step.WAIT:
                return Held(f"{found.error_class}, try {found.spent.attempts}", found.due_in_s or 0.0)
        self._park(cursor, task, found, _remembered(found))
        return Parked()

    def _facts(self, task: Task, delivery: Delivery, found: Found) -> Facts:
        return Facts(
            has_row=found.id is not None,
            is_stored=found.stored,
            came_stored=delivery.is_stored,
            to_store=delivery.to_store,
            is_behind=found.is_behind,
            is_quarantined=found.is_quarantined,
            is_due=(found.due_in_s or 0.0) <= _DUE_SLACK_S,
            is_given_up=self._is_given_up(task, found),
        )

    def _store(self, cursor: Any, task: Task, found: Found) -> Outcome:
        if retrying.is_applied(cursor, self._group, task.subject.event_id):
            self._skip(cursor, task, found)
            return Duplicate()
        if self.is_room_full:
            raise retrying.WaitingFull(
                f"{self._group} has as many records waiting as it may (CONSUMER_WAITING_GROUP_RECORDS or _BYTES)"
            )
        retrying.store(cursor, task.subject, is_behind=found.is_behind)
        return Stored()

    def _park_behind(self, cursor: Any, task: Task, found: Found) -> Outcome:
        """Park the record behind the head of its key, if it is not applied."""
        subject = task.subject
        head = quarantine.find_head(cursor, subject.lane) if subject.lane is not None else None
        if head is None:
            raise retrying.WaitingChanged("the key was released although its lock is held here")
        retrying.take_away(cursor, subject, found)
        is_new = quarantine.append_behind(
            head, self._group, task.handler, subject.record, topic_id=subject.topic_id, slot=task.slot
        )
        return Parked() if is_new else Duplicate()

    def _is_given_up(self, task: Task, found: Found) -> bool:
        """Tell whether its tries were spent without it: the watch counted them, or the policy allows fewer now."""
        if found.failure_class is None or waits_for_ever(task.policy, is_keyed=task.is_keyed):
            return False
        return is_spent(task.policy, found.failure_class, found.spent)

    def _apply(self, task: Task, number: int, ticket: Ticket[Task, Outcome]) -> Applied | Duplicate | _Failure:
        if task.spec is None or task.envelope is None:
            error = task.broken or Undecodable("the record is no event")
            return _Failure(self._describe_fixed(error, task, number), None)
        envelope, spec, record = task.envelope, task.spec, task.subject.record
        tx = Tx(group=self._group, handler=spec.name, attempt=number, ends_at=ticket.ends_at)
        try:
            with transaction.atomic():
                if not services.claim_event(self._group, envelope.event_id, spec.name, record):
                    return Duplicate()
                result = spec.run(read_event(record, envelope, spec.decode), tx)
                self._keep_result(result, envelope, tx)
            _require_whole()
        except BaseException as error:  # noqa: BLE001 - also a handler that calls sys.exit() has only failed
            return self._judge(error, task, number, is_late=tx.left_s() <= 0)
        return Applied()

    def _keep_result(self, result: Result | None, envelope: Envelope, tx: Tx) -> None:
        if result is not None:
            services.store_result(self._group, envelope.event_id, result)
        with connection.cursor() as cursor:
            # Deferred constraints fail here, where the handler can be blamed, and not at the commit. It fails as
            # well when the handler swallowed a database error and left the transaction broken.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        if tx.left_s() <= 0:
            raise _late()

    def _judge(self, error: BaseException, task: Task, number: int, *, is_late: bool) -> _Failure:
        """Say what an error is and what is kept of it; called where the handler's traceback still is."""
        if _is_closed_here():
            text = "the handler closed the database connection that its transaction is on"
            error = TransactionAbused(text).with_traceback(error.__traceback__)
        elif _is_lost() and is_late:
            error = _late().with_traceback(error.__traceback__)
        if isinstance(error, Undecodable | services.ResultRefused | TransactionAbused):
            return _Failure(self._describe_fixed(error, task, number), None)
        found = FailureClass.TRANSIENT if _is_lost() else classify(error, task.policy.overrides)
        failure = describe_failure(
            error,
            handler=task.handler,
            attempts=number,
            scene=self._scene,
            fixed_text=str(error) if isinstance(error, DeadlinePassed) else None,
            failure_class=found,
            published_at=task.envelope.published_at if task.envelope else None,
        )
        is_broken = found is FailureClass.UNKNOWN and not _is_whole()
        return _Failure(failure, retry_after_s(error, timezone.now()), at_once=is_broken)

    def _describe_fixed(self, error: BaseException, task: Task, number: int) -> Failure:
        return describe_failure(
            error,
            handler=task.handler,
            attempts=number,
            scene=self._scene,
            fixed_text=str(error),
            failure_class=FailureClass.SCHEMA if isinstance(error, Undecodable) else FailureClass.PERMANENT,
            published_at=task.envelope.published_at if task.envelope else None,
        )

    # -- What becomes of an attempt, in its transaction ------------------------------------------------------
    def _note_applied(self, cursor: Any, task: Task, found: Found) -> None:
        self._breakers.note_success(cursor, task.handler, task.probe)
        retrying.take_away(cursor, task.subject, found)
        if found.failure_class is not None:
            number = found.spent.attempts + 1
            last = _remembered(found)
            self._note_attempt(cursor, task, last, outcome=AttemptOutcome.APPLIED, number=number, wait_s=None)

    def _skip(self, cursor: Any, task: Task, found: Found) -> None:
        retrying.take_away(cursor, task.subject, found)
        services.count(self._group, task.subject.record.place.topic, task.slot, duplicates=1)

    def _settle(self, cursor: Any, task: Task, found: Found, failure: _Failure) -> Outcome:
        """Let a failed record wait or park it; count it where it tells of an outage."""
        what = failure.what
        is_outage = what.failure_class is FailureClass.TRANSIENT and task.spec is not None
        run = self._breakers.lock(cursor, task.handler) if is_outage else None
        if run is not None and run.is_open:
            return self._hold(cursor, task)
        spent = found.spent.and_one(what.failure_class)
        verdict = self._decide(task, failure, spent)
        culprit = found.id or -(run.failures + 1 if run else 1)
        if isinstance(verdict, GiveUp) and not (run and self._breakers.would_open(run, culprit)):
            self._park(cursor, task, found, what)
            if run is not None:
                self._breakers.count(cursor, task.handler, run, culprit, what.error_class)
            return Parked()
        after_s = verdict.after_s if isinstance(verdict, TryAgain) else 0.0
        row = retrying.note_wait(cursor, task.subject, spent, what, after_s)
        if run is not None and self._breakers.count(cursor, task.handler, run, row, what.error_class):
            return Held(what.error_class, self._breakers.probe_in_s(task.handler), handler=task.handler)
        number = spent.attempts
        self._note_attempt(cursor, task, what, outcome=AttemptOutcome.WAITS, number=number, wait_s=after_s)
        return Retry(what.error_class, after_s)

    def _hold(self, cursor: Any, task: Task) -> Held:
        """The breaker is open: the try counts for nothing but, if it was the probe, the next probe waits longer."""
        if task.probe is not None:
            self._breakers.probe_failed(cursor, task.handler, task.probe)
        self._breakers.note_open(task.handler)
        return Held("its breaker is open", self._breakers.probe_in_s(task.handler), handler=task.handler)

    def _decide(self, task: Task, failure: _Failure, spent: Spent) -> TryAgain | GiveUp:
        if failure.at_once and not waits_for_ever(task.policy, is_keyed=task.is_keyed):
            return GiveUp()
        return decide_after_failure(
            task.policy,
            failure.what.failure_class,
            spent,
            chance=secrets.randbelow(1000) / 1000,
            retry_after_s=failure.asked_s,
            is_keyed=task.is_keyed,
        )

    def _park(self, cursor: Any, task: Task, found: Found, failure: Failure) -> None:
        retrying.take_away(cursor, task.subject, found)
        if task.spec is not None:
            number = max(1, failure.attempts)
            self._note_attempt(cursor, task, failure, outcome=AttemptOutcome.PARKED, number=number, wait_s=None)
        services.park_record(
            self._group,
            task.handler,
            task.subject.record,
            failure,
            topic_id=task.subject.topic_id,
            slot=task.slot,
            quarantines=task.policy.ordering is not Ordering.PARK_AND_MOVE_ON,
        )

    def _note_attempt(
        self, cursor: Any, task: Task, failure: Failure, *, outcome: AttemptOutcome, number: int, wait_s: float | None
    ) -> None:
        tried = Tried(
            handler=task.handler,
            event_id=task.subject.event_id,
            event_type=task.subject.event_type,
            number=number,
            outcome=outcome,
            failure_class=failure.failure_class,
            error_class=failure.error_class,
            fingerprint=failure.fingerprint,
            wait_s=wait_s,
            topic_id=task.subject.topic_id,
        )
        note_attempt(cursor, self._group, task.subject.record, tried)

    # -- In a transaction of its own ---------------------------------------------------------------------------
    def _settle_anew(self, task: Task, failure: _Failure) -> Outcome:
        """Settle a failure whose own transaction is gone; what was settled by others meanwhile stays."""
        with transaction.atomic(), connection.cursor() as cursor:
            found = self._lock(cursor, task)
            if retrying.is_applied(cursor, self._group, task.subject.event_id):
                self._skip(cursor, task, found)
                return Duplicate()
            if found.is_quarantined:
                return self._park_behind(cursor, task, found)
            return self._settle(cursor, task, found, failure)

    def _count_late(self, task: Task) -> Outcome:
        """Count a try that passed its deadline, from the watch's thread, after its session was ended."""
        failure = describe_failure(
            _late(),
            handler=task.handler,
            attempts=1,
            scene=self._scene,
            fixed_text=str(_late()),
            failure_class=FailureClass.TRANSIENT,
            published_at=task.envelope.published_at if task.envelope else None,
        )
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('lock_timeout', %s, true)", [f"{settings.HANDLER_LATE_GRACE_S * 1000:.0f}"]
            )
            found = self._lock(cursor, task)
            if retrying.is_applied(cursor, self._group, task.subject.event_id):
                return Duplicate()
            counted = replace(failure, attempts=found.spent.attempts + 1)
            return self._settle(cursor, task, found, _Failure(counted, None))

    def _pass_over(self, delivery: Delivery) -> Outcome:
        """A stored record whose handler is gone is passed over like any other."""
        subject = self._subject(delivery.record, delivery.topic_id)
        with transaction.atomic(), connection.cursor() as cursor:
            if subject.lane is not None:
                lock_lane(cursor, subject.lane)
            retrying.take_away(cursor, subject, retrying.look_up(cursor, subject))
        return Ignored()

    # -- Replay ----------------------------------------------------------------------------------------------
    def replay(
        self, record: ConsumerRecord, step: ReplayStep, *, topic_id: str | None, slot: int, attempt: int
    ) -> ReplayOutcome | Held | Retry | None:
        """Send a stored record through its handler once: same lock, breaker, deadline and dedupe row.

        `attempt` is the number that the handler sees. What is returned was settled and committed by `step`, but for:
        None = `step` did not begin; Held = the breaker is open; Retry = the database is away. Those changed nothing.
        Never raises.
        """
        try:
            return self._replay(record, step, topic_id=topic_id, slot=slot, attempt=attempt)
        except BaseException as error:  # noqa: BLE001 - as in `work`
            _drop_unusable_connection()
            return Retry(name_class(error), retry_after_s(error))

    def _replay(
        self, record: ConsumerRecord, step: ReplayStep, *, topic_id: str | None, slot: int, attempt: int
    ) -> ReplayOutcome | Held | Retry | None:
        task = self._prepare(record, slot, topic_id)
        if task is None:
            return self._settle_replay(record, step, Ignored())
        with self._gate(task) as gated:
            if isinstance(gated, Wait):
                return Held("its breaker is open", gated.after_s, handler=task.handler)
            return self._replay_once(gated, step, attempt)

    def _replay_once(self, task: Task, step: ReplayStep, attempt: int) -> ReplayOutcome | Held | None:
        limit_session()
        with self.watch.over(task, is_counted=False) as ticket:
            try:
                with transaction.atomic(), connection.cursor() as cursor:
                    return self._replay_here(cursor, task, step, attempt, ticket)
            except _Broken as broken:
                failure = broken.failure
        _replace_connection()
        with transaction.atomic(), connection.cursor() as cursor:
            self._lock(cursor, task)
            return self._fail_replay(cursor, task, step, failure) if step.begin(cursor) else None

    def _replay_here(
        self, cursor: Any, task: Task, step: ReplayStep, attempt: int, ticket: Ticket[Task, Outcome]
    ) -> ReplayOutcome | Held | None:
        self._lock(cursor, task)
        if not step.begin(cursor):
            return None
        outcome = self._apply(task, attempt, ticket)
        if isinstance(outcome, _Failure):
            if not _is_whole():
                raise _Broken(outcome)
            return self._fail_replay(cursor, task, step, outcome)
        if isinstance(outcome, Applied):
            self._breakers.note_success(cursor, task.handler, task.probe)
        step.settle(cursor, outcome)
        return outcome

    def _fail_replay(self, cursor: Any, task: Task, step: ReplayStep, failure: _Failure) -> Failed | Held:
        if failure.what.failure_class is FailureClass.TRANSIENT and task.spec is not None:
            run = self._breakers.lock(cursor, task.handler)
            if run.is_open:
                return self._hold(cursor, task)
            self._breakers.count(cursor, task.handler, run, -(run.failures + 1), failure.what.error_class)
        failed = Failed(failure.what, failure.asked_s)
        step.settle(cursor, failed)
        return failed

    def _settle_replay(self, record: ConsumerRecord, step: ReplayStep, outcome: Ignored) -> Ignored | None:
        with transaction.atomic(), connection.cursor() as cursor:
            if record.key is not None:
                lock_lane(cursor, lane_of(self._group, record.place.topic, record.key))
            if not step.begin(cursor):
                return None
            step.settle(cursor, outcome)
            return outcome


def _remembered(found: Found) -> Failure:
    """Return the last failure of a record that waits, as its row has it."""
    return Failure(
        failure_class=found.failure_class or FailureClass.TRANSIENT,
        error_class=found.error_class,
        message=found.error_message,
        stack="",
        fingerprint=found.fingerprint,
        attempts=found.spent.attempts,
    )


def _counted_by_watch(ticket: Ticket[Task, Outcome]) -> Outcome:
    """Return what the watch did with a late try; a moment later when it is still at it."""
    if isinstance(ticket.outcome, Parked | Duplicate | Held):
        return ticket.outcome
    return Retry("DeadlinePassed", ticket.outcome.after_s if isinstance(ticket.outcome, Retry) else 0.5)


def _late() -> DeadlinePassed:
    return DeadlinePassed(f"the handler took longer than HANDLER_DEADLINE_S, {settings.HANDLER_DEADLINE_S} s")


def _report(full: quarantine.QuarantineFull) -> None:
    try:
        quarantine.report_full(full)
    except Exception as error:  # noqa: BLE001 - the record waits anyway, and is reported at its next try
        log.warning("quarantine.not_reported", error=type(error).__name__)
        connection.close()


def read_scene() -> Scene:
    """Tell own code from the standard library, installed packages and the runtime itself."""
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    here = str(Path(__file__).parent / "attempts.py")
    return Scene(
        base=str(settings.BASE_DIR),
        foreign=frozenset({*paths, here}),
        frames_limit=settings.DLQ_STACK_FRAMES,
        secret=settings.SIGNALBOX_KEY_LABEL_SECRET,
    )


_session = threading.local()


def limit_session() -> None:
    """Let the server end a transaction at the handler's deadline, where it can (PostgreSQL 17 and later)."""
    connection.ensure_connection()
    if getattr(_session, "limited", None) is connection.connection:
        return
    with connection.cursor() as cursor:
        if cursor.connection.info.server_version >= _TRANSACTION_TIMEOUT_SINCE:
            cursor.execute(
                "SELECT set_config('transaction_timeout', %s, false)", [f"{settings.HANDLER_DEADLINE_S * 1000:.0f}"]
            )
    _session.limited = connection.connection


def _is_whole() -> bool:
    """Tell whether the transaction around the handler can still be used as if the handler had not been there."""
    return connection.in_atomic_block and not connection.needs_rollback and not connection.savepoint_ids


def _require_whole() -> None:
    if not _is_whole():
        raise TransactionAbused("the handler left a transaction block open, so its effect could not be committed")


def _is_closed_here() -> bool:
    """Tell whether the connection was closed from this side, which only a handler does."""
    raw = connection.connection
    return raw is not None and raw.closed and not raw.broken


def _is_lost() -> bool:
    """Tell whether the server, and not the handler, ended the connection: an outage, whatever was raised over it."""
    return connection.connection is not None and connection.connection.broken


def _drop_unusable_connection() -> None:
    if connection.in_atomic_block:
        _replace_connection()
    elif connection.connection is not None and not connection.is_usable():
        connection.close()


def _replace_connection() -> None:
    """Throw this thread's connection away, whatever state it is in: its open transaction is rolled back."""
    if connection.connection is not None:
        connection.connection.close()
    del connections[DEFAULT_DB_ALIAS]
