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
    """How a failure is treated: transient backs off, permanent and schema park now, unknown retries a little.

    `behind` is none: the record was never tried, it waits behind a parked one of its key. Nothing is classified so.
    """

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    SCHEMA = "schema"
    UNKNOWN = "unknown"
    BEHIND = "behind"


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


class CopiedPayload(StrEnum):
    """What the copy on the dead-letter topic has of a record's value.

    withheld: the topic's rule keeps key, value and own headers out; shed: it did not fit; none: a tombstone.
    """

    COPIED = "copied"
    NONE = "none"
    WITHHELD = "withheld"
    SHED = "shed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyView:
    """The copy of a dead letter. `failure` "" = it was written to the outbox and nobody gave it up since.

    `event_id` is the copy's own; None = it could not even be written.
    """

    topic: str
    family: Family
    event_id: UUID | None
    payload: CopiedPayload
    shed: Sequence[str]
    failure: str
    failed_at: datetime | None


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
    """parked -> applied | sent | discarded; discarded -> parked when a person restores it.

    A replay changes the state only with its outcome: what is being replayed is parked until then.
    """

    PARKED = "parked"
    APPLIED = "applied"
    SENT = "sent"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow:
    """One line of the list. `is_behind`: it was never tried, it waits behind the head of its quarantined key."""

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
    replays: int = 0
    needs_human: bool = False
    is_behind: bool = False

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
    `key_id`: the quarantined key whose queue it stands in, with the dead letter at its head and how many it has.
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
    failure_group: int | None = None
    key_id: UUID | None = None
    head_id: UUID | None = None
    key_letters: int = 0

    @property
    def behind(self) -> int:
        """How many are parked behind it when it is the head of its key."""
        return self.key_letters - 1 if self.head_id == self.row.id else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """What the list may be narrowed by; empty text = any. `failure_group`: the number of one (G-118).

    `since` <= parked < `until`. `replays`: failed again so often at least. `needs_human`: only those.
    """

    group: str = ""
    topic: str = ""
    event_type: str = ""
    error_class: str = ""
    fingerprint: str = ""
    state: str = "parked"
    key_label: str = ""
    since: datetime | None = None
    until: datetime | None = None
    failure_group: int | None = None
    replays: int = 0
    needs_human: bool = False


class LetterSort(StrEnum):
    """The order of the list: by time of parking, most tries first, or by topic, partition and offset."""

    NEWEST = "newest"
    OLDEST = "oldest"
    TRIES = "tries"
    PLACE = "place"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPage:
    """One page, with opaque cursors for the pages beside it."""

    as_of: datetime
    rows: Sequence[DeadLetterRow]
    next_cursor: str | None
    previous_cursor: str | None


# -- Quarantine and replay ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a person picked: explicit ids, or everything that a filter matches (then `ids` is empty)."""

    ids: Sequence[UUID] = ()
    filter: DeadLetterFilter | None = None


class ReplayMode(StrEnum):
    """Through the group's own handler, or back to the topic: the latter for groups that are not Signalbox's."""

    HANDLER = "handler"
    TOPIC = "topic"


class ReplayVerdict(StrEnum):
    """What a preview says of one dead letter; those in `RUNNABLE` are replayed."""

    ELIGIBLE = "eligible"
    FOLLOWS = "follows"
    HAZARD = "hazard"
    BEHIND = "behind"
    APPLIED = "applied"
    IN_REPLAY = "in_replay"
    LOOP_GUARD = "loop_guard"
    NO_HANDLER = "no_handler"
    NO_TOPIC = "no_topic"
    SCHEMA = "schema"
    NO_PAYLOAD = "no_payload"
    NOT_PARKED = "not_parked"


RUNNABLE = (ReplayVerdict.ELIGIBLE, ReplayVerdict.FOLLOWS, ReplayVerdict.HAZARD, ReplayVerdict.APPLIED)

VERDICT_WORDS: Mapping[ReplayVerdict, str] = {
    ReplayVerdict.ELIGIBLE: "can be replayed",
    ReplayVerdict.FOLLOWS: "waits behind another one of its key here, and follows it in order",
    ReplayVerdict.HAZARD: "can be replayed, but later records of its key may have been handled already",
    ReplayVerdict.BEHIND: "waits behind a dead letter of its key that is not among these: replay that one",
    ReplayVerdict.APPLIED: "its event was applied already: it ends as deduplicated, with no second effect",
    ReplayVerdict.IN_REPLAY: "is in another replay that has not ended",
    ReplayVerdict.LOOP_GUARD: "failed again too often and needs a person: replay it by itself",
    ReplayVerdict.NO_HANDLER: "no handler of its group takes its type any more",
    ReplayVerdict.NO_TOPIC: "its topic is not declared here, so nothing can be sent to it",
    ReplayVerdict.SCHEMA: "still cannot be decoded",
    ReplayVerdict.NO_PAYLOAD: "its bytes are not here, so there is nothing to replay",
    ReplayVerdict.NOT_PARKED: "is not parked any more",
}


class ReplayState(StrEnum):
    """running <-> paused -> (finished | cancelled). A pause is a person's or the job's own (`ReplayJob.why`)."""

    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class ReplayPhase(StrEnum):
    """How far a job has gone: one, then ten more, then the rest."""

    CANARY = "canary"
    RAMP = "ramp"
    REST = "rest"


class ReplayOutcome(StrEnum):
    """queued -> running -> applied | deduplicated | sent | failed | skipped."""

    QUEUED = "queued"
    RUNNING = "running"
    APPLIED = "applied"
    DEDUPLICATED = "deduplicated"
    SENT = "sent"
    FAILED = "failed"
    SKIPPED = "skipped"


class SkipReason(StrEnum):
    """Why an item of a replay was not replayed."""

    CANCELLED = "cancelled"
    CHANGED = "changed"
    BEHIND = "behind"
    HEAD_FAILED = "head_failed"
    NO_HANDLER = "no_handler"


SKIP_WORDS: Mapping[SkipReason, str] = {
    SkipReason.CANCELLED: "the replay was cancelled before its turn",
    SkipReason.CHANGED: "it was no longer parked, or was in another replay",
    SkipReason.BEHIND: "it waits behind another dead letter of its key",
    SkipReason.NO_HANDLER: "no handler of its group takes its type any more",
    SkipReason.HEAD_FAILED: "one before it of its key failed again, so that its order would not hold",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPreview:
    """A frozen selection and what a replay of it would do. Counts are exact as of `as_of`.

    `counts` has the verdicts that occur. `followers`: parked behind the selected heads without being selected; they
    follow in order. `late`: matches of the filter parked since, up to `late_limit`; they are not part of it.
    `duration_s` is at `rate_per_s` (None = as fast as the consumers can, then it is not known). `job_id`: it was used.
    """

    id: UUID
    group: str
    mode: ReplayMode
    selection: Selection
    actor: str
    as_of: datetime
    expires_at: datetime
    expired: bool
    total: int
    runnable: int
    counts: Mapping[ReplayVerdict, int]
    followers: int
    late: int
    late_limit: int
    rate_per_s: float | None
    duration_s: float | None
    needs_second: bool
    samples: Sequence[tuple[DeadLetterRow, ReplayVerdict]]
    job_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """One replay. `version` is what an act on it must name. Counts are exact, of committed outcomes.

    `total` includes `followed`: records behind a released head that joined. `why`: why it is paused or cancelled, ""
    while it runs. `waiting_for`: what it waits for although it may run, such as a consumer of its group. `running` are
    those that a consumer has taken. `failed_same`: failed with the same error as before.
    """

    id: UUID
    group: str
    mode: ReplayMode
    state: ReplayState
    phase: ReplayPhase
    why: str
    waiting_for: str
    actor: str
    second: str
    reason: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    as_of: datetime
    version: int
    changed_by: str
    changed_at: datetime
    rate_per_s: float | None
    total: int
    followed: int
    queued: int
    running: int
    applied: int
    deduplicated: int
    sent: int
    failed: int
    failed_same: int
    skipped: int
    measured_per_s: float | None
    eta_s: float | None
    preview_id: UUID | None
    selection: Selection

    @property
    def settled(self) -> int:
        """How many have an outcome."""
        return self.applied + self.deduplicated + self.sent + self.failed + self.skipped

    @property
    def has_ended(self) -> bool:
        """Tell whether nothing of it will happen any more."""
        return self.state in (ReplayState.FINISHED, ReplayState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayItem:
    """One dead letter's part in a replay. `why` explains failed and skipped; `joined`: it followed a released head."""

    job_id: UUID
    number: int
    dead_letter_id: UUID
    topic: str
    partition: int
    offset: int
    event_type: str
    key_label: str
    outcome: ReplayOutcome
    why: str
    error_class: str
    same_error: bool | None
    joined: bool
    taken_by: str
    settled_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPage:
    """Replay jobs, newest first, with an opaque cursor for the next page."""

    as_of: datetime
    jobs: Sequence[ReplayJob]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayItemPage:
    """Items of one job in their order, with an opaque cursor for the next page."""

    as_of: datetime
    items: Sequence[ReplayItem]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineFilter:
    """What quarantined keys may be narrowed by; empty text = any."""

    group: str = ""
    topic: str = ""
    key_label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedKey:
    """A key whose records park, in order, until it is released. `letters` counts the head and those behind it.

    `job_id`: the replay that the head, or one behind it, is in.
    """

    id: UUID
    group: str
    topic: str
    key_label: str
    head: DeadLetterRow
    letters: int
    quarantined_at: datetime
    head_since: datetime
    job_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinePage:
    """Quarantined keys, newest first, with an opaque cursor for the next page. `total` counts up to `total_limit`."""

    as_of: datetime
    keys: Sequence[QuarantinedKey]
    next_cursor: str | None
    total: int
    total_limit: int


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
    """Where a group goes on after records were lost to it; "" = nobody has chosen. A time is chosen as its offset."""

    NONE = ""
    FIRST = "first"
    END = "end"
    OFFSET = "offset"
    STAY = "stay"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A consumer group with the handlers registered for it in code."""

    name: str
    topics: Sequence[str]
    handlers: Sequence[str]


# -- The runtime -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerView:
    """One handler's breaker. `failures` in a row while closed; `probe_in_s`: until the next record is let through.

    `changed_by` is the person who closed it last, "" = it closed by itself. `version` changes with its state.
    """

    group: str
    handler: str
    state: BreakerState
    failures: int
    error_class: str
    opened_at: datetime | None
    probe_in_s: float | None
    probes: int
    version: int
    changed_by: str
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What waits on one partition of a group. `head_offset` is the lowest, of the key `key_label`, due at `until`.

    `stored`: how many of `records` lie in the database, so that the partition moves on without them.
    """

    group: str
    topic: str
    partition: int
    records: int
    stored: int
    key_label: str
    head_offset: int
    attempts: int
    error_class: str
    until: datetime | None
