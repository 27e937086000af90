"""The relay's state in words, and why a row waits. Pure."""

from dataclasses import dataclass
from datetime import datetime

from relay.types import Aspect, CappedCount, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the verdict is made of. Ages are seconds; `silent_s` is how long no runner was alive, None = one is."""

    unsent: CappedCount
    oldest_age_s: float | None
    alive: int
    silent_s: float | None
    paused_by: str | None
    circuit_open_since: datetime | None
    failed_keys: int
    held_topics: int
    moving: bool


def facts_of_a_row(*, alive: int, paused_by: str | None, circuit_open_since: datetime | None) -> Facts:
    """What `explain_waiting` looks at, where the relay as a whole is not judged."""
    return Facts(
        unsent=CappedCount(value=0),
        oldest_age_s=None,
        alive=alive,
        silent_s=None,
        paused_by=paused_by,
        circuit_open_since=circuit_open_since,
        failed_keys=0,
        held_topics=0,
        moving=False,
    )


def count_words(count: CappedCount, one: str, many: str) -> str:
    """Write a count with its noun: `1 row`, `120 rows`, `at least 10,000 rows`."""
    words = f"{count.value:,} {one if count.value == 1 else many}"
    return f"at least {words}" if count.capped else words


def judge_relay(facts: Facts, *, silent_after_s: float, old_after_s: float) -> Verdict:
    """Say how the relay stands; what needs a person first comes first."""
    waiting = count_words(facts.unsent, "row waits", "rows wait") if facts.unsent.value else "nothing waits"
    if facts.paused_by is not None:
        return Verdict(aspect=Aspect.WARN, word="paused", reason=f"by {facts.paused_by}, {waiting}")
    if facts.alive == 0:
        return _judge_silence(facts, waiting, silent_after_s)
    if facts.circuit_open_since is not None:
        since = f"{facts.circuit_open_since:%H:%M:%S} UTC"
        return Verdict(aspect=Aspect.BAD, word="circuit open", reason=f"Kafka not reachable since {since}, {waiting}")
    return _judge_flow(facts, waiting, old_after_s)


def _judge_flow(facts: Facts, waiting: str, old_after_s: float) -> Verdict:
    if facts.failed_keys or facts.held_topics:
        return Verdict(aspect=Aspect.WARN, word="blocked", reason=_blocked_words(facts))
    if facts.unsent.value == 0:
        return Verdict(aspect=Aspect.OK, word="caught up")
    if not facts.moving and (facts.oldest_age_s or 0) > old_after_s:
        return Verdict(aspect=Aspect.BAD, word="stuck", reason=f"nothing is sent, {waiting}")
    return Verdict(aspect=Aspect.OK, word="moving", reason=waiting)


def _judge_silence(facts: Facts, waiting: str, silent_after_s: float) -> Verdict:
    if facts.silent_s is None:
        return Verdict(aspect=Aspect.BAD, word="silent", reason=f"no relay has ever run, {waiting}")
    if facts.silent_s < silent_after_s:
        return Verdict(aspect=Aspect.OK, word="handing over", reason=waiting)
    return Verdict(aspect=Aspect.BAD, word="silent", reason=f"no relay for {facts.silent_s:.0f} s, {waiting}")


def _blocked_words(facts: Facts) -> str:
    parts = []
    if facts.failed_keys:
        parts.append(f"{facts.failed_keys} {'key' if facts.failed_keys == 1 else 'keys'} behind a failed row")
    if facts.held_topics:
        parts.append(f"{facts.held_topics} {'topic' if facts.held_topics == 1 else 'topics'} held")
    return ", ".join(parts) + "; the rest goes on"


def explain_waiting(
    *, kind: str, facts: Facts, shard_is_held: bool, hold_reason: str | None, deferred: tuple[bool, bool, str] | None
) -> str:
    """Why a committed row has no acknowledgement yet. `deferred` is (is head, is failed, error)."""
    if deferred is not None:
        return _explain_deferred(*deferred)
    if hold_reason is not None:
        return f"topic held: {hold_reason}"
    return _explain_relay(facts, shard_is_held=shard_is_held, is_late=kind == "late")


def _explain_relay(facts: Facts, *, shard_is_held: bool, is_late: bool) -> str:
    if facts.paused_by is not None:
        return f"paused by {facts.paused_by}"
    if facts.alive == 0:
        return "waiting for a relay: none is alive"
    if facts.circuit_open_since is not None:
        return "waiting for Kafka: it is not reachable"
    if not shard_is_held:
        return "waiting for a relay to take its shard"
    return "committed late, read in the next round" if is_late else "on its way"


def _explain_deferred(is_head: bool, is_failed: bool, error: str) -> str:
    if not is_head:
        return "behind a failed row of its key"
    if is_failed:
        return f"failed, a person must act: {error}"
    return f"will be tried again: {error}" if error else "next of its key"
