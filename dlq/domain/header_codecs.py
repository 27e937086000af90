"""Read one header value of a foreign dead letter by its producer's encoding. Pure.

Errors: Unreadable, whose text is fixed: it says which rule the bytes break and how long they are, never what they say.
"""

import re
from datetime import UTC, datetime, timedelta

TEXT_LIMIT = 200
FREE_LIMIT_BYTES = 64 * 1024
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*", re.ASCII)
_DECIMAL = re.compile(rb"-?[0-9]{1,19}")


class Unreadable(Exception):
    """The bytes are not what the producer documents; they stay as they are."""


def text(raw: bytes) -> str:
    """UTF-8 that can be shown on one line."""
    found = _utf8(raw)
    if not found or len(found) > TEXT_LIMIT or not found.isprintable():
        raise Unreadable(f"is not 1 to {TEXT_LIMIT} printable characters ({_size(raw)})")
    return found


def topic(raw: bytes) -> str:
    """A name that Kafka allows for a topic."""
    found = _utf8(raw)
    if not _TOPIC.fullmatch(found):
        raise Unreadable(f"is no topic name ({_size(raw)})")
    return found


def class_name(raw: bytes) -> str:
    """A class with its package."""
    found = _utf8(raw)
    if len(found) > TEXT_LIMIT or not _CLASS.fullmatch(found):
        raise Unreadable(f"is no class name ({_size(raw)})")
    return found


def class_of_exception(raw: bytes) -> str:
    """The class in what an exception's toString() gives: `class` or `class: message`."""
    return class_name(raw[:FREE_LIMIT_BYTES].partition(b":")[0].strip())


def class_of_traceback(raw: bytes) -> str:
    """The class in the last line of a Python traceback: `class` or `class: message`."""
    lines = [line for line in raw[-FREE_LIMIT_BYTES:].splitlines() if line.strip() and not line.startswith(b" ")]
    if not lines:
        raise Unreadable(f"is no Python traceback ({_size(raw)})")
    return class_of_exception(lines[-1])


def free_text(raw: bytes) -> str:
    """Whatever it says, cut; for fingerprints and frames only, never to be stored or shown."""
    return raw[:FREE_LIMIT_BYTES].decode("utf-8", "backslashreplace")


def decimal(raw: bytes) -> int:
    """A number as ASCII digits."""
    if not _DECIMAL.fullmatch(raw):
        raise Unreadable(f"is no decimal number ({_size(raw)})")
    return int(raw)


def big_endian(raw: bytes) -> int:
    """A signed number of 1, 2, 4 or 8 bytes, the highest first."""
    if len(raw) not in {1, 2, 4, 8}:
        raise Unreadable(f"is no number of 1, 2, 4 or 8 bytes ({_size(raw)})")
    return int.from_bytes(raw, "big", signed=True)


def big_integer(raw: bytes) -> int:
    """Java's BigInteger.toByteArray(): signed, the highest byte first, as short as it gets."""
    if not 1 <= len(raw) <= 8:
        raise Unreadable(f"is no number of 1 to 8 bytes ({_size(raw)})")
    return int.from_bytes(raw, "big", signed=True)


def to_count(number: int, most: int = INT64_MAX) -> int:
    """Refuse what no partition, offset or count of tries can be."""
    if not 0 <= number <= most:
        raise Unreadable("is negative or too large")
    return number


def to_time(ms: int) -> datetime | None:
    """Milliseconds since 1970; None for -1, with which Kafka says that there is no time."""
    if ms == -1:
        return None
    if ms < 0:
        raise Unreadable("is a time before 1970")
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        raise Unreadable("is a time beyond the calendar") from None


def _utf8(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable(f"is not UTF-8 ({_size(raw)})") from None


def _size(raw: bytes) -> str:
    return f"{len(raw)} {'byte' if len(raw) == 1 else 'bytes'}"
