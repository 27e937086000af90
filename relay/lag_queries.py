"""Reads of lag: what pages, the watch and charts show. Numbers that are not fresh are not shown (I6)."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models.expressions import RawSQL

from relay.domain.lag import (
    WORST_FIRST,
    JudgedPartition,
    judge_group,
    lag_skew,
    lag_verdict,
    offset_distance,
    total_lag,
    with_gaps,
)
from relay.domain.words import say_duration
from relay.errors import BadHistoryRange
from relay.lag_days import Resolution, resolutions
from relay.models import AllowedLag, LagGroup, LagLatest
from relay.types import GroupLag, LagOverview, LagPoint, LagWord, PartitionLag, Trend

GAP_STEPS = 2.5
History = Mapping[int, Sequence[LagPoint]]

# Points of one bucket: the one with the greatest lag, so that a peak stays on the chart.
_HISTORY = """
SELECT DISTINCT ON (latest.partition, bin) latest.partition, date_bin(make_interval(secs => %s), s.bucket, %s) AS bin,
       s.at, s.committed, s.begin_offset, s.end_offset
FROM {table} s JOIN relay_lag_latest latest ON latest.id = s.series
WHERE latest.group_name = %s AND latest.topic = %s AND s.bucket >= %s AND s.bucket < %s
ORDER BY latest.partition, bin, greatest(0, s.end_offset - s.committed) DESC NULLS LAST, s.at
"""
_SPARKS = """
SELECT series, at, committed, begin_offset, end_offset FROM relay_lag_minute
WHERE series = ANY(%s) AND bucket > clock_timestamp() - make_interval(mins => %s) ORDER BY series, bucket
"""
_TROUBLES = """
SELECT id FROM relay_lag_latest WHERE word NOT IN ('ok', 'idle', 'unknown') OR error <> ''
UNION (SELECT id FROM relay_lag_latest ORDER BY greatest(0, end_offset - committed) DESC NULLS LAST LIMIT 1)
"""
_LAST = """
SELECT finished_at, extract(epoch FROM clock_timestamp() - finished_at)::float, collector, pass_s, interval_s,
       errors::text
FROM relay_lag_pass WHERE id = 1
"""


def get_lag_overview() -> LagOverview:
    """All groups, worst first, each partition with its last hour (a point a minute); five queries.

    The `LAG_SPARK_SERIES` worst partitions have a history; the others' is empty.
    """
    rows = _latest_rows()
    worst = sorted(rows, key=_badness)[: settings.LAG_SPARK_SERIES]
    return _overview(rows, _sparks([row.pk for row in worst]))


def get_lag_state() -> LagOverview:
    """The overview without histories; four queries."""
    return _overview(_latest_rows(), {})


def get_lag_troubles() -> LagOverview:
    """The overview of what needs somebody: of each group only the partitions whose verdict or error says so.

    The partition with the most lag of all is there too. A group without any is ok; four queries, and their cost grows
    with what is wrong, not with what is there.
    """
    rows = list(LagLatest.objects.defer("recent").filter(pk__in=RawSQL(_TROUBLES, [])).order_by("id"))  # noqa: S611
    found = _overview(rows, {})
    calm = lag_verdict(LagWord.OK, "no partition needs anybody")
    return replace(found, groups=[g if g.partitions or g.error else replace(g, verdict=calm) for g in found.groups])


def get_lag_history(
    group: str, *, topic: str, since: datetime, until: datetime, max_points: int = 300
) -> dict[int, list[LagPoint]]:
    """Readings of each partition in [since, until), oldest first, at most `max_points` (and a marker a gap).

    From raw samples, minutes or hours, whichever is enough and still kept. A point stands for its bucket's greatest
    lag; a point without numbers marks a time without readings.

    Raises:
        BadHistoryRange: the times are naive or the wrong way round, or `max_points` is out of its bounds.
    """
    _check_range(since, until, max_points)
    span_s = (until - since).total_seconds()
    resolution = _resolution_for(since, span_s / max_points)
    step_s = max(resolution.step_s, span_s / max_points)
    found: dict[int, list[LagPoint]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_HISTORY.format(table=resolution.table), [step_s, since, group, topic, since, until])
        for partition, _bin, *point in cursor.fetchall():
            found[partition].append(_point(point))
    gap_s = GAP_STEPS * max(step_s, _interval_s())
    return {partition: with_gaps(points, gap_s) for partition, points in found.items()}


def get_allowed_lag(group: str) -> int:
    """The lag (offsets) within which a group is ok: what a person set, else `LAG_ALLOWED_DEFAULT`."""
    found = AllowedLag.objects.filter(pk=group).values_list("value", flat=True).first()
    return int(settings.LAG_ALLOWED_DEFAULT) if found is None else found


# -- The overview ------------------------------------------------------------------------------------------
def _latest_rows() -> list[LagLatest]:
    return list(LagLatest.objects.defer("recent").order_by("group", "topic", "partition"))


def _overview(rows: Sequence[LagLatest], sparks: History) -> LagOverview:
    finished_at, age_s, collector, pass_s, interval_s, errors = _last_pass()
    stale = _stale_words(age_s, interval_s)
    allowed = dict(AllowedLag.objects.values_list("group", "value"))
    by_group: dict[str, list[LagLatest]] = defaultdict(list)
    for row in rows:
        by_group[row.group].append(row)
    groups = [
        _group_view(group, by_group[group.name], sparks, allowed.get(group.name), stale)
        for group in LagGroup.objects.order_by("name")
    ]
    return LagOverview(
        as_of=finished_at,
        age_s=age_s,
        collector=collector or None,
        pass_s=pass_s,
        groups=sorted(groups, key=_group_badness),
        errors=[*errors, *([f"Nothing newer than this is shown: {stale}"] if stale else [])],
    )


def _last_pass() -> tuple[datetime | None, float | None, str, float | None, float, list[str]]:
    with connection.cursor() as cursor:
        cursor.execute(_LAST)
        row = cursor.fetchone()
    if row is None:
        return None, None, "", None, float(settings.LAG_COLLECT_EVERY_S), []
    *own, errors = row
    finished_at, age_s, collector, pass_s, interval_s = own
    return finished_at, age_s, collector, pass_s, interval_s, json.loads(errors)


def _interval_s() -> float:
    return _last_pass()[4]


def _stale_words(age_s: float | None, interval_s: float) -> str:
    """Why the last pass is too old to be shown, or ""."""
    if age_s is None or age_s <= interval_s * settings.LAG_STALE_PASSES:
        return ""
    return f"no reading for {say_duration(age_s)}"


def _group_view(
    group: LagGroup, rows: Sequence[LagLatest], sparks: History, allowed: int | None, stale: str
) -> GroupLag:
    error = stale or group.error
    partitions = sorted((_partition_view(row, sparks, error) for row in rows), key=_partition_badness)
    lags = [partition.lag for partition in partitions]
    judged = [
        JudgedPartition(
            topic=p.topic, partition=p.partition, lag=p.lag, word=LagWord(p.verdict.word), reason=p.verdict.reason
        )
        for p in partitions
    ]
    return GroupLag(
        group=group.name,
        state="Unknown" if error else group.state,
        protocol=group.protocol,
        members=0 if error else group.members,
        allowed_lag=settings.LAG_ALLOWED_DEFAULT if allowed is None else allowed,
        total_lag=total_lag(lags),
        skew=lag_skew(lags),
        verdict=judge_group(judged, error),
        partitions=partitions,
        as_of=group.at,
        error=error or None,
    )


def _partition_view(row: LagLatest, sparks: History, group_error: str) -> PartitionLag:
    history = with_gaps(sparks.get(row.pk, ()), GAP_STEPS * 60)
    error = group_error or row.error
    if error:
        return _hidden_partition(row, history, error)
    return PartitionLag(
        topic=row.topic,
        partition=row.partition,
        committed=row.committed,
        begin=row.begin,
        end=row.end,
        lag=offset_distance(row.committed, row.end),
        time_lag_s=row.time_lag_s,
        time_lag_estimated=row.time_lag_estimated,
        in_per_min=row.in_per_min,
        out_per_min=row.out_per_min,
        drain_s=row.drain_s,
        drain_words=row.drain_words,
        owner=row.owner,
        verdict=lag_verdict(LagWord(row.word), row.reason),
        history=history,
        as_of=row.at,
        trend=Trend(row.trend),
    )


def _hidden_partition(row: LagLatest, history: Sequence[LagPoint], error: str) -> PartitionLag:
    """What is left of a partition that could not be read: its name, its past and the reason."""
    return PartitionLag(
        topic=row.topic,
        partition=row.partition,
        committed=None,
        begin=None,
        end=None,
        lag=None,
        time_lag_s=None,
        time_lag_estimated=True,
        in_per_min=None,
        out_per_min=None,
        drain_s=None,
        drain_words="unknown",
        owner=None,
        verdict=lag_verdict(LagWord.UNKNOWN, f"could not be read: {error}"),
        history=history,
        as_of=row.at,
        error=error,
    )


def _badness(row: LagLatest) -> tuple[int, int]:
    return WORST_FIRST.index(LagWord(row.word)), -(offset_distance(row.committed, row.end) or 0)


def _partition_badness(partition: PartitionLag) -> tuple[int, int, str, int]:
    rank = WORST_FIRST.index(LagWord(partition.verdict.word))
    return rank, -(partition.lag or 0), partition.topic, partition.partition


def _group_badness(group: GroupLag) -> tuple[int, int, str]:
    return WORST_FIRST.index(LagWord(group.verdict.word)), -(group.total_lag or 0), group.group


# -- History -----------------------------------------------------------------------------------------------
def _sparks(series: Sequence[int]) -> dict[int, list[LagPoint]]:
    found: dict[int, list[LagPoint]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_SPARKS, [list(series), settings.LAG_SPARK_POINTS])
        for key, *point in cursor.fetchall():
            found[key].append(_point(point))
    return found


def _point(columns: Sequence[Any]) -> LagPoint:
    at, committed, begin, end = columns
    return LagPoint(at=at, committed=committed, begin=begin, end=end)


def _check_range(since: datetime, until: datetime, max_points: int) -> None:
    if since.tzinfo is None or until.tzinfo is None:
        raise BadHistoryRange("The times of a lag history need a time zone")
    if since >= until:
        raise BadHistoryRange("A lag history must begin before it ends")
    if not 1 <= max_points <= settings.LAG_HISTORY_POINTS_MAX:
        raise BadHistoryRange(f"A lag history has 1 to {settings.LAG_HISTORY_POINTS_MAX} points, not {max_points}")


def _resolution_for(since: datetime, step_s: float) -> Resolution:
    """The coarsest table that is fine enough for `step_s`, or the finest that still keeps `since`."""
    age_s = max(0.0, (datetime.now(since.tzinfo) - since).total_seconds())
    kept = [r for r in resolutions() if r.retention.total_seconds() >= age_s] or [resolutions()[-1]]
    enough = [r for r in kept if r.step_s <= max(step_s, kept[0].step_s)]
    return enough[-1]
