"""The relay's history: a sample every few seconds, kept as it is, by the minute and by the hour.

Who samples: `run_if_due` says when; a lock in the database lets one transaction at a time write, and it looks again.
A minute's or hour's row is what its samples say together: see `relay.domain.history.merge_readings`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from relay.domain.history import Reading, plan_points
from relay.errors import BadHistoryRange
from relay.processes import process_name
from relay.queries import count_appended_per_s, get_relay_status, sum_stats
from relay.sweeps import run_if_due
from relay.types import RelayPoint, Role

FORGET_EVERY_S = 3_600
# A tick that comes a little early still counts: without this every second tick would find the sample not due.
TICK_SLACK_S = 0.5
# A runner's figures of the last second may not be committed yet: they count with the next sample.
SETTLE_S = 1.0
GAP_STEPS = 2.5
# A unit is fine enough for a chart when its rows are at most this many times as far apart as the points.
COARSER = 2.0

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('relay.sample', 0))"
_LAST = "SELECT at FROM relay_sample WHERE unit = 'sample' ORDER BY bucket DESC LIMIT 1"
_SENT = "SELECT sent, buckets FROM relay_stat WHERE at > %s AND at <= %s"
_WRITE = """
INSERT INTO relay_sample AS kept (unit, bucket, at, span_s, unsent, unsent_capped, oldest_age_s, written, sent, buckets)
SELECT unit, CASE unit WHEN 'sample' THEN %(at)s ELSE date_trunc(unit, %(at)s, 'UTC') END, %(at)s, %(span_s)s,
       %(unsent)s, %(unsent_capped)s, %(oldest_age_s)s, %(written)s, %(sent)s, %(buckets)s::bigint[]
FROM unnest(ARRAY['sample', 'minute', 'hour']) AS unit
ON CONFLICT (unit, bucket) DO UPDATE
SET at = greatest(kept.at, excluded.at), span_s = kept.span_s + excluded.span_s,
    unsent = greatest(kept.unsent, excluded.unsent),
    unsent_capped = kept.unsent_capped OR excluded.unsent_capped,
    oldest_age_s = greatest(kept.oldest_age_s, excluded.oldest_age_s),
    written = kept.written + excluded.written, sent = kept.sent + excluded.sent,
    buckets = ARRAY(SELECT a + b FROM unnest(kept.buckets, excluded.buckets) WITH ORDINALITY AS n (a, b, i) ORDER BY i)
"""
_READ = """
SELECT at, span_s, unsent, unsent_capped, oldest_age_s, written, sent, buckets FROM relay_sample
WHERE unit = %s AND bucket >= %s AND bucket < %s ORDER BY bucket
"""
_FORGET = "DELETE FROM relay_sample WHERE unit = %s AND bucket < clock_timestamp() - make_interval(secs => %s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """Rows of one kind: how far apart they are and how long they are kept."""

    name: str
    step_s: float
    retention: timedelta


def sample_relay() -> bool:
    """Write one sample when it is due and nobody else writes one; True when it was written here."""
    every_s = settings.RELAY_SAMPLE_EVERY_S - TICK_SLACK_S
    runner = process_name(Role.WORKER)
    ran = run_if_due("relay.sample", every_s=every_s, runner=runner, job=_sample)
    run_if_due("relay.forget_samples", every_s=FORGET_EVERY_S, runner=runner, job=_forget)
    return ran


def get_relay_history(*, since: datetime, until: datetime, max_points: int) -> list[RelayPoint]:
    """The relay in [since, until), oldest first, at most `max_points` points (and a marker a gap).

    From samples, minutes or hours, whichever is enough and still kept.

    Raises:
        BadHistoryRange: the times are naive or the wrong way round, or `max_points` is out of its bounds.
    """
    _check_range(since, until, max_points)
    step_s = (until - since).total_seconds() / max_points
    unit = _unit_for(since, step_s)
    with connection.cursor() as cursor:
        cursor.execute(_READ, [unit.name, since, until])
        readings = [_reading(row) for row in cursor.fetchall()]
    step_s = max(step_s, unit.step_s)
    return plan_points(readings, since=since, step=timedelta(seconds=step_s), gap=timedelta(seconds=GAP_STEPS * step_s))


# -- Writing -----------------------------------------------------------------------------------------------
@transaction.atomic
def _sample() -> None:
    """Read and write one sample; nothing when another process did so a moment ago."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK)
        cursor.execute(_LAST)
        row = cursor.fetchone()
    status = get_relay_status()
    every_s = float(settings.RELAY_SAMPLE_EVERY_S)
    span_s = (status.as_of - row[0]).total_seconds() if row else every_s
    if span_s < every_s - TICK_SLACK_S:
        return
    # What a runner sent longer ago is forgotten: a longer absence is no span of rates.
    span_s = min(span_s, float(settings.RELAY_STAT_RETENTION_S))
    sent, buckets = _sent_within(status.as_of, span_s)
    _write(
        Reading(
            at=status.as_of,
            span_s=span_s,
            unsent=status.unsent.value,
            unsent_capped=status.unsent.capped,
            oldest_age_s=status.oldest.age_s if status.oldest else None,
            written=(count_appended_per_s(min(span_s, every_s)) or 0.0) * span_s,
            sent=sent,
            buckets=buckets,
        )
    )


def _sent_within(as_of: datetime, span_s: float) -> tuple[int, list[int]]:
    """Rows sent in `span_s` seconds up to `SETTLE_S` before `as_of`, and their latencies."""
    until = as_of - timedelta(seconds=SETTLE_S)
    with connection.cursor() as cursor:
        cursor.execute(_SENT, [until - timedelta(seconds=span_s), until])
        return sum_stats(cursor.fetchall())


def _write(reading: Reading) -> None:
    """Add a reading to the samples, to its minute and to its hour."""
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, {name: getattr(reading, name) for name in Reading.__slots__})


def _forget() -> None:
    with connection.cursor() as cursor:
        for unit in _units():
            cursor.execute(_FORGET, [unit.name, unit.retention.total_seconds()])


# -- Reading -----------------------------------------------------------------------------------------------
def _units() -> tuple[_Unit, ...]:
    """The finest first."""
    return (
        _Unit(name="sample", step_s=float(settings.RELAY_SAMPLE_EVERY_S), retention=settings.RELAY_SAMPLE_RETENTION),
        _Unit(name="minute", step_s=60, retention=settings.RELAY_SAMPLE_MINUTE_RETENTION),
        _Unit(name="hour", step_s=3_600, retention=settings.RELAY_SAMPLE_HOUR_RETENTION),
    )


def _unit_for(since: datetime, step_s: float) -> _Unit:
    """The coarsest unit that is fine enough for `step_s`, or the finest that still keeps `since`."""
    age = datetime.now(UTC) - since
    kept = [unit for unit in _units() if unit.retention >= age] or [_units()[-1]]
    return next((unit for unit in reversed(kept) if unit.step_s <= COARSER * step_s), kept[0])


def _reading(row: tuple[Any, ...]) -> Reading:
    at, span_s, unsent, capped, oldest_age_s, written, sent, buckets = row
    return Reading(
        at=at,
        span_s=span_s,
        unsent=unsent,
        unsent_capped=capped,
        oldest_age_s=oldest_age_s,
        written=written,
        sent=sent,
        buckets=buckets,
    )


def _check_range(since: datetime, until: datetime, max_points: int) -> None:
    if since.tzinfo is None or until.tzinfo is None or since >= until:
        raise BadHistoryRange("The relay's history needs two times with a zone, the earlier one first")
    if not 1 <= max_points <= settings.RELAY_HISTORY_POINTS_MAX:
        raise BadHistoryRange(
            f"The relay's history has 1 to {settings.RELAY_HISTORY_POINTS_MAX} points, not {max_points}"
        )
