"""The tables of lag samples: one partition a day, made ahead and dropped after their retention."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import structlog
from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg import sql

log = structlog.get_logger(__name__)
LOCK_TIMEOUT_MS = 200

_CHILDREN = """
SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
WHERE inhparent = to_regclass(%s) ORDER BY child.relname
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A table of samples: one row a series and `unit` ("" = every pass), kept for `retention`."""

    table: str
    unit: str
    step_s: float
    retention: timedelta


def resolutions() -> tuple[Resolution, Resolution, Resolution]:
    """Raw samples, minutes, hours: the finest first."""
    raw_step_s = float(settings.LAG_COLLECT_EVERY_S)
    return (
        Resolution(table="relay_lag_sample", unit="", step_s=raw_step_s, retention=settings.LAG_RAW_RETENTION),
        Resolution(table="relay_lag_minute", unit="minute", step_s=60, retention=settings.LAG_MINUTE_RETENTION),
        Resolution(table="relay_lag_hour", unit="hour", step_s=3_600, retention=settings.LAG_HOUR_RETENTION),
    )


def make_days_ahead(now: datetime) -> int:
    """Make the partitions of today and of the days ahead that are not there; how many were made.

    Attached, not created in place: that takes no lock that stops a reader or a writer of the other days.
    """
    today = now.astimezone(UTC).date()
    made = 0
    for resolution in resolutions():
        there = set(_days_of(resolution.table))
        for ahead in range(settings.LAG_PARTITIONS_AHEAD_DAYS + 1):
            day = today + timedelta(days=ahead)
            if day not in there:
                _make_day(resolution.table, day)
                made += 1
    return made


def drop_old_days(now: datetime) -> int:
    """Drop the partitions whose last row is past its retention; how many were dropped.

    A partition that is being read keeps its turn: the next call tries again.
    """
    dropped = 0
    for resolution in resolutions():
        oldest_kept = (now - resolution.retention).astimezone(UTC).date()
        for day in _days_of(resolution.table):
            if day < oldest_kept:
                dropped += _drop_day(resolution.table, day)
    return dropped


def _days_of(table: str) -> Iterator[date]:
    with connection.cursor() as cursor:
        cursor.execute(_CHILDREN, [table])
        names = [row[0] for row in cursor.fetchall()]
    for name in names:
        yield datetime.strptime(name.removeprefix(f"{table}_"), "%Y%m%d").replace(tzinfo=UTC).date()


def _make_day(table: str, day: date) -> None:
    names = {"table": sql.Identifier(table), "part": sql.Identifier(f"{table}_{day:%Y%m%d}")}
    begin = datetime.combine(day, time(), UTC)
    bounds = {"begin": sql.Literal(begin), "end": sql.Literal(begin + timedelta(days=1))}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {part} (LIKE {table} INCLUDING ALL)").format(**names))
        cursor.execute(
            sql.SQL("ALTER TABLE {table} ATTACH PARTITION {part} FOR VALUES FROM ({begin}) TO ({end})").format(
                **names, **bounds
            )
        )


def _drop_day(table: str, day: date) -> bool:
    part = sql.Identifier(f"{table}_{day:%Y%m%d}")
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(f"{LOCK_TIMEOUT_MS}ms")))
            cursor.execute(sql.SQL("DROP TABLE {}").format(part))
    except OperationalError:
        log.info("lag.day_is_read", table=table, day=day.isoformat())
        return False
    return True
