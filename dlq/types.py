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


class Ordering(StrEnum):
    """What a parked record does to the later ones of its key.

    quarantine: they park behind it, in order. block: the key waits, at last its partition. park_and_move_on: they go
    on.
    """

    QUARANTINE = "quarantine"
    BLOCK = "block"
    PARK_AND_MOVE_ON = "park_and_move_on"


class BreakerState(StrEnum):
    """closed: a handler's records run. open: they are held, and one at a time tries whether it works again."""

    CLOSED = "closed"
    OPEN = "open"


class AttemptOutcome(StrEnum):
    """How a recorded try ended: it waits for another, it was parked, or it was applied after failures."""

    WAITS = "waits"
    PARKED = "parked"
    APPLIED = "applied"


class Origin(StrEnum):
    """Who parked: a consumer a record of Kafka, the relay a row of the outbox that could not be published, or others.

    A relay's dead letter has the row's shard and position in `partition` and `offset`; a foreign one has its place in
    the dead-letter topic that it was imported from.
    """

    CONSUMER = "consumer"
    RELAY = "relay"
    FOREIGN = "foreign"


class Family(StrEnum):
    """Whose headers say where a foreign dead letter came from."""

    SIGNALBOX = "signalbox"
    SHARE_GROUP = "share-group"
    CONNECT = "connect"
    STREAMS = "streams"
    SPRING = "spring"
    SPRING_RETRY = "spring-retry"
    SPRING_CLOUD = "spring-cloud-stream"
    KARAFKA = "karafka"
    SMALLRYE = "smallrye"
    DJANGO_KAFKA = "django-kafka"
    UNKNOWN = "unknown"


FAMILY_NAMES: Mapping[Family, str] = {
    Family.SIGNALBOX: "Signalbox",
    Family.SHARE_GROUP: "a share group of Kafka",
    Family.CONNECT: "Kafka Connect",
    Family.STREAMS: "Kafka Streams",
    Family.SPRING: "Spring for Kafka",
    Family.SPRING_RETRY: "Spring's retry topics",
    Family.SPRING_CLOUD: "Spring Cloud Stream",
    Family.KARAFKA: "Karafka",
    Family.SMALLRYE: "SmallRye",
    Family.DJANGO_KAFKA: "django-kafka",
    Family.UNKNOWN: "an unknown program",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignOrigin:
    """One stop of a foreign dead letter as its headers tell it: where it failed, and what could not be read.

    None or "" = not said, or not readable; then `complaints` (fixed sentences) says which header is why.
    """

    family: Family
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: datetime | None = None
    group: str = ""
    details: Sequence[tuple[str, str]] = ()
    complaints: Sequence[str] = ()

    @property
    def is_known(self) -> bool:
        """Tell whether it names one record of Kafka."""
        return self.topic is not None and self.partition is not None and self.offset is not None

    @property
    def family_name(self) -> str:
        """The program, as a sentence has it."""
        return FAMILY_NAMES[self.family]


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

    @property
    def is_foreign(self) -> bool:
        """Tell whether it was imported from a dead-letter topic of other programs; its place is the one there."""
        return self.origin is Origin.FOREIGN


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDigest:
    """What may be shown of hidden bytes until redaction lands: length in bytes and SHA-256, or absent."""

    length: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterDetail:
    """One dead letter. Times in `timeline` are (at, words), oldest first.

    `origins` (oldest first) are of a foreign one only. `linked`: other dead letters of the same original record.
    """

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
    origins: Sequence[ForeignOrigin] = ()
    linked: Sequence[DeadLetterRow] = ()


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
