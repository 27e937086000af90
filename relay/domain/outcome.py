"""What went wrong with a row, and what follows. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from relay.domain.backoff import Backoff


class Scope(StrEnum):
    """How far a failure reaches: one row (and its key), one topic, the whole cluster."""

    ROW = "row"
    TOPIC = "topic"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a row was not published. `text` holds no payload, key or header value."""

    scope: Scope
    code: str
    text: str
    permanent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What the broker says of a topic. `failure` is set when nothing can be published to it now.

    `topic_id` tells a topic from one that was made anew under its name; None = the broker gives none.
    """

    name: str
    partitions: int = 0
    max_message_bytes: int | None = None
    topic_id: str | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Try the row again in `delay_s`; `attempts` counts the failed tries."""

    attempts: int
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """A person must act: the row is failed and its key waits behind it."""

    attempts: int


def check_record(facts: TopicFacts, *, wire_bytes: int, partition: int | None) -> Failure | None:
    """Find before producing what the broker would refuse; a client delivers rows 2 and 3 of a key when 1 is refused."""
    if facts.failure is not None:
        return facts.failure
    if facts.max_message_bytes is not None and wire_bytes > facts.max_message_bytes:
        return Failure(
            scope=Scope.ROW,
            code="too_large",
            text=f"the record takes {wire_bytes:,} bytes; the topic {facts.name} takes {facts.max_message_bytes:,}",
            permanent=True,
        )
    if partition is not None and partition >= facts.partitions:
        return Failure(
            scope=Scope.ROW,
            code="no_such_partition",
            text=f"partition {partition} does not exist; the topic {facts.name} has {facts.partitions}",
            permanent=True,
        )
    return None


def decide_retry(failure: Failure, attempts_before: int, backoff: Backoff) -> Retry | GiveUp:
    """Decide after a failed try: permanent failures end at once, others after the policy's attempts."""
    attempts = attempts_before + 1
    if failure.permanent or attempts >= backoff.attempts:
        return GiveUp(attempts=attempts)
    return Retry(attempts=attempts, delay_s=backoff.delay_s(attempts))
