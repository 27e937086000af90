"""The rules of lag. Pure: readings in, judgements out.

Lag is an offset distance (log end - committed), never negative and never called a count of records. Kafka does not
tell when a group committed, so "no commit" means: the committed offset was not seen to move (ADR 0202).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from statistics import median

from relay.domain.words import say_duration
from relay.types import Aspect, LagPoint, LagWord, Trend, Verdict

ASPECTS = {
    LagWord.DATA_LOSS: Aspect.BAD,
    LagWord.STOPPED: Aspect.BAD,
    LagWord.STALLED: Aspect.BAD,
    LagWord.REWOUND: Aspect.WARN,
    LagWord.FALLING_BEHIND: Aspect.WARN,
    LagWord.UNKNOWN: Aspect.UNKNOWN,
    LagWord.OK: Aspect.OK,
    LagWord.IDLE: Aspect.IDLE,
}
WORST_FIRST = tuple(ASPECTS)
TREND_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRules:
    """The bounds that verdicts depend on, seconds and offsets. `zone` is for the times that a reason names."""

    window_s: float
    min_samples: int
    no_member_after_s: float
    recent_points: int
    zone: tzinfo = UTC

    def stretched_to(self, interval_s: float) -> "LagRules":
        """Widen the window so that it holds enough samples when passes are `interval_s` apart."""
        return replace(self, window_s=max(self.window_s, interval_s * (self.min_samples + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a partition's past says beyond the window. Times are when a pass saw it.

    `waiting_since`: an estimate of when the record at the committed offset was appended.
    """

    first_seen_at: datetime
    committed_at: datetime | None = None
    appended_at: datetime | None = None
    waiting_since: datetime | None = None
    rising_since: datetime | None = None
    rewound_from: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """All that the rules look at. `points` are the readings of the window, oldest first, the last one now.

    `group_unmoved_s`: since when no commit of the whole group was seen. `alone`: it is the group's only partition.
    `no_member_s`: since when the group has no member, None = it has.
    `tolerated_unattended`: the lag that a group without members may keep (0 unless set).
    """

    points: Sequence[LagPoint]
    memory: Memory
    allowed: int
    tolerated_unattended: int
    group_unmoved_s: float
    no_member_s: float | None
    owned: bool
    rules: LagRules
    alone: bool = False

    @property
    def now(self) -> LagPoint:
        """The newest reading."""
        return self.points[-1]

    @property
    def unmoved_s(self) -> float:
        """Since when the committed offset was not seen to move."""
        return unmoved_s(self.memory, self.now.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Offsets a second, over the window; None = too little is known, or the offset went backwards."""

    in_per_s: float | None
    out_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """How long until the lag is 0 at these rates; `seconds` None: `words` say why."""

    seconds: float | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLag:
    """Age of the oldest unprocessed record."""

    seconds: float | None
    estimated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPartition:
    """What a group's verdict is made of."""

    topic: str
    partition: int
    lag: int | None
    word: LagWord
    reason: str


# -- Numbers -----------------------------------------------------------------------------------------------
def offset_distance(committed: int | None, end: int | None) -> int | None:
    """Lag: the distance from the committed offset to the log's end, never negative; None when one is not known."""
    if committed is None or end is None:
        return None
    return max(0, end - committed)


def point_lag(point: LagPoint) -> int | None:
    """Lag of one reading."""
    return offset_distance(point.committed, point.end)


def total_lag(lags: Iterable[int | None]) -> int | None:
    """Sum of the known lags; None when none is known."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def lag_skew(lags: Iterable[int | None]) -> float | None:
    """The largest lag over the mean: 1.0 = even, n = all of it in one of n partitions; None when there is no lag."""
    known = [lag for lag in lags if lag is not None]
    total = sum(known)
    return max(known) * len(known) / total if total else None


def measure_rates(points: Sequence[LagPoint]) -> Rates:
    """What was appended and committed a second between the first and the last reading that has both."""
    whole = [point for point in points if point.committed is not None and point.end is not None]
    if len(whole) < 2 or whole[-1].at <= whole[0].at:
        return Rates(in_per_s=None, out_per_s=None)
    span_s = (whole[-1].at - whole[0].at).total_seconds()
    appended = (whole[-1].end or 0) - (whole[0].end or 0)
    committed = (whole[-1].committed or 0) - (whole[0].committed or 0)
    return Rates(
        in_per_s=appended / span_s if appended >= 0 else None,
        out_per_s=committed / span_s if committed >= 0 else None,
    )


def plan_drain(lag: int | None, in_per_s: float | None, out_per_s: float | None) -> Drain:
    """Tell when the lag will be 0 if both rates stay: lag / (out - in); never a negative time.

    Source: worked-numbers, rows "drain" and "drain that never ends".
    """
    if lag is None:
        return Drain(seconds=None, words="unknown")
    if lag == 0:
        return Drain(seconds=None, words="nothing to do") if in_per_s == 0 else Drain(seconds=0.0, words="now")
    if in_per_s is None or out_per_s is None:
        return Drain(seconds=None, words="unknown")
    if in_per_s >= out_per_s:
        return Drain(seconds=None, words="never at this rate")
    seconds = lag / (out_per_s - in_per_s)
    return Drain(seconds=seconds, words=say_duration(seconds))


def lag_trend(points: Sequence[LagPoint]) -> Trend:
    """Where the lag goes over the points: the middle value of their last third against that of the first (ADR 0206).

    A change below `TREND_SHARE` of the first is steady, unless no step of the whole window goes the other way.
    """
    lags = [lag for point in points if (lag := point_lag(point)) is not None]
    if len(lags) < 2:
        return Trend.UNKNOWN
    third = max(1, len(lags) // 3)
    first, last = median(lags[:third]), median(lags[-third:])
    enough = TREND_SHARE * first
    if last > first and (last - first > enough or _is_monotone(lags)):
        return Trend.RISING
    if last < first and (first - last > enough or _is_monotone(lags[::-1])):
        return Trend.FALLING
    return Trend.STEADY


def _is_monotone(lags: Sequence[int]) -> bool:
    return all(before <= after for before, after in pairwise(lags))


def time_lag_of(point: LagPoint, memory: Memory, rates: Rates, appended_at: datetime | None) -> TimeLag:
    """Age of the record at the committed offset.

    `appended_at` is when our relay had it acknowledged. Without it (a foreign record) the age is an estimate: from
    when its offset was seen to appear, else lag / rate in.
    """
    lag = point_lag(point)
    if lag is None:
        return TimeLag(seconds=None, estimated=True)
    if lag == 0:
        return TimeLag(seconds=0.0, estimated=False)
    since = appended_at or memory.waiting_since
    if since is not None:
        return TimeLag(seconds=max(0.0, (point.at - since).total_seconds()), estimated=appended_at is None)
    return TimeLag(seconds=lag / rates.in_per_s if rates.in_per_s else None, estimated=True)


def with_gaps(points: Sequence[LagPoint], gap_s: float) -> list[LagPoint]:
    """Put a point without numbers where readings are more than `gap_s` apart, so that no line hides the gap."""
    filled: list[LagPoint] = []
    for point in points:
        if filled and (point.at - filled[-1].at).total_seconds() > gap_s:
            middle = filled[-1].at + (point.at - filled[-1].at) / 2
            filled.append(LagPoint(at=middle, committed=None, begin=None, end=None))
        filled.append(point)
    return filled


# -- Memory ------------------------------------------------------------------------------------------------
def is_another_log(before: LagPoint | None, now: LagPoint) -> bool:
    """Whether the log was made anew: an end that may be read never goes back in the same log."""
    return before is not None and before.end is not None and now.end is not None and now.end < before.end


def keep_recent(points: Sequence[LagPoint], now: LagPoint, rules: LagRules) -> list[LagPoint]:
    """Readings of the window up to `now`, at most `recent_points`, oldest first."""
    if points and is_another_log(points[-1], now):
        return [now]
    oldest = now.at - timedelta(seconds=rules.window_s)
    return [*(p for p in points if oldest <= p.at < now.at), now][-rules.recent_points :]


def remember(memory: Memory | None, before: Sequence[LagPoint], now: LagPoint) -> Memory:
    """Fold one reading into the memory. `before`: earlier readings, oldest first."""
    last = before[-1] if before else None
    if memory is None or is_another_log(last, now):
        return Memory(first_seen_at=now.at)
    if last is None:
        return memory
    return Memory(
        first_seen_at=memory.first_seen_at,
        committed_at=now.at if now.committed != last.committed else memory.committed_at,
        appended_at=now.at if now.end != last.end else memory.appended_at,
        waiting_since=_waiting_since(memory, before, now),
        rising_since=_rising_since(memory, [*before, now]),
        rewound_from=_rewound_from(memory, last, now),
    )


def unmoved_s(memory: Memory, now: datetime) -> float:
    """Seconds since the committed offset was last seen to move, or since the partition was first seen."""
    return max(0.0, (now - (memory.committed_at or memory.first_seen_at)).total_seconds())


def _waiting_since(memory: Memory, before: Sequence[LagPoint], now: LagPoint) -> datetime | None:
    if not point_lag(now):
        return None
    if now.committed == before[-1].committed and memory.waiting_since is not None:
        return memory.waiting_since
    return _appended_at(now.committed or 0, [*before, now])


def _appended_at(offset: int, points: Sequence[LagPoint]) -> datetime | None:
    """When `offset` appeared, between the last reading that ended at or before it and the next; None = earlier."""
    ends = [(point.at, point.end) for point in points if point.end is not None]
    for (at, end), (next_at, next_end) in pairwise(ends):
        if end <= offset < next_end:
            return at + (next_at - at) * ((offset + 1 - end) / (next_end - end))
    return None


def _rising_since(memory: Memory, points: Sequence[LagPoint]) -> datetime | None:
    """Since when the lag is neither zero nor falling, by the trend of the window: one lower reading ends nothing."""
    if any(not point_lag(point) for point in points[-2:]) or lag_trend(points) is Trend.FALLING:
        return None
    return memory.rising_since or points[-2].at


def _rewound_from(memory: Memory, last: LagPoint, now: LagPoint) -> int | None:
    if now.committed is None:
        return None
    highest = max(memory.rewound_from or 0, last.committed or 0)
    went_back = last.committed is not None and now.committed < last.committed
    if went_back or memory.rewound_from is not None:
        return highest if now.committed < highest else None
    return None


# -- Verdicts ----------------------------------------------------------------------------------------------
def judge_partition(facts: PartitionFacts) -> Verdict:
    """Apply the rules in their order (`docs/adr/0202`); the first that holds gives the verdict."""
    for rule in _RULES:
        found = rule(facts)
        if found is not None:
            return found
    return _above_but_moving(facts)


def judge_group(partitions: Sequence[JudgedPartition], error: str) -> Verdict:
    """A group takes its worst partition, and names it with what it says; `error`: why the group was not read."""
    if error:
        return lag_verdict(LagWord.UNKNOWN, f"could not be read: {error}")
    if not partitions:
        return lag_verdict(LagWord.UNKNOWN, "no partition is assigned and nothing is committed")
    worst = min(partitions, key=lambda p: (WORST_FIRST.index(p.word), -(p.lag or 0), p.topic, p.partition))
    if worst.word in {LagWord.OK, LagWord.IDLE}:
        return lag_verdict(worst.word, worst.reason)
    more = sum(p.word is worst.word for p in partitions) - 1
    return lag_verdict(
        worst.word, f"{worst.topic} {worst.partition}, {worst.reason}" + (f"; and {more} more" if more else "")
    )


def lag_verdict(word: LagWord, reason: str) -> Verdict:
    """A verdict with the aspect of its word."""
    return Verdict(aspect=ASPECTS[word], word=word.value, reason=reason)


def _data_loss(facts: PartitionFacts) -> Verdict | None:
    now = facts.now
    if now.committed is None or now.begin is None or now.committed >= now.begin:
        return None
    return lag_verdict(
        LagWord.DATA_LOSS, f"offsets {now.committed:,} to {now.begin - 1:,} were deleted before they were read"
    )


def _not_known(facts: PartitionFacts) -> Verdict | None:
    now = facts.now
    if now.end is None:
        return lag_verdict(LagWord.UNKNOWN, "the log's end could not be read")
    if now.committed is None:
        return lag_verdict(LagWord.UNKNOWN, f"nothing committed yet, {now.end - (now.begin or 0):,} in the log")
    return None


def _no_member(facts: PartitionFacts) -> Verdict | None:
    lag = point_lag(facts.now) or 0
    alone_s = min(facts.no_member_s or 0.0, facts.unmoved_s)
    if lag <= facts.tolerated_unattended or alone_s < facts.rules.no_member_after_s:
        return None
    moved_at = facts.memory.committed_at or facts.memory.first_seen_at
    grows = facts.memory.appended_at is not None and facts.memory.appended_at > moved_at
    if not grows and facts.unmoved_s < facts.rules.window_s:
        return None
    return lag_verdict(LagWord.STOPPED, f"no member, {lag:,} waiting")


def _too_few_samples(facts: PartitionFacts) -> Verdict | None:
    seen = sum(point_lag(point) is not None for point in facts.points)
    if seen >= facts.rules.min_samples:
        return None
    since = facts.points[0].at.astimezone(facts.rules.zone)
    return lag_verdict(LagWord.UNKNOWN, f"{seen} of {facts.rules.min_samples} samples since {since:%H:%M:%S}")


def _rewound(facts: PartitionFacts) -> Verdict | None:
    back = facts.memory.rewound_from
    committed = facts.now.committed or 0
    if back is None or committed >= back:
        return None
    return lag_verdict(LagWord.REWOUND, f"committed {committed:,} after {back:,}, {back - committed:,} to read again")


def _idle(facts: PartitionFacts) -> Verdict | None:
    quiet_s = (facts.now.at - (facts.memory.appended_at or facts.memory.first_seen_at)).total_seconds()
    if point_lag(facts.now) or quiet_s < _seen_window_s(facts):
        return None
    at_least = "" if facts.memory.appended_at else "at least "
    return lag_verdict(LagWord.IDLE, f"nothing published for {at_least}{say_duration(quiet_s)}")


def _within_allowed(facts: PartitionFacts) -> Verdict | None:
    lag = point_lag(facts.now) or 0
    if lag > facts.allowed:
        return None
    return lag_verdict(LagWord.OK, f"within {facts.allowed:,}" if lag else "caught up")


def _stopped(facts: PartitionFacts) -> Verdict | None:
    unmoved, window_s = facts.unmoved_s, facts.rules.window_s
    if unmoved < window_s:
        return None
    waiting = f"no commit for {say_duration(unmoved)}, {point_lag(facts.now) or 0:,} waiting"
    if not facts.owned:
        return lag_verdict(LagWord.STOPPED, f"no owner, {waiting}")
    # The only partition of a group that has an owner cannot tell of the others: its owner is there and hangs.
    if facts.group_unmoved_s >= window_s and not facts.alone:
        return lag_verdict(LagWord.STOPPED, waiting)
    return None


def _stalled(facts: PartitionFacts) -> Verdict | None:
    if facts.unmoved_s < facts.rules.window_s or not _never_zero(facts):
        return None
    waiting = point_lag(facts.now) or 0
    return lag_verdict(LagWord.STALLED, f"no commit for {say_duration(facts.unmoved_s)}, {waiting:,} waiting")


def _falling_behind(facts: PartitionFacts) -> Verdict | None:
    since = facts.memory.rising_since
    if since is None or not _never_zero(facts):
        return None
    rising_s = (facts.now.at - since).total_seconds()
    if rising_s < facts.rules.window_s:
        return None
    first, last = facts.points[0], facts.now
    span_s = (last.at - first.at).total_seconds()
    grown = (point_lag(last) or 0) - (point_lag(first) or 0)
    a_minute = round(grown * 60 / span_s) if span_s else 0
    rises = a_minute > 0 and lag_trend(facts.points) is Trend.RISING
    how = f"+{a_minute:,} a minute" if rises else f"{point_lag(last) or 0:,} waiting and not fewer"
    return lag_verdict(LagWord.FALLING_BEHIND, f"{how} for {say_duration(rising_s)}")


def _above_but_moving(facts: PartitionFacts) -> Verdict:
    if facts.points[0].committed == facts.now.committed:
        how = f"last commit {say_duration(facts.unmoved_s)} ago"
    else:
        how = "draining" if lag_trend(facts.points) is Trend.FALLING else "moving"
    return lag_verdict(LagWord.OK, f"{point_lag(facts.now) or 0:,} waiting, {how}")


_RULES = (
    _data_loss,
    _not_known,
    _no_member,
    _too_few_samples,
    _rewound,
    _idle,
    _within_allowed,
    _stopped,
    _stalled,
    _falling_behind,
)


def _seen_window_s(facts: PartitionFacts) -> float:
    """The window, or as much of it as this partition was watched."""
    watched_s = (facts.now.at - facts.memory.first_seen_at).total_seconds()
    return min(facts.rules.window_s, watched_s)


def _never_zero(facts: PartitionFacts) -> bool:
    return all(point_lag(point) != 0 for point in facts.points)
