"""Work on one record: decode, claim, handle, keep the result or park, in one transaction. Runs in a worker thread.

The order of things (I4): dedupe row -> handler -> result -> commit; a failure that cannot succeed rolls the effect
back to a savepoint and parks the record in the same transaction. Nothing here moves an offset.

What happens after the handler's savepoint (the commit itself, hooks that run on commit) is never a reason to park:
it may have been committed, and the dedupe row of the next attempt knows.

A handler that breaks the transaction it was lent (closes the connection, ends the transaction, leaves a block open)
is parked at once in a transaction of its own, on a new connection.
"""

import sysconfig
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction

from dlq import services
from dlq.domain.classify import classify, name_class, retry_after_s
from dlq.domain.envelope import Envelope, Undecodable, read_envelope, read_event
from dlq.domain.failure import Failure, Scene, describe_failure
from dlq.handlers import HandlerSpec, Routes, Tx
from dlq.types import FailureClass, Result
from relay.types import ConsumerRecord

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger(__name__)

_TRANSACTION_TIMEOUT_SINCE = 170_000


class DeadlinePassed(TimeoutError):
    """The handler came back after its deadline: its effect is not committed."""


@dataclass(frozen=True, slots=True)
class Tries:
    """Which try this is, from 1, and how many before it were spent (see `Retry.is_spent`)."""

    number: int
    spent: int


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
class Retry:
    """It may succeed later: the record's key waits, its offset stays.

    `is_spent`: it was neither transient nor permanent, and only so many of those are tried. An outage spends nothing.
    """

    reason: str
    after_s: float | None = None
    is_spent: bool = False


Outcome = Applied | Duplicate | Ignored | Parked | Retry


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


class _Again(Exception):
    """Carries the outcome out of the transaction that it rolls back."""

    def __init__(self, outcome: Retry) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class TransactionAbused(Exception):
    """The handler broke the transaction that it was lent; its text is fixed."""


class _Broken(Exception):
    """Carries a failure out of a transaction that can no longer be used."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error_class)
        self.failure = failure


class Attempts:
    """Works records of one group; one instance a process, called from its worker threads."""

    def __init__(self, group: str, routes: Routes, ask: "Callable[[str], str | None]") -> None:
        """`ask` returns the broker's id of a topic and may raise when the broker is away."""
        self._group = group
        self._routes = routes
        self._ask_topic_id = ask
        self._scene = read_scene()

    def work(self, record: ConsumerRecord, tries: Tries, slot: int) -> Outcome:
        """Finish the record, or say why it has to wait. Never raises."""
        try:
            return self._work(record, tries, slot)
        except _Again as again:
            _drop_unusable_connection()
            return again.outcome
        except BaseException as error:  # noqa: BLE001 - also a hook that calls sys.exit(): the record waits
            _drop_unusable_connection()
            return Retry(name_class(error), retry_after_s(error))

    def _work(self, record: ConsumerRecord, tries: Tries, slot: int) -> Outcome:
        try:
            envelope = read_envelope(record)
        except Undecodable as error:
            return self._park(record, self._fixed(error, tries, ""), "", slot)
        spec = self._routes.find(record.place.topic, envelope.event_type)
        if spec is None:
            return Ignored()
        try:
            return self._handle(record, envelope, spec, tries, slot)
        except _Broken as broken:
            _replace_connection()
            return self._park(record, broken.failure, spec.name, slot)

    def _handle(
        self, record: ConsumerRecord, envelope: Envelope, spec: HandlerSpec, tries: Tries, slot: int
    ) -> Outcome:
        limit_session()
        with transaction.atomic():
            outcome = self._apply(record, envelope, spec, tries.number)
            if isinstance(outcome, Duplicate):
                services.count(self._group, record.place.topic, slot, duplicates=1)
            if not isinstance(outcome, _Failed):
                return outcome
            failure = self._judge(outcome.error, envelope, spec, tries)
            if not _is_whole():
                raise _Broken(failure)
            return self._park_here(record, failure, spec.name, slot)

    def _apply(
        self, record: ConsumerRecord, envelope: Envelope, spec: HandlerSpec, attempt: int
    ) -> Applied | Duplicate | _Failed:
        tx = Tx(
            group=self._group,
            handler=spec.name,
            attempt=attempt,
            ends_at=time.monotonic() + settings.HANDLER_DEADLINE_S,
        )
        try:
            with transaction.atomic():
                if not services.claim_event(self._group, envelope.event_id, spec.name, record):
                    return Duplicate()
                result = spec.run(read_event(record, envelope, spec.decode), tx)
                self._settle(result, envelope, tx)
            _require_whole()
        except BaseException as error:  # noqa: BLE001 - also a handler that calls sys.exit() has only failed
            return _Failed(error)
        return Applied()

    def _settle(self, result: Result | None, envelope: Envelope, tx: Tx) -> None:
        if result is not None:
            services.store_result(self._group, envelope.event_id, result)
        with connection.cursor() as cursor:
            # Deferred constraints fail here, where the handler can be blamed, and not at the commit. It fails as
            # well when the handler swallowed a database error and left the transaction broken.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        if tx.left_s() <= 0:
            raise DeadlinePassed(f"the handler took longer than HANDLER_DEADLINE_S, {settings.HANDLER_DEADLINE_S} s")

    def _judge(self, error: BaseException, envelope: Envelope, spec: HandlerSpec, tries: Tries) -> Failure:
        """Return what to park.

        Raises:
            _Again: it is tried again, after the whole transaction was rolled back.
        """
        if _is_closed_here():
            text = "the handler closed the database connection that its transaction is on"
            error = TransactionAbused(text).with_traceback(error.__traceback__)
        if isinstance(error, Undecodable | services.ResultRefused | TransactionAbused):
            return self._fixed(error, tries, spec.name, envelope)
        found = FailureClass.TRANSIENT if _is_lost() else classify(error)
        is_unknown = found is FailureClass.UNKNOWN and _is_whole()
        if found is FailureClass.TRANSIENT or (is_unknown and tries.spent + 1 < settings.CONSUMER_UNKNOWN_ATTEMPTS):
            raise _Again(Retry(name_class(error), retry_after_s(error), is_spent=is_unknown))
        return describe_failure(
            error,
            handler=spec.name,
            attempts=tries.number,
            scene=self._scene,
            failure_class=found,
            published_at=envelope.published_at,
        )

    def _fixed(self, error: BaseException, tries: Tries, handler: str, envelope: Envelope | None = None) -> Failure:
        return describe_failure(
            error,
            handler=handler,
            attempts=tries.number,
            scene=self._scene,
            fixed_text=str(error),
            failure_class=FailureClass.SCHEMA if isinstance(error, Undecodable) else FailureClass.PERMANENT,
            published_at=envelope.published_at if envelope else None,
        )

    def _park(self, record: ConsumerRecord, failure: Failure, handler: str, slot: int) -> Outcome:
        with transaction.atomic():
            return self._park_here(record, failure, handler, slot)

    def _park_here(self, record: ConsumerRecord, failure: Failure, handler: str, slot: int) -> Outcome:
        topic_id = self._ask_topic_id(record.place.topic)
        is_new = services.park_record(self._group, handler, record, failure, topic_id=topic_id, slot=slot)
        return Parked() if is_new else Duplicate()


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
