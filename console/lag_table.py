"""What the Lag page shows of the collector's overview: filtered, counted, said in a sentence, cut to a page. Pure."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from console.charts import Series, Sparkline, sparkline
from console.words import count_words, join_words
from relay.types import Aspect, GroupLag, LagOverview, LagPoint, LagWord, PartitionLag, Trend, Verdict

SPARK_POINTS = 60
HOUR_PIECES = 6
HOUR_PIECE = timedelta(minutes=10)
SENTENCE_PARTITIONS = 2
UNREAD_NAMES = 5
UNREAD_REASONS = 10

_WORST_FIRST = [word.value for word in LagWord]
_NEEDS_SOMEONE = (Aspect.BAD, Aspect.WARN)
_SAID = {LagWord.DATA_LOSS.value: "has lost data", LagWord.FALLING_BEHIND.value: "falls behind"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LagFilter:
    """What the page is narrowed to; empty text = any. `verdict` is a verdict's word."""

    group: str = ""
    topic: str = ""
    verdict: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCount:
    """How many partitions have a verdict."""

    word: str
    aspect: Aspect
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One line of the table: where its lag goes in words, and its sparkline over the last hour.

    `hour`: the greatest lag of each piece of the hour, oldest first (the sparkline's table); None = not known.
    """

    lag: PartitionLag
    trend: str
    spark: Sparkline
    spark_words: str
    hour: Sequence[int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBlock:
    """A group's head and the partitions shown below it; `hidden` more of it match and are not shown."""

    group: GroupLag
    rows: Sequence[PartitionRow]
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTable:
    """One page of the table. `matching` partitions in all; `pages` is at least 1."""

    blocks: Sequence[GroupBlock]
    matching: int
    page: int
    pages: int
    hour_ends: Sequence[datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Groups that could not be read for one reason: some names, how many more, and when the oldest was read last."""

    error: str
    names: Sequence[str]
    more: int
    as_of: datetime


# -- Counting and saying -----------------------------------------------------------------------------------
def list_partitions(groups: Sequence[GroupLag]) -> list[tuple[GroupLag, PartitionLag]]:
    """Every partition whose group could be read, with its group."""
    return [(group, partition) for group in groups if not group.error for partition in group.partitions]


def list_unread(groups: Sequence[GroupLag]) -> list[Unread]:
    """The groups that show nothing, together where the reason is the same; the most first."""
    by_error: dict[str, list[GroupLag]] = {}
    for group in groups:
        if group.error:
            by_error.setdefault(group.error, []).append(group)
    return [
        Unread(
            error=error,
            names=[group.group for group in found[:UNREAD_NAMES]],
            more=max(0, len(found) - UNREAD_NAMES),
            as_of=min(group.as_of for group in found),
        )
        for error, found in sorted(by_error.items(), key=lambda item: -len(item[1]))[:UNREAD_REASONS]
    ]


def count_verdicts(groups: Sequence[GroupLag]) -> list[VerdictCount]:
    """How many partitions have each verdict, worst first."""
    found = Counter((p.verdict.aspect, p.verdict.word) for _, p in list_partitions(groups))
    counts = [VerdictCount(word=word, aspect=aspect, count=count) for (aspect, word), count in found.items()]
    return sorted(counts, key=lambda c: _WORST_FIRST.index(c.word))


def lead_sentence(overview: LagOverview) -> str:
    """Say in one breath which partitions need somebody, and how the others stand."""
    partitions = list_partitions(overview.groups)
    if overview.as_of is None:
        return "No group has been read yet, so nothing is known of its lag."
    if not partitions:
        return "No consumer group could be read lately." if overview.groups else "No consumer group is known."
    troubled = sorted(
        ((group, p) for group, p in partitions if p.verdict.aspect in _NEEDS_SOMEONE),
        key=lambda pair: worst_first(pair[1]),
    )
    if not troubled:
        return f"No partition needs you. {_say_counts('the', partitions)}{_say_waiting(partitions)}"
    return f"{_name_troubled(troubled)} {_name_rest(partitions)}".rstrip()


def _name_troubled(troubled: Sequence[tuple[GroupLag, PartitionLag]]) -> str:
    named = [
        f"{p.topic} {p.partition} {_SAID.get(p.verdict.word, f'is {p.verdict.word}')} for {group.group}"
        for group, p in troubled[:SENTENCE_PARTITIONS]
    ]
    more = len(troubled) - len(named)
    if more:
        named.append(f"{more} more {'needs' if more == 1 else 'need'} a look")
    return f"{join_words(named)}."


def _name_rest(partitions: Sequence[tuple[GroupLag, PartitionLag]]) -> str:
    rest = [(group, p) for group, p in partitions if p.verdict.aspect not in _NEEDS_SOMEONE]
    return _say_counts("the other", rest) if rest else ""


def _say_counts(which: str, partitions: Sequence[tuple[GroupLag, PartitionLag]]) -> str:
    found = Counter(p.verdict.word for _, p in partitions)
    ordered = sorted(found.items(), key=lambda item: (-item[1], _WORST_FIRST.index(item[0])))
    total = count_words(len(partitions), "partition")
    if len(ordered) == 1:
        return f"{which.capitalize()} {total} {_is(len(partitions))} {ordered[0][0]}."
    return f"Of {which} {total} {join_words([f'{count:,} {_is(count)} {word}' for word, count in ordered])}."


def _say_waiting(partitions: Sequence[tuple[GroupLag, PartitionLag]]) -> str:
    """What waits although every verdict is calm: more than the groups are allowed."""
    late = [p.lag for group, p in partitions if p.lag is not None and p.lag > group.allowed_lag]
    if not late:
        return ""
    return f" {count_words(sum(late), 'record waits', 'records wait')} on {len(late):,} over their allowed lag."


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


# -- The table ---------------------------------------------------------------------------------------------
def lag_table(
    groups: Sequence[GroupLag], wanted: LagFilter, *, now: datetime, page_rows: int, group_rows: int
) -> LagTable:
    """Cut the table to a page of at most `page_rows` partitions, worst first inside each group.

    While no group is chosen each group shows at most `group_rows` of its own, so that a wide healthy group
    does not push a sick one off the page; the rest is counted.
    """
    found = [(group, _matching(group, wanted)) for group in groups if not group.error]
    cap = math.inf if wanted.group else group_rows
    shown = [(group, p) for group, matching in found for place, p in enumerate(matching) if place < cap]
    pages = max(1, math.ceil(len(shown) / page_rows))
    page = min(wanted.page, pages)
    hidden = {group.group: max(0, len(matching) - group_rows) for group, matching in found if len(matching) > cap}
    part = shown[(page - 1) * page_rows : page * page_rows]
    blocks = [
        GroupBlock(group=group, rows=[_row(group, p, now) for p in partitions], hidden=hidden.get(group.group, 0))
        for group, partitions in _by_group(part)
    ]
    return LagTable(
        blocks=blocks,
        matching=sum(len(matching) for _, matching in found),
        page=page,
        pages=pages,
        hour_ends=[now - HOUR_PIECE * left for left in reversed(range(HOUR_PIECES))],
    )


def _by_group(pairs: Sequence[tuple[GroupLag, PartitionLag]]) -> Iterator[tuple[GroupLag, list[PartitionLag]]]:
    for _, same in groupby(pairs, key=lambda pair: pair[0].group):
        members = list(same)
        yield members[0][0], [partition for _, partition in members]


def _matching(group: GroupLag, wanted: LagFilter) -> list[PartitionLag]:
    if wanted.group and group.group != wanted.group:
        return []
    found = (
        p
        for p in group.partitions
        if (not wanted.topic or p.topic == wanted.topic) and (not wanted.verdict or p.verdict.word == wanted.verdict)
    )
    return sorted(found, key=worst_first)


def worst_first(partition: PartitionLag) -> tuple[int, int, str, int]:
    """A sort key: the worst verdict first, then the largest lag."""
    place = _WORST_FIRST.index(partition.verdict.word)
    return (place, -(partition.lag or 0), partition.topic, partition.partition)


def _row(group: GroupLag, partition: PartitionLag, now: datetime) -> PartitionRow:
    recent = [lag_of(point) for point in partition.history if point.at >= now - timedelta(hours=1)]
    known = [value for value in recent if value is not None]
    words = f"lag over the last hour: lowest {min(known):,}, highest {max(known):,}" if known else "no samples yet"
    return PartitionRow(
        lag=partition,
        trend=trend_words(partition),
        spark=sparkline(recent, at_least=group.allowed_lag, most=SPARK_POINTS),
        spark_words=f"{partition.topic} {partition.partition}: {words}",
        hour=_hour(partition.history, now),
    )


def trend_words(partition: PartitionLag) -> str:
    """Where the lag goes, with its number: "rising, +12 / min"."""
    if partition.lag == 0:
        return "none"
    word = partition.trend.value
    if partition.trend not in (Trend.RISING, Trend.FALLING):
        return word
    if partition.in_per_min is None or partition.out_per_min is None:
        return word
    change = partition.in_per_min - partition.out_per_min
    agrees = change > 0 if partition.trend is Trend.RISING else change < 0
    return f"{word}, {change:+,.0f} / min" if agrees else word


def _hour(history: Sequence[LagPoint], now: datetime) -> list[int | None]:
    pieces: list[int | None] = [None] * HOUR_PIECES
    for point in history:
        back, lag = int((now - point.at) / HOUR_PIECE), lag_of(point)
        if lag is not None and 0 <= back < HOUR_PIECES:
            place = HOUR_PIECES - 1 - back
            pieces[place] = max(pieces[place] or 0, lag)
    return pieces


def lag_of(point: LagPoint) -> int | None:
    """The lag of a sample; None where an offset is not known. Never negative."""
    if point.committed is None or point.end is None:
        return None
    return max(0, point.end - point.committed)


# -- The chart ---------------------------------------------------------------------------------------------
def chart_series(history: Mapping[int, Sequence[LagPoint]], partitions: Sequence[PartitionLag]) -> list[Series]:
    """One line a partition; those that need somebody carry their verdict at the end."""
    verdicts = {p.partition: p.verdict for p in partitions}
    return [_series(number, points, verdicts.get(number)) for number, points in sorted(history.items())]


def _series(number: int, points: Sequence[LagPoint], verdict: Verdict | None) -> Series:
    aspect = verdict.aspect if verdict else Aspect.UNKNOWN
    return Series(
        name=str(number),
        state=aspect.value,
        samples=[(point.at, lag_of(point)) for point in points],
        note=verdict.word if verdict and aspect in _NEEDS_SOMEONE else "",
    )


def chart_words(series: Sequence[Series]) -> str:
    """Describe the chart for those who do not see it: each loud line's end, and the peak of all."""
    known = [(value, when, one) for one in series for when, value in one.samples if value is not None]
    if not known:
        return "No sample in this window."
    loud = [f"Partition {one.name} is {one.note}, at {one.samples[-1][1]:,}." for one in series if _ends_loud(one)]
    value, _, one = max(known, key=lambda item: item[0])
    return " ".join([*loud[:5], f"The highest lag in the window is {value:,}, partition {one.name}."])


def _ends_loud(one: Series) -> bool:
    return bool(one.note and one.samples and one.samples[-1][1] is not None)
