"""Repeated jobs that run once at a time, whoever calls them: beat, a page that looks, a command."""

from collections.abc import Callable

import structlog
from django.db import connection, transaction

from relay.types import SweepView

log = structlog.get_logger(__name__)


def run_if_due(name: str, *, every_s: float, runner: str, job: Callable[[], None]) -> bool:
    """Run `job` when the sweep `name` last started at least `every_s` ago and nobody runs it now.

    The sweep's row is locked (SKIP LOCKED) for the claim only; a job that dies leaves its start behind, and the
    next caller runs it again when it is due. `job` must be safe to run twice.

    Returns:
        True when the job ran here.

    Raises:
        Exception: what `job` raised, after it was recorded in the sweep's row.
    """
    if not _claim(name, every_s, runner):
        return False
    try:
        job()
    except Exception as error:
        _finish(name, f"{type(error).__name__}")
        raise
    _finish(name, "")
    return True


def last_finished_age_s(name: str) -> float | None:
    """Seconds since the sweep last finished, by the database clock; None = never."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM clock_timestamp() - last_finished_at)::float FROM relay_sweep WHERE name = %s",
            [name],
        )
        row = cursor.fetchone()
    return row[0] if row else None


def list_sweeps() -> list[SweepView]:
    """Every sweep that ever ran, by name; the names are a closed set in code, so the list is short."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, runner, extract(epoch FROM clock_timestamp() - last_started_at)::float,"
            " extract(epoch FROM clock_timestamp() - last_finished_at)::float, took_ms, error"
            " FROM relay_sweep ORDER BY name LIMIT 200"
        )
        rows = cursor.fetchall()
    return [
        SweepView(name=n, runner=r, started_age_s=started, finished_age_s=ended, took_ms=took, error=e)
        for n, r, started, ended, took, e in rows
    ]


def _claim(name: str, every_s: float, runner: str) -> bool:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_sweep (name, runner, error) VALUES (%s, '', '') ON CONFLICT DO NOTHING", [name]
        )
        cursor.execute(
            "UPDATE relay_sweep SET last_started_at = clock_timestamp(), runner = %s"
            " WHERE name = (SELECT name FROM relay_sweep WHERE name = %s AND (last_started_at IS NULL"
            " OR last_started_at <= clock_timestamp() - make_interval(secs => %s)) FOR UPDATE SKIP LOCKED)",
            [runner[:120], name, every_s],
        )
        return bool(cursor.rowcount == 1)


def _finish(name: str, error: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_sweep SET last_finished_at = clock_timestamp(), error = %s, took_ms ="
            " least(2147483647, extract(epoch FROM clock_timestamp() - last_started_at) * 1000)::int WHERE name = %s",
            [error, name],
        )
