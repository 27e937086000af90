"""The headers of a dead letter that leaves Signalbox: our own family in text, and one that other programs read. Pure.

Sources: Spring for Kafka's `kafka_dlt-*` (numbers are big-endian bytes) and Kafka Connect's `__connect.errors.*` (all
text), as their projects document them. Of Connect's names, `connector.name` tells the group and `class.name` the
handler; there is no task and no stage.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlq.domain.foreign import OWN
from dlq.types import Family

Header = tuple[str, bytes | None]
EXPORT_FAMILIES = (Family.SPRING, Family.CONNECT)
_PREFIXES: Mapping[Family, str] = {Family.SPRING: "kafka_dlt-", Family.CONNECT: "__connect.errors."}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFacts:
    """What the headers tell; "" = not told. `timestamp_ms` is None where the original record had no time."""

    dead_letter: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    group: str
    handler: str
    attempts: int
    error_class: str
    message: str
    stack: str


def export_headers(
    original: Sequence[Header], facts: ExportFacts, family: Family, *, limit_bytes: int
) -> tuple[list[Header], list[Header]]:
    """Return (the record's own headers, those that are added behind them).

    Earlier headers of the two families give way, so that every name is there once. What is added takes at most
    `limit_bytes` of names and values: first the stack goes, then the message, then the error's class; never the place.
    """
    place = [*_own_place(facts), *(_spring_place(facts) if family is Family.SPRING else _connect_place(facts))]
    error = [_text_pairs(pairs) for pairs in _error(facts, family)]
    while error and _size([*place, *(header for part in error for header in part)]) > limit_bytes:
        error.pop()
    return keep_own(original, family), [*place, *(header for part in error for header in part)]


def keep_own(original: Sequence[Header], family: Family) -> list[Header]:
    """Return the record's own headers, without those of the two families that are to be written."""
    prefixes = (OWN, _PREFIXES[family])
    return [(name, value) for name, value in original if not name.startswith(prefixes)]


def _own_place(facts: ExportFacts) -> list[Header]:
    told = {
        "topic": facts.topic,
        "partition": str(facts.partition),
        "offset": str(facts.offset),
        "timestamp": "" if facts.timestamp_ms is None else str(facts.timestamp_ms),
        "group": facts.group,
        "handler": facts.handler,
        "attempts": str(facts.attempts),
        "dead-letter": facts.dead_letter,
    }
    return _text_pairs([(OWN + name, text) for name, text in told.items()])


def _spring_place(facts: ExportFacts) -> list[Header]:
    has_time = facts.timestamp_ms is not None
    return [
        ("kafka_dlt-original-topic", facts.topic.encode()),
        ("kafka_dlt-original-partition", struct.pack(">i", facts.partition)),
        ("kafka_dlt-original-offset", struct.pack(">q", facts.offset)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", facts.timestamp_ms if has_time else -1)),
        ("kafka_dlt-original-timestamp-type", b"CreateTime" if has_time else b"NoTimestampType"),
        ("kafka_dlt-original-consumer-group", facts.group.encode()),
    ]


def _connect_place(facts: ExportFacts) -> list[Header]:
    told = {
        "topic": facts.topic,
        "partition": str(facts.partition),
        "offset": str(facts.offset),
        "connector.name": facts.group,
        "class.name": facts.handler,
    }
    return _text_pairs([(_PREFIXES[Family.CONNECT] + name, text) for name, text in told.items()])


def _error(facts: ExportFacts, family: Family) -> list[list[tuple[str, str]]]:
    """Class, message and stack, in the order in which they are worth keeping; each in both families."""
    names = {
        Family.SPRING: ("exception-fqcn", "exception-message", "exception-stacktrace"),
        Family.CONNECT: ("exception.class.name", "exception.message", "exception.stacktrace"),
    }[family]
    own = ("error-class", "error-message", "stack")
    texts = (facts.error_class, facts.message, facts.stack)
    return [
        [(OWN + ours, text), (_PREFIXES[family] + theirs, text)]
        for ours, theirs, text in zip(own, names, texts, strict=True)
    ]


def _text_pairs(pairs: Sequence[tuple[str, str]]) -> list[Header]:
    return [(name, text.encode("utf-8", "backslashreplace")) for name, text in pairs if text]


def _size(headers: Sequence[Header]) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)
