"""Collect lag: one pass reads the cluster, judges every partition and writes what pages read.

Who collects: `run_if_due` says when, the lease in `relay_lag_pass` says who. A pass that lost its lease (another one
has a higher epoch) writes nothing. A pass that takes long makes the next one come later.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from relay.domain.lag import (
    LagRules,
    Memory,
    PartitionFacts,
    Rates,
    judge_partition,
    keep_recent,
    lag_trend,
    lag_verdict,
    measure_rates,
    plan_drain,
    point_lag,
    remember,
    time_lag_of,
    unmoved_s,
)
from relay.errors import AsideDied, BadAllowedLag
from relay.kafka.admin import ClusterReading, GroupReading, LogEnds, Place, read_cluster
from relay.kafka.aside import run_aside
from relay.lag_days import drop_old_days, make_days_ahead, resolutions
from relay.models import AllowedLag, LagGroup, LagLatest, LagPass
from relay.processes import process_name
from relay.signals import lag_changed
from relay.sweeps import run_if_due
from relay.types import LagPoint, LagWord, Role, Trend

log = structlog.get_logger(__name__)

GROUP_CHARS_MAX = 249
_SAME_NAME = (
    *("topic", "partition", "at", "committed", "error", "owner", "word", "reason", "trend", "in_per_min"),
    *("out_per_min", "drain_s", "drain_words", "time_lag_s", "time_lag_estimated", "recent", *Memory.__slots__),
)
SERIES_COLUMNS = {"group": "group_name", "begin": "begin_offset", "end": "end_offset"} | {n: n for n in _SAME_NAME}
DROP_DAYS_EVERY_S = 3_600
# A tick that comes a little early still counts: without this every second tick would find the pass not due.
TICK_SLACK_S = 0.5

_CLAIM = """
UPDATE relay_lag_pass SET epoch = epoch + 1, collector = %s,
       lease_until = clock_timestamp() + make_interval(secs => %s)
WHERE id = 1 AND (lease_until IS NULL OR lease_until < clock_timestamp()) RETURNING epoch
"""
_FINISH = """
UPDATE relay_lag_pass SET finished_at = clock_timestamp(), pass_s = %s, interval_s = %s, errors = %s::jsonb,
       lease_until = NULL
WHERE id = 1 AND epoch = %s RETURNING finished_at
"""
_COLUMNS = ", ".join(SERIES_COLUMNS.values())
_UPSERT = f"""
INSERT INTO relay_lag_latest ({_COLUMNS})
SELECT {_COLUMNS} FROM jsonb_populate_recordset(NULL::relay_lag_latest, %s::jsonb)
ON CONFLICT (group_name, topic, partition) DO UPDATE
SET ({_COLUMNS}) = ROW ({", ".join(f"excluded.{column}" for column in SERIES_COLUMNS.values())})
"""  # noqa: S608 - the columns above, no input
_SAMPLE = """
INSERT INTO {table} AS kept (series, bucket, at, committed, begin_offset, end_offset)
SELECT id, {bucket}, at, committed, begin_offset, end_offset FROM relay_lag_latest
WHERE at = %s AND end_offset IS NOT NULL
ON CONFLICT (series, bucket) DO UPDATE
SET at = excluded.at, committed = excluded.committed, begin_offset = excluded.begin_offset,
    end_offset = excluded.end_offset
WHERE coalesce(excluded.end_offset - excluded.committed, 0) > coalesce(kept.end_offset - kept.committed, 0)
"""

_APPENDED = """
SELECT asked.topic, asked.partition, asked.place, found.first_acked_at
FROM unnest(%s::text[], %s::integer[], %s::bigint[]) AS asked (topic, partition, place)
CROSS JOIN LATERAL (
    SELECT first_acked_at, to_offset FROM relay_range r
    WHERE r.topic = asked.topic AND r.partition = asked.partition AND r.from_offset <= asked.place
    ORDER BY r.from_offset DESC LIMIT 1
) found
WHERE found.to_offset >= asked.place
"""

SeriesKey = tuple[str, str, int]
"""(group, topic, partition)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """What earlier passes left."""

    groups: Mapping[str, LagGroup]
    series: Mapping[SeriesKey, LagLatest]
    allowed: Mapping[str, int]
    appended: Mapping[tuple[str, int, int], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """One readable partition of this pass, with its past."""

    place: Place
    owner: str | None
    points: Sequence[LagPoint]
    memory: Memory
    appended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Company:
    """What a partition is judged by beside itself: its group as a whole."""

    unmoved_s: float
    alone: bool
    allowed: int | None


# -- The pass ----------------------------------------------------------------------------------------------
def collect_lag() -> bool:
    """Run one pass when it is due and nobody else runs one; True when it ran here.

    At most `LAG_PASS_LIMIT_S` seconds. What Kafka does not answer is stored as an error, never raised.
    """
    runner = process_name(Role.WORKER)
    return run_if_due("lag", every_s=_interval_s() - TICK_SLACK_S, runner=runner, job=lambda: _collect(runner))


def _interval_s() -> float:
    found = LagPass.objects.filter(pk=1).values_list("interval_s", flat=True).first()
    return found or float(settings.LAG_COLLECT_EVERY_S)


def _collect(runner: str) -> None:
    epoch = _claim(runner)
    if epoch is None:
        return
    try:
        started = time.monotonic()
        reading = _ask_cluster()
        _store(epoch, reading, time.monotonic() - started)
    finally:
        LagPass.objects.filter(pk=1, epoch=epoch).update(lease_until=None)
    run_if_due("lag_days", every_s=DROP_DAYS_EVERY_S, runner=runner, job=_drop_days)


def _ask_cluster() -> ClusterReading:
    try:
        return run_aside(read_cluster)
    except AsideDied as error:
        return ClusterReading(groups=[], ends={}, errors=[f"Nothing was read: {error}"], complete=False)


def _claim(runner: str) -> int | None:
    LagPass.objects.bulk_create([LagPass(id=1, interval_s=settings.LAG_COLLECT_EVERY_S)], ignore_conflicts=True)
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, [runner[:120], settings.LAG_LEASE_S])
        row = cursor.fetchone()
    return row[0] if row else None


def _store(epoch: int, reading: ClusterReading, pass_s: float) -> None:
    make_days_ahead(_database_now())
    interval_s = max(float(settings.LAG_COLLECT_EVERY_S), 2 * pass_s)
    with transaction.atomic():
        at = _finish(epoch, reading.errors, pass_s, interval_s)
        if at is None:
            log.warning("lag.lease_lost", epoch=epoch)
            return
        before = _read_before(reading)
        groups, series = _judge_all(reading, before, at, _rules(interval_s))
        _write_groups(groups)
        _write_series(series)
        _write_samples(at)
        _forget_gone(reading, before, series)
        transaction.on_commit(lambda: lag_changed.send(sender=LagPass), robust=True)


def _finish(epoch: int, errors: Sequence[str], pass_s: float, interval_s: float) -> datetime | None:
    """End the pass in the caller's transaction; None when the lease was lost. The row stays locked to its end."""
    with connection.cursor() as cursor:
        cursor.execute(_FINISH, [pass_s, interval_s, json.dumps(list(errors)), epoch])
        row = cursor.fetchone()
    return row[0] if row else None


def _read_before(reading: ClusterReading) -> _Before:
    return _Before(
        groups=LagGroup.objects.in_bulk(),
        series={(row.group, row.topic, row.partition): row for row in LagLatest.objects.all()},
        allowed=dict(AllowedLag.objects.values_list("group", "value")),
        appended=_appended_at(reading),
    )


def _appended_at(reading: ClusterReading) -> dict[tuple[str, int, int], datetime]:
    """When the record at a committed offset was acknowledged to our relay: (topic, partition, offset) -> time."""
    waiting = {
        (*place, committed)
        for group in reading.groups
        for place, committed in group.committed.items()
        if committed is not None and committed < (reading.ends[place].end or 0)
    }
    if not waiting:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_APPENDED, [list(column) for column in zip(*sorted(waiting), strict=True)])
        return {(topic, partition, place): at for topic, partition, place, at in cursor.fetchall()}


def _rules(interval_s: float) -> LagRules:
    rules = LagRules(
        window_s=settings.LAG_WINDOW_S,
        min_samples=settings.LAG_MIN_SAMPLES,
        no_member_after_s=settings.LAG_NO_MEMBER_AFTER_S,
        recent_points=settings.LAG_RECENT_POINTS,
        zone=timezone.get_default_timezone(),
    )
    return rules.stretched_to(interval_s)


# -- Judging -----------------------------------------------------------------------------------------------
def _judge_all(
    reading: ClusterReading, before: _Before, at: datetime, rules: LagRules
) -> tuple[list[LagGroup], list[LagLatest]]:
    groups = [_group_row(group, before, at) for group in reading.groups if _is_storable(group.group)]
    series = [
        row
        for reading_of_group, stored in zip((g for g in reading.groups if _is_storable(g.group)), groups, strict=True)
        for row in _series_rows(reading_of_group, stored, reading.ends, before, rules)
    ]
    return groups, series


def _is_storable(group: str) -> bool:
    """Text of PostgreSQL holds no NUL; such a group is Kafka's but nobody's here."""
    return "\0" not in group


def _group_row(group: GroupReading, before: _Before, at: datetime) -> LagGroup:
    known = before.groups.get(group.group)
    alone = group.members == 0 and not group.error
    return LagGroup(
        name=group.group,
        state=group.state,
        protocol=group.protocol,
        members=group.members,
        no_member_since=((known and known.no_member_since) or at) if alone else None,
        at=at,
        error=group.error,
    )


def _series_rows(
    group: GroupReading, stored: LagGroup, ends: Mapping[Place, LogEnds], before: _Before, rules: LagRules
) -> list[LagLatest]:
    watched, unreadable = [], []
    for place, committed in group.committed.items():
        known = before.series.get((group.group, *place))
        log_ends = ends[place]
        error = group.partition_errors.get(place, "") or log_ends.error
        if error:
            unreadable.append(_unreadable_row(group.group, place, known, error, stored.at))
            continue
        now = LagPoint(at=stored.at, committed=committed, begin=log_ends.begin, end=log_ends.end)
        appended = before.appended.get((*place, committed or 0))
        watched.append(_watch(place, known, now, rules, owner=group.owners.get(place), appended=appended))
    moved = min((unmoved_s(w.memory, stored.at) for w in watched), default=0.0)
    ours = _Company(unmoved_s=moved, alone=len(group.committed) == 1, allowed=before.allowed.get(group.group))
    judged = [_judged_row(stored, w, ours, rules) for w in watched]
    return [*judged, *unreadable]


def _watch(
    place: Place,
    known: LagLatest | None,
    now: LagPoint,
    rules: LagRules,
    *,
    owner: str | None,
    appended: datetime | None,
) -> _Watched:
    points = [_unpack(packed) for packed in known.recent] if known else []
    return _Watched(
        place=place,
        owner=owner,
        points=keep_recent(points, now, rules),
        memory=remember(_memory(known) if known else None, points, now),
        appended_at=appended,
    )


def _judged_row(stored: LagGroup, watched: _Watched, company: _Company, rules: LagRules) -> LagLatest:
    points, memory, now = watched.points, watched.memory, watched.points[-1]
    alone_s = (stored.at - stored.no_member_since).total_seconds() if stored.no_member_since else None
    verdict = judge_partition(
        PartitionFacts(
            points=points,
            memory=memory,
            allowed=settings.LAG_ALLOWED_DEFAULT if company.allowed is None else company.allowed,
            tolerated_unattended=company.allowed or 0,
            group_unmoved_s=company.unmoved_s,
            alone=company.alone,
            no_member_s=alone_s,
            owned=watched.owner is not None,
            rules=rules,
        )
    )
    enough = len(points) >= rules.min_samples
    rates = measure_rates(points) if enough else Rates(in_per_s=None, out_per_s=None)
    drain = plan_drain(point_lag(now), rates.in_per_s, rates.out_per_s)
    time_lag = time_lag_of(now, memory, rates, watched.appended_at)
    return LagLatest(
        group=stored.name,
        topic=watched.place[0],
        partition=watched.place[1],
        at=now.at,
        committed=now.committed,
        begin=now.begin,
        end=now.end,
        owner=watched.owner,
        word=verdict.word,
        reason=verdict.reason,
        trend=lag_trend(points) if enough else Trend.UNKNOWN,
        in_per_min=_per_minute(rates.in_per_s),
        out_per_min=_per_minute(rates.out_per_s),
        drain_s=drain.seconds,
        drain_words=drain.words,
        time_lag_s=time_lag.seconds,
        time_lag_estimated=time_lag.estimated,
        recent=[_pack(point) for point in points],
        **_remembered(memory),
    )


def _unreadable_row(group: str, place: Place, known: LagLatest | None, error: str, at: datetime) -> LagLatest:
    """Nothing rather than old numbers; the memory stays for the pass that reads it again."""
    verdict = lag_verdict(LagWord.UNKNOWN, f"could not be read: {error}")
    return LagLatest(
        group=group,
        topic=place[0],
        partition=place[1],
        at=at,
        error=error,
        word=verdict.word,
        reason=verdict.reason,
        trend=Trend.UNKNOWN,
        drain_words="unknown",
        recent=known.recent if known else [],
        **_remembered(_memory(known) if known else Memory(first_seen_at=at)),
    )


def _memory(row: LagLatest) -> Memory:
    return Memory(
        first_seen_at=row.first_seen_at,
        committed_at=row.committed_at,
        appended_at=row.appended_at,
        waiting_since=row.waiting_since,
        rising_since=row.rising_since,
        rewound_from=row.rewound_from,
    )


def _remembered(memory: Memory) -> dict[str, object]:
    return {name: getattr(memory, name) for name in Memory.__slots__}


def _pack(point: LagPoint) -> list[int | None]:
    return [round(point.at.timestamp() * 1000), point.committed, point.begin, point.end]


def _unpack(packed: Sequence[int | None]) -> LagPoint:
    at_ms, committed, begin, end = packed
    return LagPoint(at=datetime.fromtimestamp((at_ms or 0) / 1000, UTC), committed=committed, begin=begin, end=end)


def _per_minute(per_s: float | None) -> float | None:
    return None if per_s is None else per_s * 60


# -- Writing -----------------------------------------------------------------------------------------------
def _write_groups(groups: Sequence[LagGroup]) -> None:
    LagGroup.objects.bulk_create(
        groups,
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["state", "protocol", "members", "no_member_since", "at", "error"],
        batch_size=settings.LAG_WRITE_ROWS,
    )


def _write_series(series: Sequence[LagLatest]) -> None:
    """Upsert the rows as JSON: a tenth of what Django's upsert of as many rows and columns takes."""
    with connection.cursor() as cursor:
        for at in range(0, len(series), settings.LAG_WRITE_ROWS):
            rows = [
                {column: getattr(row, name) for name, column in SERIES_COLUMNS.items()}
                for row in series[at : at + settings.LAG_WRITE_ROWS]
            ]
            cursor.execute(_UPSERT, [json.dumps(rows, default=str)])


def _write_samples(at: datetime) -> None:
    with connection.cursor() as cursor:
        for resolution in resolutions():
            bucket = f"date_trunc('{resolution.unit}', at, 'UTC')" if resolution.unit else "at"
            cursor.execute(_SAMPLE.format(table=resolution.table, bucket=bucket), [at])


def _forget_gone(reading: ClusterReading, before: _Before, series: Sequence[LagLatest]) -> None:
    """Delete what Kafka no longer has. A group that an incomplete list lacks is marked unreadable instead."""
    listed = {group.group: group for group in reading.groups}
    missing = [name for name in before.groups if name not in listed]
    if not reading.complete:
        LagGroup.objects.filter(name__in=missing).update(error=reading.errors[0])
        missing = []
    there = {(row.group, row.topic, row.partition) for row in series}
    unread = {name for name, group in listed.items() if group.error}
    kept_groups = unread | set(before.groups) - set(listed) - set(missing)
    gone = [row.id for key, row in before.series.items() if key not in there and row.group not in kept_groups]
    LagGroup.objects.filter(name__in=missing).delete()
    LagLatest.objects.filter(pk__in=gone).delete()


def _drop_days() -> None:
    drop_old_days(_database_now())


def _database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


# -- Allowed lag -------------------------------------------------------------------------------------------
def set_allowed_lag(group: str, value: int, *, actor: str) -> None:
    """Set the lag (offsets) within which a group is ok. Idempotent; the next pass judges by it.

    The group need not exist yet.

    Raises:
        BadAllowedLag: the value, the group's name or the actor cannot be; the text says what may.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= settings.LAG_ALLOWED_MAX:
        raise BadAllowedLag(f"Allowed lag must be a whole number from 0 to {settings.LAG_ALLOWED_MAX:,}, not {value!r}")
    if not group or len(group) > GROUP_CHARS_MAX or not _is_storable(group):
        raise BadAllowedLag(f"A group's name has 1 to {GROUP_CHARS_MAX} characters and no NUL")
    if not actor:
        raise BadAllowedLag("Say who sets the allowed lag: `actor` is empty")
    AllowedLag.objects.update_or_create(
        group=group, defaults={"value": value, "set_by": actor[:150], "set_at": _database_now()}
    )
    transaction.on_commit(lambda: lag_changed.send(sender=AllowedLag), robust=True)
