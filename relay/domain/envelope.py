"""How an event becomes a Kafka record: key bytes, value bytes, headers, size. Pure.

Header storage: a JSON array of [name, base64 or null] pairs. An array keeps order and duplicates, which Kafka
allows and an object would lose; base64 keeps values byte-exact.
"""

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from uuid import UUID

from relay.errors import BadHeaders, BadKey, BadPayload

JSON_TYPE = "application/json"
BYTES_TYPE = "application/octet-stream"
RESERVED_HEADERS = frozenset({"event-id", "event-type", "published-at", "content-type"})
# What a record costs on the wire beyond its own bytes: batch header 61, record header about 21, 10 a header.
BATCH_OVERHEAD_BYTES = 90
HEADER_OVERHEAD_BYTES = 10
# The relay's four headers without the values of event type and content type, the batch around them included.
RELAY_HEADERS_BYTES = 300

HeaderValue = str | bytes | None
Header = tuple[str, bytes | None]


def encode_key(key: object) -> bytes | None:
    """Turn a key into bytes: str as UTF-8, bytes as they are, int as decimal digits, UUID as its 36 characters.

    Raises:
        BadKey: another type, or empty.
    """
    if key is None:
        return None
    if isinstance(key, bool) or not isinstance(key, str | bytes | int | UUID):
        raise BadKey(
            f"The key is a {type(key).__name__}; give a str, bytes, int or UUID, or key=None on purpose when the order "
            "of these events does not matter."
        )
    try:
        encoded = key if isinstance(key, bytes) else str(key).encode()
    except UnicodeEncodeError as error:
        raise BadKey("The key holds a lone surrogate and has no UTF-8 form; give the key as bytes.") from error
    except ValueError as error:
        raise BadKey("The key is an int with too many digits; give the key as bytes.") from error
    if not encoded:
        raise BadKey("The key is empty. Give the id of the thing the event is about, or key=None on purpose.")
    return encoded


def encode_payload(payload: object, default: Callable[[object], object]) -> tuple[bytes | None, str]:
    """Return (value bytes, content type): None is a tombstone, bytes go as they are, all else as compact JSON.

    Raises:
        BadPayload: it cannot be written as JSON.
    """
    if payload is None:
        return None, JSON_TYPE
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), BYTES_TYPE
    try:
        text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default)
        return text.encode(), JSON_TYPE
    except (TypeError, ValueError, RecursionError) as error:
        raise BadPayload(
            f"The payload cannot be written as JSON ({type(error).__name__}: {str(error)[:200]}). Give plain values "
            "(dict, list, str, int, float, bool, None, date and time, Decimal, UUID), or bytes that go out as they are."
        ) from error


def normalise_headers(
    headers: Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]] | None, max_headers: int
) -> list[Header]:
    """Check own headers and return them as (name, bytes or None) in their order; str values become UTF-8.

    Raises:
        BadHeaders: a name that is no str, empty or reserved, a value of another type, or too many.
    """
    if headers is None:
        return []
    if not isinstance(headers, Iterable):
        raise BadHeaders(f"headers must be a mapping, or a list of (name, value) pairs, not {type(headers).__name__}.")
    pairs: Iterable[object] = headers.items() if isinstance(headers, Mapping) else headers
    checked = [_check_header(pair) for pair in pairs]
    if len(checked) > max_headers:
        raise BadHeaders(
            f"{len(checked)} headers are more than the {max_headers} allowed; put the data in the payload."
        )
    return checked


def _check_header(pair: object) -> Header:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise BadHeaders("headers must be a mapping, or a list of (name, value) pairs.")
    name, value = pair
    if not isinstance(name, str) or not name or "\x00" in name:
        raise BadHeaders(f"A header name must be a non-empty str without NUL, not {type(name).__name__}.")
    if name.lower() in RESERVED_HEADERS:
        raise BadHeaders(f"The header {name!r} is written by the relay; choose another name.")
    if value is not None and not isinstance(value, str | bytes):
        raise BadHeaders(f"The header {name!r} is a {type(value).__name__}; give a str, bytes or None.")
    try:
        name.encode()
        return name, value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError as error:
        raise BadHeaders("A header holds a lone surrogate and has no UTF-8 form; give its value as bytes.") from error


def store_headers(headers: Sequence[Header]) -> str:
    """Write headers in their stored form."""
    if not headers:
        return "[]"
    return json.dumps([[name, None if value is None else b64encode(value).decode()] for name, value in headers])


def load_headers(stored: object) -> list[Header]:
    """Read the stored form; line breaks inside the base64 are fine (PostgreSQL's encode() writes them).

    Raises:
        BadHeaders: it is not an array of [name, base64 or null] pairs.
    """
    if not isinstance(stored, list):
        raise BadHeaders("headers must be a JSON array of [name, base64 or null] pairs")
    return [_load_header(pair) for pair in stored]


def _load_header(pair: object) -> Header:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str) or not pair[0]:
        raise BadHeaders("headers must be a JSON array of [name, base64 or null] pairs")
    name, value = pair
    if value is None:
        return name, None
    if not isinstance(value, str):
        raise BadHeaders("a header value must be base64 text or null")
    try:
        return name, b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadHeaders("a header value is not base64") from error


def build_headers(
    *, event_id: UUID | str, event_type: str, published_ms: int, content_type: str, own: Sequence[Header] = ()
) -> list[Header]:
    """The headers of the published record: the relay's four, then the application's own in their order."""
    return [
        ("event-id", str(event_id).encode()),
        _header("event-type", event_type),
        ("published-at", b"%d" % published_ms),
        _header("content-type", content_type),
        *own,
    ]


@lru_cache(maxsize=1_000)
def _header(name: str, value: str) -> Header:
    return name, value.encode()


def fits_surely(limit: int, key_value_bytes: int, *, event_type: str, content_type: str) -> bool:
    """Tell without counting that a record without headers of its own takes at most `limit` bytes on the wire."""
    return key_value_bytes + RELAY_HEADERS_BYTES + 4 * (len(event_type) + len(content_type)) <= limit


def count_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Bytes of key + value + headers, as the application sees them."""
    size = len(key or b"") + len(value or b"")
    for name, held in headers:
        size += (len(name) if name.isascii() else len(name.encode())) + len(held or b"")
    return size


def count_wire_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """At most what the record takes as a batch of its own, which the broker's `max.message.bytes` bounds."""
    return BATCH_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * len(headers) + count_bytes(key, value, headers)
