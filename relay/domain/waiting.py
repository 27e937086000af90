"""How pages of waiting rows are put together from several looks at them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relay.domain.relay_verdict import Facts, explain_waiting
from relay.types import RelayPause, WaitingState


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Rows of one kind, (position, shard) each. `cut`: nothing above it was looked at; None = it went to the end."""

    kind: str
    rows: Sequence[tuple[int, int]]
    cut: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """(position, shard) -> kind in the order of positions, and where to go on; None = there is nothing more."""

    places: Mapping[tuple[int, int], str]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredFacts:
    """What is known of a row that was set aside."""

    is_head: bool
    failed: bool
    error: str


def merge_looks(looks: Sequence[Look], limit: int) -> Slice:
    """Take the first `limit` rows that every look agrees on; a row that two looks saw is of the later one's kind."""
    cuts = [look.cut for look in looks if look.cut is not None]
    cut = min(cuts, default=None)
    found = {place: look.kind for look in looks for place in look.rows if cut is None or place[0] <= cut}
    places = sorted(found)
    if len(places) > limit:
        places = places[:limit]
        cut = places[-1][0]
    return Slice(places={place: found[place] for place in places}, next=cut)


def pause_words(pause: RelayPause) -> str:
    """Say who paused what and why."""
    what = "topic" if pause.key is None else "key"
    return f"{what} paused by {pause.paused_by}: {pause.reason}"


def judge_waiting(
    kind: str,
    facts: Facts,
    *,
    pause: RelayPause | None,
    hold_reason: str | None,
    deferred: DeferredFacts | None,
    shard_is_held: bool,
) -> tuple[WaitingState, str]:
    """Say why a row waits, as a state and in words; what a person did comes first."""
    if deferred is not None and deferred.failed:
        state = WaitingState.FAILED
    elif pause is not None:
        return WaitingState.PAUSED, pause_words(pause)
    elif deferred is not None:
        state = WaitingState.DEFERRED if deferred.is_head else WaitingState.BEHIND
    elif hold_reason is not None:
        state = WaitingState.HELD
    else:
        state = WaitingState.LATE if kind == "late" else WaitingState.UNREAD
    why = explain_waiting(
        kind=kind,
        facts=facts,
        shard_is_held=shard_is_held,
        hold_reason=hold_reason,
        deferred=None if deferred is None else (deferred.is_head, deferred.failed, deferred.error),
    )
    return state, why
