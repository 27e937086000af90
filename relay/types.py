"""Values that cross the relay's border. Pure: no Django, no Kafka.

Times are aware UTC; ages are seconds; a `key_label` is what may be shown of a key (`key#` + 8 hex of an HMAC),
never the key itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
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
    """A judgement in words: "stalled: no commit for 4 m 10 s, 312 waiting"."""

    aspect: Aspect
    word: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}" if self.reason else self.word


# -- Topics and events -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic that this installation may publish to.

    `max_bytes` bounds key + value + headers of one record; `schemas` maps an event type to a JSON Schema.
    """

    name: str
    partitions: int = 6
    max_bytes: int = 1_000_000
    schemas: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


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
    CONSUMER_CRASHING = "consumer_crashing"
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
    """A live or lapsed relay runner. `kind` is `celery` or `process`; `state` one word of what it does."""

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
    `circuit_open_since` is set while the cluster cannot be reached.
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


# -- Lag ---------------------------------------------------------------------------------------------------
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
    `drain_words` saying why ("not at this rate", "unknown", "nothing to do").
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
