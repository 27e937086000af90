"""Values that cross the border of the consumers and the dead-letter queue. Pure: no Django, no Kafka."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class HandlerError(Exception):
    """Base of what a handler may raise on purpose; see `Permanent` and `Transient`."""


class Permanent(HandlerError):
    """It can never succeed: park now."""


class Transient(HandlerError):
    """It may succeed later: back off. `retry_after_s` is honoured when the policy allows it."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A consumed event as a handler sees it. `value` is the exact bytes (None = tombstone).

    `payload` is the decoded JSON value; handlers registered with `decode="bytes"` get None there.
    """

    id: UUID
    type: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    payload: object
    headers: Sequence[tuple[str, bytes | None]]
    published_at: datetime | None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a handler did, stored with the dedupe row. Small: `data` is bounded when it is written."""

    outcome: str = "done"
    data: Mapping[str, object] = field(default_factory=dict)


class FailureClass(StrEnum):
    """How a failure is treated: transient backs off, permanent and schema park now, unknown retries a little."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    SCHEMA = "schema"
    UNKNOWN = "unknown"


class Origin(StrEnum):
    """Who parked: a consumer a record of Kafka, or the relay a row of the outbox that could not be published.

    A relay's dead letter has the row's shard and position in `partition` and `offset`.
    """

    CONSUMER = "consumer"
    RELAY = "relay"


class DeadLetterState(StrEnum):
    """parked -> (replaying -> applied | parked) | discarded. Replay and discard come with their issue."""

    PARKED = "parked"
    REPLAYING = "replaying"
    APPLIED = "applied"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow:
    """One line of the list."""

    id: UUID
    state: DeadLetterState
    topic: str
    partition: int
    offset: int
    group: str
    handler: str
    event_id: UUID | None
    event_type: str
    key_label: str
    failure_class: FailureClass
    error_class: str
    error_message: str
    fingerprint: str
    attempts: int
    parked_at: datetime
    origin: Origin = Origin.CONSUMER

    @property
    def is_unsent(self) -> bool:
        """Tell whether the relay parked it: then it has a shard and a position in the outbox, and no place in Kafka."""
        return self.origin is Origin.RELAY


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDigest:
    """What may be shown of hidden bytes until redaction lands: length in bytes and SHA-256, or absent."""

    length: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterDetail:
    """One dead letter. Times in `timeline` are (at, words), oldest first."""

    row: DeadLetterRow
    published_at: datetime | None
    record_timestamp: datetime | None
    topic_id: str | None
    leader_epoch: int | None
    stack: str
    key: PartDigest
    value: PartDigest
    headers: Sequence[tuple[str, PartDigest]]
    timeline: Sequence[tuple[datetime, str]]
    similar: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """What the list may be narrowed by; empty text = any. `before`/`after` are keyset cursors from a page."""

    group: str = ""
    topic: str = ""
    event_type: str = ""
    error_class: str = ""
    fingerprint: str = ""
    state: str = "parked"
    key_label: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPage:
    """One page, newest first, with opaque cursors for the pages beside it."""

    as_of: datetime
    rows: Sequence[DeadLetterRow]
    next_cursor: str | None
    previous_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqStatus:
    """Depth and age for the Now page. Counts are exact counters, kept in the parking transaction."""

    as_of: datetime
    open: int
    parked_last_hour: int
    oldest_age_s: float | None
    by_topic_group: Sequence[tuple[str, str, int]]
    applied_per_s: float | None
    duplicates_total: int


class LossChoice(StrEnum):
    """Where a group goes on after records were lost to it; "" = nobody has chosen."""

    NONE = ""
    FIRST = "first"
    END = "end"
    STAY = "stay"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A consumer group with the handlers registered for it in code."""

    name: str
    topics: Sequence[str]
    handlers: Sequence[str]
