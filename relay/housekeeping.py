"""Keep the outbox small and honest: drop partitions that everybody has passed, look for repeated event ids."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable

from relay.incidents import open_incident
from relay.types import IncidentKind

log = structlog.get_logger(__name__)

_OLDEST = """
SELECT name::text, from_position, to_position FROM relay_outbox_partition ORDER BY from_position LIMIT %s
"""
# Positions follow the clock of the inserts, so the newest row of a partition is the last one of some shard.
_IS_OVER = """
SELECT coalesce(max(r.created_at) < clock_timestamp() - make_interval(secs => %(retention_s)s), true)
FROM relay_checkpoint c CROSS JOIN LATERAL (
    SELECT o.created_at FROM relay_outbox o
    WHERE o.shard = c.shard AND o.position >= %(first)s AND o.position < %(next)s
    ORDER BY o.position DESC LIMIT 1) r
"""
_OBSTACLE = """
WITH place AS MATERIALIZED (
    SELECT shard, NULL::text AS topic, snapshot, late_floor FROM relay_checkpoint
    UNION ALL
    SELECT h.shard, h.topic, h.snapshot, c.late_floor FROM relay_hold h JOIN relay_checkpoint c ON c.shard = h.shard
), late AS (
    SELECT 1 FROM relay_outbox o JOIN place p ON p.shard = o.shard AND (p.topic IS NULL OR p.topic = o.topic)
    WHERE o.position >= %(first)s AND o.position < %(next)s AND o.position > p.late_floor
      AND o.xid >= (SELECT min(pg_snapshot_xmin(snapshot)) FROM place)
      AND NOT pg_visible_in_snapshot(o.xid, p.snapshot)
    LIMIT 1
)
SELECT CASE
    WHEN EXISTS (SELECT 1 FROM relay_checkpoint WHERE hw < %(next)s - 1) THEN 'a shard has not passed it'
    WHEN EXISTS (SELECT 1 FROM relay_hold WHERE hw < %(next)s - 1) THEN 'a held topic has not passed it'
    WHEN EXISTS (SELECT 1 FROM relay_deferred WHERE position >= %(first)s AND position < %(next)s)
        THEN 'a deferred row is in it'
    WHEN EXISTS (SELECT 1 FROM late) THEN 'a row in it was not read yet'
    ELSE '' END
"""
# Transactions that are over, in the order of their ids: each row is looked at once, however late it was committed.
# A pair counts when the later row of it is looked at.
_SCAN = """
WITH at AS MATERIALIZED (
    SELECT xid, shard, position FROM relay_duplicate_scan
), slice AS MATERIALIZED (
    SELECT r.xid, r.shard, r.position FROM at, relay_outbox r
    WHERE (r.xid, r.shard, r.position) > (at.xid, at.shard, at.position)
      AND r.xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY r.xid, r.shard, r.position LIMIT %(rows)s
), pair AS MATERIALIZED (
    SELECT a.topic, a.id,
        (a.topic, a.key, a.type, a.partition, a.headers, a.payload, a.content_type) IS NOT DISTINCT FROM
        (b.topic, b.key, b.type, b.partition, b.headers, b.payload, b.content_type) AS is_same
    FROM slice s
    CROSS JOIN LATERAL (
        SELECT * FROM relay_outbox r WHERE r.shard = s.shard AND r.position = s.position OFFSET 0) a
    CROSS JOIN LATERAL (
        SELECT * FROM relay_outbox r WHERE r.id = a.id
          AND (r.xid, r.shard, r.position) < (s.xid, s.shard, s.position) LIMIT %(pairs)s) b
), moved AS (
    UPDATE relay_duplicate_scan d SET xid = l.xid, shard = l.shard, position = l.position,
        repeats = d.repeats + (SELECT count(*) FROM pair WHERE is_same)
    FROM (SELECT * FROM slice ORDER BY xid DESC, shard DESC, position DESC LIMIT 1) l
)
SELECT (SELECT count(*) FROM slice),
       ARRAY(SELECT ARRAY[topic, id::text] FROM (SELECT DISTINCT topic, id FROM pair WHERE NOT is_same LIMIT 20) c)
"""
# After a restore the ids that were reached belong to another server.
_SCAN_RESTORED = """
UPDATE relay_duplicate_scan SET xid = pg_snapshot_xmin(pg_current_snapshot()), shard = 0, position = 0
WHERE xid > pg_snapshot_xmax(pg_current_snapshot())
"""
PAIRS_A_ROW = 100


@dataclass(frozen=True, slots=True)
class _Partition:
    name: str
    first: int
    next: int

    def params(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "next": self.next,
            "retention_s": settings.RELAY_OUTBOX_RETENTION.total_seconds(),
        }


# -- Purge -------------------------------------------------------------------------------------------------
def purge_outbox() -> int:
    """Drop the oldest partitions of the outbox as far as every check allows; how many were dropped.

    Checked under a lock that no open writer shares: every shard and held topic is past the partition, no row in it is
    deferred or unread by any stored snapshot, and `RELAY_OUTBOX_RETENTION` is over for its newest row. A lock that is
    not to be had within `RELAY_PURGE_LOCK_MS` is tried again; publishers wait no longer than that.
    """
    dropped = 0
    for partition in _list_oldest():
        obstacle = _find_obstacle(partition) or _drop_when_free(partition)
        if obstacle:
            log.debug("relay.partition_kept", partition=partition.name, why=obstacle)
            break
        log.info("relay.partition_dropped", partition=partition.name)
        dropped += 1
    return dropped


def _list_oldest() -> list[_Partition]:
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST, [settings.RELAY_PURGE_PARTITIONS])
        return [_Partition(*row) for row in cursor.fetchall()]


def _find_obstacle(partition: _Partition) -> str:
    """Say why the partition must stay; empty = it may go."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('enable_seqscan', 'off', true)")
        cursor.execute(_OBSTACLE, partition.params())
        obstacle: str = cursor.fetchone()[0]
        if not obstacle:
            cursor.execute(_IS_OVER, partition.params())
            obstacle = "" if cursor.fetchone()[0] else "its retention is not over"
        cursor.execute("SELECT set_config('enable_seqscan', 'on', true)")
    return obstacle


def _drop_when_free(partition: _Partition) -> str:
    for attempt in range(settings.RELAY_PURGE_TRIES):
        if attempt:
            time.sleep(settings.RELAY_PURGE_PAUSE_MS / 1000)
        try:
            return _drop(partition)
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise
    return "a transaction holds the outbox"


def _drop(partition: _Partition) -> str:
    """Lock, check again, drop; an open writer's row may have been committed while the lock was waited for."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{settings.RELAY_PURGE_LOCK_MS}ms"])
        # The table first, as every reader and writer does; the drop needs both.
        cursor.execute("LOCK TABLE ONLY relay_outbox IN ACCESS EXCLUSIVE MODE")
        cursor.execute(f"LOCK TABLE ONLY {partition.name} IN ACCESS EXCLUSIVE MODE")
        obstacle = _find_obstacle(partition)
        if not obstacle:
            cursor.execute(f"DROP TABLE {partition.name}")
        return obstacle


# -- Repeated event ids ------------------------------------------------------------------------------------
def find_duplicate_ids() -> int:
    """Look through rows of finished transactions for repeated event ids; how many conflicts there were.

    The same id with the same record is a caller's retry and is counted; with another topic, key, type, bytes or
    headers it is an incident. Works in slices for at most `RELAY_DUPLICATE_SCAN_S` and goes on there next time.
    """
    until = time.monotonic() + settings.RELAY_DUPLICATE_SCAN_S
    found = 0
    rows = settings.RELAY_DUPLICATE_SCAN_ROWS
    while rows == settings.RELAY_DUPLICATE_SCAN_ROWS and time.monotonic() < until:
        rows, conflicts = _scan_slice()
        for topic, event_id in conflicts:
            _tell_conflict(topic, event_id)
        found += len(conflicts)
    return found


def _scan_slice() -> tuple[int, Sequence[tuple[str, str]]]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)")
        cursor.execute(_SCAN_RESTORED)
        cursor.execute(_SCAN, {"rows": settings.RELAY_DUPLICATE_SCAN_ROWS, "pairs": PAIRS_A_ROW})
        rows, conflicts = cursor.fetchone()
        cursor.execute("SELECT set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true)")
    return rows, conflicts


def _tell_conflict(topic: str, event_id: str) -> None:
    open_incident(
        IncidentKind.RELAY_DUPLICATE_ID,
        topic,
        title=f"Two different events of {topic} carry the same id",
        meaning=f"Event {event_id} was published twice with different content. Consumers that drop repeats by id keep "
        "only the one they saw first.",
        action="Correct the writer that reuses ids, publish the lost change again under a new id, then take this: that "
        "closes it.",
        link="/relay/",
    )
