"""Values that cross the relay's border. Pure: no Django, no Kafka.

Times are aware UTC; ages are seconds; a `key_label` is what may be shown of a key (`key#` + 8 hex of an HMAC),
never the key itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol
from uuid import UUID


class Aspect(StrEnum):
    """How a thing stands; the console draws each as shape + colour + word."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    INFO = "info"
    IDLE = "idle"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A judgement in words: "stalled: no commit for 4 m 10 s, 312 waiting"; "ok, within 50"."""

    aspect: Aspect
    word: str
    reason: str = ""

    def __str__(self) -> str:
        if not self.reason:
            return self.word
        return f"{self.word}{', ' if self.aspect is Aspect.OK else ': '}{self.reason}"


# -- Topics and events -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic that this installation may publish to.

    `max_bytes` bounds key + value + headers of one record; `schemas` maps an event type to a JSON Schema.
    `parks_failed`: rows that used their attempts up are parked, where no policy of the topic says otherwise.
    `may_create` False = the topic is made by somebody else.
    """

    name: str
    partitions: int = 6
    max_bytes: int = 1_000_000
    schemas: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    parks_failed: bool = False
    may_create: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCondition:
    """What the broker says of a topic now. `problem` "" = it is there; then `partitions` is at least 1.

    `max_message_bytes` None = the broker does not tell.
    """

    name: str
    partitions: int = 0
    max_message_bytes: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """An event as `publish_many()` takes it; the fields are those of `publish()`."""

    topic: str
    key: str | bytes | int | UUID | None
    type: str
    payload: object
    headers: Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]] | None = None
    partition: int | None = None
    event_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEvent:
    """What `publish()` returns: the row as it will be sent."""

    id: UUID
    topic: str
    key: bytes | None
    type: str
    position: int


# -- Incidents ---------------------------------------------------------------------------------------------
class IncidentKind(StrEnum):
    """The closed list of what can be wrong; dashboards key on it, so renaming one is a breaking change."""

    RELAY_SILENT = "relay_silent"
    RELAY_UNSENT_OLD = "relay_unsent_old"
    RELAY_CLUSTER_DOWN = "relay_cluster_down"
    RELAY_TOPIC_FAILED = "relay_topic_failed"
    RELAY_TOPIC_REMADE = "relay_topic_remade"
    RELAY_ROW_FAILED = "relay_row_failed"
    RELAY_ORDER_BROKEN = "relay_order_broken"
    RELAY_RESTORED = "relay_restored"
    RELAY_DUPLICATE_ID = "relay_duplicate_id"
    RELAY_PARTITIONS_LOW = "relay_partitions_low"
    LAG_STOPPED = "lag_stopped"
    LAG_STALLED = "lag_stalled"
    LAG_BEHIND = "lag_behind"
    LAG_REWOUND = "lag_rewound"
    LAG_UNREADABLE = "lag_unreadable"
    DATA_LOSS = "data_loss"
    DEAD_LETTERS_GROWING = "dead_letters_growing"
    QUARANTINE_FULL = "quarantine_full"
    CONSUMER_CRASHING = "consumer_crashing"
    WAITING_FULL = "waiting_full"
    BREAKER_OPEN = "breaker_open"
    DEAD_LETTER_COPY_FAILED = "dead_letter_copy_failed"
    PROCESS_LOST = "process_lost"
    BEAT_SILENT = "beat_silent"
    VALKEY_DOWN = "valkey_down"


class Severity(StrEnum):
    """`bad` stops something and needs a person; `warn` will go wrong if left."""

    BAD = "bad"
    WARN = "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentView:
    """One incident as people read it. `cause` names the one thing that is wrong (a topic, a group/partition)."""

    id: int
    kind: IncidentKind
    cause: str
    severity: Severity
    title: str
    meaning: str
    action: str
    link: str
    runbook: str
    opened_at: datetime
    closed_at: datetime | None
    last_seen_at: datetime
    times: int
    acknowledged_by: str | None
    acknowledged_at: datetime | None


# -- Processes ---------------------------------------------------------------------------------------------
class Role(StrEnum):
    """What a process of Signalbox does."""

    WEB = "web"
    WORKER = "worker"
    RELAY_WORKER = "relay-worker"
    BEAT = "beat"
    RELAY = "relay"
    CONSUMER = "consumer"
    DEMO = "demo"
    AGENT = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """A process by its last heartbeat. `facts` are short label -> text pairs for the System page.

    `crashes`: how often a new process took the name over while the one before had not said that it stops.
    """

    role: Role
    name: str
    pid: int
    host: str
    version: str
    started_at: datetime
    seen_at: datetime
    age_s: float
    doing: str
    facts: Mapping[str, str]
    crashes: int
    crashed_at: datetime | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """A repeated job: when it last started and ended, who ran it. Ages by the database clock; None = never."""

    name: str
    runner: str
    started_age_s: float | None
    finished_age_s: float | None
    took_ms: int | None
    error: str


# -- Relay -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentRow:
    """A committed outbox row without an acknowledgement, and why it waits (words a person can act on)."""

    position: int
    shard: int
    event_id: UUID
    topic: str
    type: str
    key_label: str
    created_at: datetime
    age_s: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedCount:
    """A count that stopped at its bound: `capped` means "at least"."""

    value: int
    capped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUnsent:
    """Unsent rows of one topic."""

    topic: str
    unsent: CappedCount
    oldest_age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerView:
    """A live or lapsed relay runner. `kind` is `celery` or `process`; `state` one word of what it does.

    `doorbell`: commits wake it; without (no direct database connection) it polls.
    """

    name: str
    kind: str
    pid: int
    host: str
    started_at: datetime
    seen_at: datetime
    age_s: float
    lease_left_s: float
    shards: Sequence[int]
    state: str
    sent_total: int
    unacked: int
    doorbell: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardView:
    """One shard: who holds it and where its checkpoint is."""

    shard: int
    holder: str | None
    epoch: int
    hw: int
    moved_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredKey:
    """A key whose rows wait after a row failure; `failed` means a person must act."""

    shard: int
    topic: str
    key_label: str
    rows: int
    first_position: int
    attempts: int
    due_at: datetime | None
    failed: bool
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHold:
    """A topic that is held on some shards (unknown, not authorised, paused)."""

    topic: str
    shards: int
    since: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayStatus:
    """Everything the Relay page and the Now page say about the relay, read in one go at `as_of`.

    Rates and latencies cover the last `window_s` seconds; None = nothing was sent in it.
    `circuit_open_since` is set while the cluster cannot be reached. `repeated_ids` counts events that a caller wrote
    again unchanged under the same id, as a retry does.
    """

    as_of: datetime
    verdict: Verdict
    oldest: UnsentRow | None
    waiting: Sequence[UnsentRow]
    unsent: CappedCount
    unsent_by_topic: Sequence[TopicUnsent]
    window_s: float
    appended_per_s: float | None
    sent_per_s: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    runners: Sequence[RunnerView]
    shards: Sequence[ShardView]
    deferred: Sequence[DeferredKey]
    holds: Sequence[TopicHold]
    paused_by: str | None
    paused_at: datetime | None
    paused_reason: str
    circuit_open_since: datetime | None
    blocked_by: str | None
    partitions_ahead: int
    repeated_ids: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRef:
    """Which row is meant. `key` is for acts, never for show; `key_label` is shown."""

    position: int
    event_id: UUID
    topic: str
    type: str
    key: bytes | None = field(repr=False)
    key_label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Where a sent event lies: acknowledged at or before `acked_at`, by the runner called `runner` ("" = not noted)."""

    partition: int
    offset: int
    acked_at: datetime
    runner: str


class EventState(StrEnum):
    """What became of an outbox row: it waits, the relay is done with it, or a person gave it up."""

    WAITING = "waiting"
    SENT = "sent"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTrace:
    """One outbox row and what became of it. `headers` are names only; `key_bytes` None = no key.

    `landings` has every place in Kafka that was found, the first occurrence first; `landing_words` says why none, or
    perhaps not all, are listed. `repeats`: further rows with the same event id. `is_deferred`: it was set aside after a
    failure, so it can be skipped.
    """

    as_of: datetime
    position: int
    shard: int
    event_id: UUID
    topic: str
    type: str
    key_label: str
    key_bytes: int | None
    payload_bytes: int | None
    content_type: str
    headers: Sequence[str]
    wanted_partition: int | None
    created_at: datetime
    age_s: float
    state: EventState
    is_deferred: bool
    verdict: Verdict
    landings: Sequence[Landing] = ()
    landing_words: str = ""
    repeats: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxState:
    """What the outbox holds: its table's partitions, and the first row that was not purged (None = no row at all).

    `housekeeping_age_s`: since housekeeping last ended, which makes and drops partitions; None = never.
    """

    partitions: int
    first_position: int | None
    first_created_at: datetime | None
    housekeeping_age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPoint:
    """The relay over one piece of time up to `at`: greatest backlog and age, mean rates, latency of what was sent.

    A point with `unsent` None marks a time without readings. Latencies: None = nothing was sent.
    """

    at: datetime
    unsent: int | None = None
    unsent_capped: bool = False
    oldest_age_s: float | None = None
    written_per_s: float | None = None
    sent_per_s: float | None = None
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None


# -- What people do to the relay ---------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPause:
    """A topic, or one key of it, that a person paused. `key` is for acts, never for show; `key_label` is shown."""

    topic: str
    key: bytes | None = field(default=None, repr=False)
    key_label: str | None = None
    paused_by: str
    paused_at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRow:
    """An outbox row that a person gave up for good. `sent_anyway`: Kafka took it while it was being skipped."""

    position: int
    event_id: UUID
    topic: str
    key_label: str
    type: str
    attempts: int
    error: str
    skipped_by: str
    skipped_at: datetime
    reason: str
    sent_anyway: bool = False


class WaitingState(StrEnum):
    """Why a row waits, as a closed list; `WaitingRow.why` says it in words."""

    PAUSED = "paused"
    FAILED = "failed"
    DEFERRED = "deferred"
    BEHIND = "behind"
    HELD = "held"
    LATE = "late"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFilter:
    """Which waiting rows; None = all. `key` needs `topic`."""

    topic: str | None = None
    key: bytes | None = field(default=None, repr=False)
    states: frozenset[WaitingState] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRow:
    """A committed row without an acknowledgement. `key` is for acts, never for show.

    `attempts`, `due_at` and `error` are those of a row that was tried. `may_skip` and `may_retry` say which acts it
    takes now.
    """

    position: int
    shard: int
    event_id: UUID
    topic: str
    type: str
    key: bytes | None = field(repr=False)
    key_label: str
    created_at: datetime
    age_s: float
    state: WaitingState
    why: str
    attempts: int = 0
    due_at: datetime | None = None
    error: str = ""
    order_broken: bool = False
    may_skip: bool = False
    may_retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPage:
    """Waiting rows by position, oldest first. `next` continues the list; None = this is its end.

    A page looks at a bounded number of rows, so it may be short, or empty, and still have a `next`.
    """

    rows: Sequence[WaitingRow]
    next: str | None


class OnFailed(StrEnum):
    """What becomes of a row that used its attempts up: its key waits for a person, or it becomes a dead letter."""

    BLOCK = "block"
    PARK = "park"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPolicy:
    """How the relay treats a topic. `version` 0 = nobody set one: these are the settings' values.

    `first_retry_s` doubles with each further try. The ingress limits are None where there is none.
    """

    topic: str
    version: int
    on_failed: OnFailed
    max_attempts: int
    first_retry_s: float
    ingress_max_age_s: float | None = None
    ingress_max_rows: int | None = None
    set_by: str | None = None
    set_at: datetime | None = None
    reason: str = ""


class PolicyScope(StrEnum):
    """What a policy is about; `subject` names the one thing within the scope."""

    CONSUMER = "consumer"
    RELAY_TOPIC = "relay_topic"
    SAGA_STEP = "saga_step"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """One version of a policy, as it was set; the highest one is in force."""

    scope: PolicyScope
    subject: str
    version: int
    document: Mapping[str, object]
    actor: str
    reason: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressHold:
    """A topic takes no further events from outside now; try again after `retry_after_s` seconds. `reason` is words."""

    topic: str
    reason: str
    retry_after_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowToPark:
    """A row that the relay gives up and its policy parks: its bytes as Kafka would have got them."""

    position: int
    shard: int
    event_id: UUID
    topic: str
    type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    published_ms: int
    attempts: int
    code: str
    error: str
    permanent: bool


# -- Lag ---------------------------------------------------------------------------------------------------
class LagWord(StrEnum):
    """The closed list of lag verdicts, worst first; `Verdict.word` of a partition or group is one of them."""

    DATA_LOSS = "data loss"
    STOPPED = "stopped"
    STALLED = "stalled"
    REWOUND = "rewound"
    FALLING_BEHIND = "falling behind"
    UNKNOWN = "unknown"
    OK = "ok"
    IDLE = "idle"


class Trend(StrEnum):
    """Where the lag goes over the window."""

    RISING = "rising"
    STEADY = "steady"
    FALLING = "falling"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LagPoint:
    """One sample of one partition of one group. None = not known (nothing committed; broker did not answer)."""

    at: datetime
    committed: int | None
    begin: int | None
    end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """A partition of a group, judged by the pure rules. `lag` is an offset distance, never negative.

    `time_lag_estimated` marks a time lag that is computed from rates. `drain_s`: None with
    `drain_words` saying why ("never at this rate", "unknown", "nothing to do").
    """

    topic: str
    partition: int
    committed: int | None
    begin: int | None
    end: int | None
    lag: int | None
    time_lag_s: float | None
    time_lag_estimated: bool
    in_per_min: float | None
    out_per_min: float | None
    drain_s: float | None
    drain_words: str
    owner: str | None
    verdict: Verdict
    history: Sequence[LagPoint]
    as_of: datetime
    trend: Trend = Trend.UNKNOWN
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """A consumer group: it takes the verdict of its worst partition.

    `state` is the broker's word (Stable, Empty, Dead, ...). `error` says why nothing newer is shown.
    """

    group: str
    state: str
    protocol: str
    members: int
    allowed_lag: int
    total_lag: int | None
    skew: float | None
    verdict: Verdict
    partitions: Sequence[PartitionLag]
    as_of: datetime
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagOverview:
    """All groups, worst first, and how old the last pass is. `collector` is who collected, or None."""

    as_of: datetime | None
    age_s: float | None
    collector: str | None
    pass_s: float | None
    groups: Sequence[GroupLag]
    errors: Sequence[str]


# -- Rewind ------------------------------------------------------------------------------------------------
class RewindStrategy(StrEnum):
    """Where a person wants a group's committed offsets to go."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindWish:
    """What is to be rewound, and where to. `partitions` empty = all; the strategy says which value is used."""

    group: str
    topic: str
    strategy: RewindStrategy
    partitions: tuple[int, ...] = ()
    offset: int | None = None
    at: datetime | None = None
    shift: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindStep:
    """One partition of a rewind. `after` None = it stays, and `error` says why.

    `before_at`, `after_at`: the times of the records at these offsets, where they could be read.
    """

    partition: int
    begin: int | None
    end: int | None
    before: int | None
    after: int | None
    before_at: datetime | None = None
    after_at: datetime | None = None
    warnings: tuple[str, ...] = ()
    error: str = ""

    @property
    def again(self) -> int:
        """Offsets that will be read again; a distance, never a count of records."""
        return max(0, self.before - self.after) if self.before is not None and self.after is not None else 0

    @property
    def passed_over(self) -> int:
        """Offsets that this group will never read."""
        if self.after is None:
            return 0
        from_where = self.begin if self.before is None else self.before
        return max(0, self.after - (from_where or 0))

    @property
    def moves(self) -> bool:
        """Whether applying it changes anything."""
        return self.after is not None and self.after != self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembers:
    """A group as its coordinator describes it now. `members` are (name, host); empty = it may be rewound."""

    group: str
    state: str
    protocol: str
    members: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPlan:
    """What a rewind would do, read from the broker at `as_of`."""

    wish: RewindWish
    words: str
    who: GroupMembers
    steps: Sequence[RewindStep]
    as_of: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindOutcome:
    """What became of one partition: the offset that was read back, and what went wrong ("" = nothing)."""

    partition: int
    before: int | None
    wanted: int
    now: int | None
    error: str

    @property
    def ok(self) -> bool:
        """Whether the broker says that the offset is what was wanted."""
        return self.now == self.wanted


# -- Consuming ---------------------------------------------------------------------------------------------
class PartitionRef(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRecord:
    """A record as it lies in Kafka: exact bytes; `None`, `b""` and bytes are three things.

    `headers` keep order, duplicates and nulls; None = the client could not decode a header's name.
    `timestamp_ms` is None where the record has none.
    """

    place: PartitionRef
    offset: int
    leader_epoch: int | None
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None

    @property
    def size_bytes(self) -> int:
        """What the record takes in a buffer: key, value and headers."""
        named = sum(len(name) + len(value or b"") for name, value in self.headers or ())
        return len(self.key or b"") + len(self.value or b"") + named


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMissing:
    """The partition gives nothing until it is told where to start: once per partition, then silence.

    `offset` is the committed offset that the broker no longer has; None = the group committed nothing.
    """

    place: PartitionRef
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerProblem:
    """An error that is not a record. `fatal` ends the consumer: nothing it does afterwards works."""

    code: str
    text: str
    fatal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPoint:
    """The next offset to read, with the epoch of the record before it, so that truncation is noticed."""

    offset: int
    leader_epoch: int | None = None


class ConsumerListener(Protocol):
    """What a consumer tells its owner, inside `poll()` and `close()`. An exception here is logged, never raised."""

    def on_assigned(self, places: Sequence[PartitionRef]) -> None:
        """These partitions are ours now, none of them paused."""

    def on_revoked(self, places: Sequence[PartitionRef]) -> None:
        """These go to another member; a `commit_soon()` in here is done before they go."""

    def on_lost(self, places: Sequence[PartitionRef]) -> None:
        """These are gone already: commit nothing."""

    def on_committed(self, offsets: Mapping[PartitionRef, CommitPoint], error: str | None) -> None:
        """The answer to `commit_soon()`."""

    def on_trouble(self, code: str, text: str) -> None:
        """The client has trouble that it mends itself, such as a broker that is away."""


class ConsumerPort(Protocol):
    """A member of a consumer group. One thread owns it, but for the topic ids and `first_offset`."""

    def poll(self, timeout_s: float) -> ConsumerRecord | OffsetMissing | ConsumerProblem | None:
        """Wait for one thing at most `timeout_s`; callbacks run in here."""

    def pause(self, places: Sequence[PartitionRef]) -> None:
        """Fetch nothing of these until `resume`; a partition that is not ours is passed over."""

    def resume(self, places: Sequence[PartitionRef]) -> None:
        """Fetch again."""

    def start_at(self, place: PartitionRef, offset: int | None) -> bool:
        """Read `place` from `offset` (None = its beginning); False when it is not ours any more."""

    def commit_soon(self, offsets: Mapping[PartitionRef, CommitPoint]) -> None:
        """Ask for a commit without waiting; the answer comes to `on_committed`."""

    def topic_id(self, topic: str) -> str | None:
        """The broker's id of a topic as Kafka's tools print it; None where it has none.

        Raises:
            ConsumerUnavailable: the broker did not answer in time.
        """

    def ask_topic_id(self, topic: str) -> str | None:
        """The same, asked anew and remembered: it changes when the topic is deleted and made again.

        Raises:
            ConsumerUnavailable: the broker did not answer in time.
        """

    def first_offset(self, place: PartitionRef) -> int:
        """The lowest offset that the broker still has.

        Raises:
            ConsumerUnavailable: the broker did not answer in time.
        """

    def end_offset(self, place: PartitionRef) -> int:
        """The offset after the last record that may be read.

        Raises:
            ConsumerUnavailable: the broker did not answer in time.
        """

    def leave(self) -> None:
        """Leave the group and stay alive: polls give nothing, and the partitions are let go inside the next ones."""

    def join(self) -> None:
        """Join the group again after `leave`."""

    def close(self) -> None:
        """Leave the group; callbacks run in here."""
