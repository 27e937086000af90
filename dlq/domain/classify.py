"""What a failure is: one table, read from top to bottom. Pure: foreign errors are known by name.

1. An override of the record's policy counts first: the outermost error of the cause chain that it names, by class,
   base class or HTTP status.
2. What a handler said itself (`Permanent`, `Transient`) counts, wherever it is in the chain.
3. Anything in the chain that is an outage makes it transient: a wrapped time-out is a time-out.
4. Otherwise the outermost error that the table knows decides. An HTTP status counts before the class.
5. What nobody knows is `unknown`: tried a little, then parked.

Only explicit causes (`raise ... from`, exception groups) are walked: an error raised while another one was handled
is a failure of its own.
"""

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from dlq.types import FailureClass, HandlerError, Permanent, Transient

CHAIN_LIMIT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorKind:
    """Errors that are treated alike: why, and their classes, subclasses included."""

    found: FailureClass
    why: str
    names: Sequence[str]


ERROR_KINDS: Sequence[ErrorKind] = (
    ErrorKind(
        found=FailureClass.SCHEMA,
        why="The record cannot be decoded or validated.",
        names=(
            "json.decoder.JSONDecodeError",
            "builtins.UnicodeDecodeError",
            "binascii.Error",
            "xml.etree.ElementTree.ParseError",
            "jsonschema.exceptions.ValidationError",
            "fastjsonschema.exceptions.JsonSchemaValueException",
            "pydantic_core._pydantic_core.ValidationError",
            "marshmallow.exceptions.ValidationError",
            "msgspec.DecodeError",
            "google.protobuf.message.DecodeError",
            "rest_framework.exceptions.ValidationError",
            "django.core.exceptions.ValidationError",
        ),
    ),
    ErrorKind(
        found=FailureClass.PERMANENT,
        why="The payload is not what the handler maps, or the data can never be stored.",
        names=(
            "builtins.KeyError",
            "builtins.IndexError",
            "builtins.AttributeError",
            "builtins.TypeError",
            "builtins.ValueError",
            "builtins.ArithmeticError",
            "decimal.InvalidOperation",
            "django.db.utils.DataError",
            "psycopg.DataError",
            "psycopg.errors.DataError",
        ),
    ),
    ErrorKind(
        found=FailureClass.TRANSIENT,
        why="A time-out or a connection: the other side is slow or away.",
        names=(
            "builtins.TimeoutError",
            "builtins.ConnectionError",
            "socket.gaierror",
            "ssl.SSLError",
            "asyncio.exceptions.IncompleteReadError",
            "urllib.error.URLError",
            "http.client.RemoteDisconnected",
            "http.client.IncompleteRead",
            "urllib3.exceptions.TimeoutError",
            "urllib3.exceptions.ProtocolError",
            "urllib3.exceptions.MaxRetryError",
            "httpx.TransportError",
            "requests.exceptions.ConnectionError",
            "requests.exceptions.Timeout",
            "requests.exceptions.ChunkedEncodingError",
            "aiohttp.client_exceptions.ClientConnectionError",
            "aiohttp.client_exceptions.ClientPayloadError",
            "openai.APIConnectionError",
            "anthropic.APIConnectionError",
            "botocore.exceptions.ConnectionError",
            "botocore.exceptions.HTTPClientError",
            "smtplib.SMTPServerDisconnected",
            "redis.exceptions.ConnectionError",
            "redis.exceptions.TimeoutError",
            "kombu.exceptions.OperationalError",
            "relay.kafka.consumer.ConsumerUnavailable",
        ),
    ),
    ErrorKind(
        found=FailureClass.TRANSIENT,
        why="The database: a deadlock, a serialization failure, a lock or statement time-out, a restart or fail-over.",
        names=(
            "django.db.utils.OperationalError",
            "django.db.utils.InterfaceError",
            "psycopg.OperationalError",
            "psycopg.InterfaceError",
            "psycopg.errors.ReadOnlySqlTransaction",
        ),
    ),
    ErrorKind(
        found=FailureClass.UNKNOWN,
        why="It breaks a constraint or misses a row: a race with another record, or for ever.",
        names=(
            "django.db.utils.IntegrityError",
            "psycopg.IntegrityError",
            "psycopg.errors.IntegrityError",
            "django.core.exceptions.ObjectDoesNotExist",
        ),
    ),
    ErrorKind(
        found=FailureClass.UNKNOWN,
        why="A certificate that is not trusted: set up wrongly, on one side or the other.",
        names=("ssl.SSLCertVerificationError",),
    ),
)
TABLE: Mapping[str, FailureClass] = {name: kind.found for kind in ERROR_KINDS for name in kind.names}
TRANSIENT_HTTP = frozenset({408, 425, 429})
TRANSIENT_ERRNO = frozenset(
    {
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EADDRNOTAVAIL,
        errno.ENOBUFS,
        errno.EAGAIN,
        errno.ENOSPC,
        errno.EMFILE,
        errno.ENFILE,
    }
)
"""An OSError with one of these is transient: no way to the host, or no room here for the moment."""
_NO_OVERRIDES: Mapping[str, FailureClass] = {}


def classify(error: BaseException, overrides: Mapping[str, FailureClass] = _NO_OVERRIDES) -> FailureClass:
    """Return how `error` is treated; `overrides` are those of the record's policy."""
    chain = list(walk_causes(error))
    wanted = next((found for e in chain if (found := _override(e, overrides)) is not None), None)
    if wanted is not None:
        return wanted
    said = next((_said(e) for e in chain if isinstance(e, HandlerError)), None)
    if said is not None:
        return said
    known = [found for e in chain if (found := _look_up(e)) is not None]
    if FailureClass.TRANSIENT in known:
        return FailureClass.TRANSIENT
    return known[0] if known else FailureClass.UNKNOWN


def retry_after_s(error: BaseException, now: datetime | None = None) -> float | None:
    """Return how long the failing side asked to be left alone, in seconds, at least 0; None = it did not ask.

    A handler's own `retry_after_s` counts before an HTTP answer's Retry-After. Of a date there, the answer's own Date
    is taken off, else `now`; without either it is not heeded.
    """
    asked = (_asked_s(e, now) for e in walk_causes(error))
    return next((max(0.0, wait) for wait in asked if wait is not None), None)


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
    return shown_name(_full_name(type(error)))


def shown_name(full_name: str) -> str:
    """Return the name of a class as people write it."""
    return full_name.removeprefix("builtins.")


def treat_status(status: int) -> FailureClass:
    """Return how an HTTP status from 400 to 599 is treated."""
    return FailureClass.TRANSIENT if status in TRANSIENT_HTTP or status >= 500 else FailureClass.PERMANENT


# -- One error of the chain --------------------------------------------------------------------------------
def _override(error: BaseException, overrides: Mapping[str, FailureClass]) -> FailureClass | None:
    if not overrides:
        return None
    names = [shown_name(_full_name(cls)) for cls in type(error).__mro__]
    status = _http_status(error)
    if status is not None:
        names.insert(0, f"HTTP {status}")
    return next((overrides[name] for name in names if name in overrides), None)


def _said(error: HandlerError) -> FailureClass | None:
    if isinstance(error, Permanent):
        return FailureClass.PERMANENT
    return FailureClass.TRANSIENT if isinstance(error, Transient) else None


def _look_up(error: BaseException) -> FailureClass | None:
    status = _http_status(error)
    if status is not None:
        return treat_status(status)
    if isinstance(error, OSError) and error.errno in TRANSIENT_ERRNO:
        return FailureClass.TRANSIENT
    names = (_full_name(cls) for cls in type(error).__mro__)
    return next((TABLE[name] for name in names if name in TABLE), None)


# -- HTTP answers ------------------------------------------------------------------------------------------
def _http_status(error: BaseException) -> int | None:
    """Read the status of an error that carries an HTTP answer (httpx, requests, urllib, aiohttp, boto, their like)."""
    if isinstance(error, SystemExit):
        return None
    response = _read(error, "response")
    named = ((response, "status_code"), (error, "status_code"), (response, "status"), (error, "status"))
    found = [_read(holder, name) for holder, name in (*named, (error, "code"))]
    found.append(_item(_item(response, "ResponseMetadata"), "HTTPStatusCode"))
    return next((status for status in found if type(status) is int and 400 <= status <= 599), None)


def _asked_s(error: BaseException, now: datetime | None) -> float | None:
    if isinstance(error, Transient) and error.retry_after_s is not None:
        return error.retry_after_s
    if _http_status(error) is None:
        return None
    said = _header(error, "Retry-After")
    if said is None:
        return None
    if said.isascii() and said.isdigit():
        return float(said[:12])
    until, since = _date(said), _date(_header(error, "Date") or "") or now
    return None if until is None or since is None else (until - since).total_seconds()


def _header(error: BaseException, name: str) -> str | None:
    """Read a header of the answer that an error carries, from whatever kind of mapping."""
    response = _read(error, "response")
    metadata = _item(response, "ResponseMetadata")
    for headers in (_read(response, "headers"), _read(error, "headers"), _item(metadata, "HTTPHeaders")):
        for spelling in (name, name.lower()):
            said = _item(headers, spelling)
            if isinstance(said, str):
                return said.strip()
    return None


def _date(text: str) -> datetime | None:
    """Read an HTTP date; one without a zone is none."""
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo is not None else None


def _read(holder: object, name: str) -> object:
    """Return an attribute of a foreign object, None without one: its property may raise anything."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - an error that cannot be looked at is still judged, by its class
        return None


def _item(holder: object, name: str) -> object:
    """Return an item of a foreign mapping, None without one."""
    try:
        return holder[name]  # type: ignore[index]
    except Exception:  # noqa: BLE001 - the same
        return None


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
