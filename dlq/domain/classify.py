"""What a failure is: one table, read from top to bottom. Pure: foreign errors are known by name.

1. What a handler said itself (`Permanent`, `Transient`) counts, wherever it is in the cause chain.
2. Anything in the chain that is an outage makes it transient: a wrapped time-out is a time-out.
3. Otherwise the outermost error that the table knows decides.
4. What nobody knows is `unknown`: tried a little, then parked.

Only explicit causes (`raise ... from`, exception groups) are walked: an error raised while another one was handled
is a failure of its own.
"""

from collections.abc import Iterator, Mapping

from dlq.types import FailureClass, HandlerError, Permanent, Transient

CHAIN_LIMIT = 32

TABLE: Mapping[str, FailureClass] = {
    # The record cannot be decoded or validated.
    "json.decoder.JSONDecodeError": FailureClass.SCHEMA,
    "builtins.UnicodeDecodeError": FailureClass.SCHEMA,
    "jsonschema.exceptions.ValidationError": FailureClass.SCHEMA,
    "pydantic_core._pydantic_core.ValidationError": FailureClass.SCHEMA,
    "rest_framework.exceptions.ValidationError": FailureClass.SCHEMA,
    "django.core.exceptions.ValidationError": FailureClass.SCHEMA,
    # The payload is not what the handler maps, or the data can never be stored.
    "builtins.KeyError": FailureClass.PERMANENT,
    "builtins.IndexError": FailureClass.PERMANENT,
    "builtins.TypeError": FailureClass.PERMANENT,
    "builtins.ValueError": FailureClass.PERMANENT,
    "decimal.InvalidOperation": FailureClass.PERMANENT,
    "django.db.utils.DataError": FailureClass.PERMANENT,
    "psycopg.DataError": FailureClass.PERMANENT,
    "psycopg.errors.DataError": FailureClass.PERMANENT,
    # Time-outs, connections, deadlocks: it may succeed later.
    "builtins.TimeoutError": FailureClass.TRANSIENT,
    "builtins.ConnectionError": FailureClass.TRANSIENT,
    "socket.gaierror": FailureClass.TRANSIENT,
    "urllib.error.URLError": FailureClass.TRANSIENT,
    "http.client.RemoteDisconnected": FailureClass.TRANSIENT,
    "http.client.IncompleteRead": FailureClass.TRANSIENT,
    "httpx.TransportError": FailureClass.TRANSIENT,
    "requests.exceptions.ConnectionError": FailureClass.TRANSIENT,
    "requests.exceptions.Timeout": FailureClass.TRANSIENT,
    "django.db.utils.OperationalError": FailureClass.TRANSIENT,
    "django.db.utils.InterfaceError": FailureClass.TRANSIENT,
    "psycopg.OperationalError": FailureClass.TRANSIENT,
    "psycopg.InterfaceError": FailureClass.TRANSIENT,
    "redis.exceptions.ConnectionError": FailureClass.TRANSIENT,
    "redis.exceptions.TimeoutError": FailureClass.TRANSIENT,
    "relay.kafka.consumer.ConsumerUnavailable": FailureClass.TRANSIENT,
    # It breaks a constraint: a race, or for ever.
    "django.db.utils.IntegrityError": FailureClass.UNKNOWN,
    "psycopg.IntegrityError": FailureClass.UNKNOWN,
    "psycopg.errors.IntegrityError": FailureClass.UNKNOWN,
}
TRANSIENT_HTTP = frozenset({408, 425, 429})


def classify(error: BaseException) -> FailureClass:
    """Return how `error` is treated."""
    chain = list(walk_causes(error))
    said = next((_said(e) for e in chain if isinstance(e, HandlerError)), None)
    if said is not None:
        return said
    known = [found for e in chain if (found := _look_up(e)) is not None]
    if FailureClass.TRANSIENT in known:
        return FailureClass.TRANSIENT
    return known[0] if known else FailureClass.UNKNOWN


def retry_after_s(error: BaseException) -> float | None:
    """Return how long the failing side asked to be left alone, in seconds."""
    waits = (e.retry_after_s for e in walk_causes(error) if isinstance(e, Transient))
    return next((wait for wait in waits if wait is not None), None)


def walk_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and what explicitly caused it, outermost first, at most `CHAIN_LIMIT`, each once."""
    pending, seen = [error], set[int]()
    while pending and len(seen) < CHAIN_LIMIT:
        current = pending.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            pending.extend(current.exceptions)
        if current.__cause__ is not None:
            pending.append(current.__cause__)


def name_class(error: BaseException) -> str:
    """Return the error's class as people look it up: builtins bare, others with their module."""
    return _full_name(type(error)).removeprefix("builtins.")


def _said(error: HandlerError) -> FailureClass | None:
    if isinstance(error, Permanent):
        return FailureClass.PERMANENT
    return FailureClass.TRANSIENT if isinstance(error, Transient) else None


def _look_up(error: BaseException) -> FailureClass | None:
    status = _http_status(error)
    if status is not None:
        return FailureClass.TRANSIENT if status in TRANSIENT_HTTP or status >= 500 else FailureClass.PERMANENT
    names = (_full_name(cls) for cls in type(error).__mro__)
    return next((TABLE[name] for name in names if name in TABLE), None)


def _http_status(error: BaseException) -> int | None:
    """Read the status of an error that carries an HTTP answer (httpx, requests, urllib and their like)."""
    response = _read(error, "response")
    for holder, name in ((response, "status_code"), (error, "status_code"), (response, "status"), (error, "code")):
        status = _read(holder, name)
        if type(status) is int and 400 <= status <= 599:
            return status
    return None


def _read(holder: object, name: str) -> object:
    """Return an attribute of a foreign object, None without one: its property may raise anything."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - an error that cannot be looked at is still judged, by its class
        return None


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
