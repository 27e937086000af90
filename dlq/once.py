"""Make a costly call once an event, whatever happens to the attempt around it: its result is recorded and reused.

    answer = once(event.id, "triage", lambda key: model.ask(prompt, idempotency_key=key))

The claim is committed before the call, on a connection of its own, and renewed while the call runs; the result is
written under the claim's token. A second caller waits for the result or for the end of the claim. So two live processes
never make the call at the same time; only a crash between the call and its recording repeats it, with the same
idempotency key. The database's clock decides when a claim ends.

Errors: OnceError <- OnceBusy (transient: somebody else is at it) | OnceLost (transient: the claim ended before) |
OnceRefused (permanent: the result cannot be kept).
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4, uuid5

import structlog
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DataError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from dlq.types import Permanent, Transient

log = structlog.get_logger(__name__)

_NAME_LIMIT = 200
_CLAIM = """
INSERT INTO dlq_once AS o (event_id, name, token, lease_until)
VALUES (%(event_id)s, %(name)s, %(token)s, clock_timestamp() + make_interval(secs => %(lease_s)s))
ON CONFLICT (event_id, name) DO UPDATE
SET token = excluded.token, lease_until = excluded.lease_until, claims = o.claims + 1, claimed_at = clock_timestamp()
WHERE o.finished_at IS NULL AND o.lease_until < clock_timestamp()
"""
_LOOK = """
SELECT finished_at IS NOT NULL, result, greatest(0, extract(epoch FROM lease_until - clock_timestamp()))::float8
FROM dlq_once WHERE event_id = %s AND name = %s
"""
_RENEW = """
UPDATE dlq_once SET lease_until = clock_timestamp() + make_interval(secs => %s)
WHERE event_id = %s AND name = %s AND token = %s AND finished_at IS NULL
"""
_FINISH = """
UPDATE dlq_once SET result = %s::jsonb, finished_at = clock_timestamp(), lease_until = NULL
WHERE event_id = %s AND name = %s AND token = %s AND finished_at IS NULL
"""
_GIVE_UP = "DELETE FROM dlq_once WHERE event_id = %s AND name = %s AND token = %s AND finished_at IS NULL"


class OnceError(Exception):
    """Root of what `once` raises itself."""


class OnceBusy(OnceError, Transient):
    """Somebody else makes the call and did not finish in time; try again later."""


class OnceLost(OnceError, Transient):
    """The claim ended before the result was written, and is somebody else's: this result is not kept."""


class OnceRefused(OnceError, Permanent):
    """The result is not JSON, or too large to be kept."""


def once(
    event_id: UUID, name: str, fn: Callable[[str], Any], *, wait_s: float | None = None
) -> Any:  # the JSON value that fn gives
    """Return what `fn` gave for this event and name, from its one finished call; calls it when nobody has.

    `fn` takes the idempotency key, the same at every call for this event and name, and returns a JSON value. `name`
    says what is called; two calls of one event need two names. When `fn` raises, nothing is kept and the next caller
    may call. Wait at most `wait_s` for another caller, by default `HANDLER_DEADLINE_S`; a handler gives `tx.left_s()`.

    Raises:
        OnceBusy, OnceLost: transient. OnceRefused: permanent. What `fn` raises.
        ValueError: the name is empty or too long.
    """
    if not 0 < len(name) <= _NAME_LIMIT:
        raise ValueError(f"the name of a call must be 1 to {_NAME_LIMIT} characters")
    ends_at = time.monotonic() + (settings.HANDLER_DEADLINE_S if wait_s is None else wait_s)
    with _own_connection() as own:
        token = uuid4()
        while not _claim(own, event_id, name, token):
            is_finished, result, left_s = _look(own, event_id, name)
            if is_finished:
                return result
            if time.monotonic() >= ends_at:
                raise OnceBusy(f"another process makes the call {name!r} for this event", retry_after_s=left_s)
            time.sleep(settings.ONCE_LOOK_EVERY_S)
        return _call(own, event_id, name, token, fn)


def idempotency_key(event_id: UUID, name: str) -> str:
    """Return the key that `fn` gets: the same for the same event and name, for ever."""
    return str(uuid5(event_id, name))


def _call(own: BaseDatabaseWrapper, event_id: UUID, name: str, token: UUID, fn: Callable[[str], Any]) -> Any:
    try:
        with _renewed(event_id, name, token):
            kept = _encode(fn(idempotency_key(event_id, name)))
        is_kept = _keep(own, [kept, event_id, name, token])
    except BaseException:
        _execute(own, _GIVE_UP, [event_id, name, token])
        raise
    if not is_kept:
        raise OnceLost(f"the claim of the call {name!r} ended before its result was written")
    return json.loads(kept)  # as every later caller gets it


def _keep(own: BaseDatabaseWrapper, values: Sequence[Any]) -> bool:
    try:
        return _execute(own, _FINISH, values) == 1
    except DataError as error:
        raise OnceRefused("the result of a call that is made once holds a character that no column can hold") from error


def _encode(result: Any) -> str:
    try:
        kept = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OnceRefused("the result of a call that is made once must be JSON") from error
    if len(kept.encode()) > settings.ONCE_RESULT_BYTES:
        raise OnceRefused(f"the result of a call that is made once is over {settings.ONCE_RESULT_BYTES} bytes")
    return kept


def _claim(own: BaseDatabaseWrapper, event_id: UUID, name: str, token: UUID) -> bool:
    values = {"event_id": event_id, "name": name, "token": token, "lease_s": settings.ONCE_LEASE_S}
    return _execute(own, _CLAIM, values) == 1


def _look(own: BaseDatabaseWrapper, event_id: UUID, name: str) -> tuple[bool, Any, float]:
    with own.cursor() as cursor:
        cursor.execute(_LOOK, [event_id, name])
        row = cursor.fetchone()
    if row is None:  # given up in this moment
        return False, None, 0.0
    is_finished, result, left_s = row
    return is_finished, json.loads(result) if isinstance(result, str) else result, left_s or 0.0


@contextmanager
def _renewed(event_id: UUID, name: str, token: UUID) -> Iterator[None]:
    """Keep the claim alive while the body runs, from a thread with a connection of its own."""
    ended = threading.Event()

    def renew() -> None:
        with _own_connection() as own:
            while not ended.wait(settings.ONCE_RENEW_EVERY_S):
                try:
                    _execute(own, _RENEW, [settings.ONCE_LEASE_S, event_id, name, token])
                except Exception as error:  # noqa: BLE001 - the claim may end then; its token fences the result
                    log.warning("once.not_renewed", name=name, error=type(error).__name__)
                    own.close()

    thread = threading.Thread(target=renew, name="once", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def _own_connection() -> Iterator[BaseDatabaseWrapper]:
    """A connection beside the thread's own, whose transaction is the handler's; in autocommit."""
    own = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        yield own
    finally:
        own.close()


def _execute(own: BaseDatabaseWrapper, statement: str, values: Any) -> int:
    with own.cursor() as cursor:
        cursor.execute(statement, values)
        return int(cursor.rowcount)
