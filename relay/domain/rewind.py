"""Where a group's committed offsets go when a person rewinds it. Pure: what the broker said in, a plan out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from relay.types import RewindStep, RewindStrategy, RewindWish


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindFacts:
    """One partition as the broker has it now. `at_time`: the first offset at or after the wished time, None = none.

    `error`: why nothing is known of it.
    """

    partition: int
    begin: int | None
    end: int | None
    committed: int | None
    at_time: int | None = None
    error: str = ""


def plan_rewind(wish: RewindWish, facts: Sequence[RewindFacts]) -> list[RewindStep]:
    """One step a partition, in the order of `facts`; never an offset outside of the log."""
    return [_plan_step(wish, one) for one in facts]


def _plan_step(wish: RewindWish, one: RewindFacts) -> RewindStep:
    if one.error or one.begin is None or one.end is None:
        return _refused(one, f"could not be read: {one.error or 'the log ends are not known'}")
    wanted = _wanted(wish, one)
    if isinstance(wanted, str):
        return _refused(one, wanted)
    after = min(max(wanted, one.begin), one.end)
    return RewindStep(
        partition=one.partition,
        begin=one.begin,
        end=one.end,
        before=one.committed,
        after=after,
        warnings=_warnings(wish, one, wanted, after, (one.begin, one.end)),
    )


def _refused(one: RewindFacts, reason: str) -> RewindStep:
    return RewindStep(
        partition=one.partition, begin=one.begin, end=one.end, before=one.committed, after=None, error=reason
    )


def _wanted(wish: RewindWish, one: RewindFacts) -> int | str:
    """The offset that the strategy means, in or out of the log; or why there is none."""
    begin, end = one.begin or 0, one.end or 0
    match wish.strategy:
        case RewindStrategy.EARLIEST:
            return begin
        case RewindStrategy.LATEST:
            return end
        case RewindStrategy.OFFSET:
            return begin if wish.offset is None else wish.offset
        case RewindStrategy.TIME:
            return end if one.at_time is None else one.at_time
        case RewindStrategy.SHIFT:
            if one.committed is None:
                return "nothing is committed here, so there is nothing to shift from"
            return one.committed + (wish.shift or 0)


def _warnings(wish: RewindWish, one: RewindFacts, wanted: int, after: int, log: tuple[int, int]) -> tuple[str, ...]:
    begin, end = log
    found = []
    if wanted < begin:
        found.append(f"offset {wanted:,} is before the log's start: the first record that Kafka keeps is {begin:,}")
    if wanted > end:
        found.append(f"offset {wanted:,} is beyond the log's end, {end:,}")
    if wish.strategy is RewindStrategy.TIME and one.at_time is None:
        found.append("no record is as late as that: it goes to the end")
    if one.committed is None:
        found.append("nothing was committed here before")
    elif one.committed < begin and after >= begin:
        found.append(f"offsets {one.committed:,} to {begin - 1:,} were deleted before they were read")
    if after == one.committed:
        found.append("nothing to do: it stands there already")
    return tuple(found)


def describe_wish(wish: RewindWish) -> str:
    """The strategy in words, for the audit and the page."""
    match wish.strategy:
        case RewindStrategy.EARLIEST:
            return "to the first record that Kafka keeps"
        case RewindStrategy.LATEST:
            return "to the end"
        case RewindStrategy.OFFSET:
            return f"to offset {wish.offset:,}"
        case RewindStrategy.TIME:
            return f"to {_moment(wish.at)}"
        case RewindStrategy.SHIFT:
            shift = wish.shift or 0
            return f"{abs(shift):,} offsets {'back' if shift < 0 else 'on'}"


def _moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S %Z}" if at else "a time"
