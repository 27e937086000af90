"""Reads of the relay. Every probe is bounded and stays on its index: see tests/integration/test_relay_plans.py."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from relay.domain.histogram import SIZE, quantile_ms
from relay.domain.relay_verdict import Facts, explain_waiting, judge_relay
from relay.keys import label_key
from relay.types import (
    CappedCount,
    DeferredKey,
    RelayStatus,
    RunnerView,
    ShardView,
    TopicHold,
    TopicUnsent,
    UnsentRow,
)

DEFERRED_SHOWN = 100
HOLDS_SHOWN = 100
RECENT_ROWS_A_SHARD = 32
OPEN_TRANSACTION_SHOWN_S = 10

# Unsent, as positions: above hw (primary key), late for the stored snapshot (index xid, shard, position), deferred,
# and held rows that their shard's place has passed. Each part stops at its limit. OFFSET 0 keeps the look-up of rows
# one probe a row: estimates are far off here, and a hash join would read the whole table.
UNSENT = """
WITH c AS MATERIALIZED (
    SELECT shard, hw, snapshot, greatest(late_floor, late_cursor) AS late_after FROM relay_checkpoint
), bound AS MATERIALIZED (
    SELECT min(pg_snapshot_xmax(snapshot)) AS min_xmax, max(hw) AS max_hw, min(late_after) AS min_after,
           ARRAY(SELECT DISTINCT pg_snapshot_xip(snapshot) FROM c) AS xips FROM c
), fresh AS MATERIALIZED (
    SELECT c.shard, r.position FROM c CROSS JOIN LATERAL (
        SELECT o.position FROM relay_outbox o WHERE o.shard = c.shard AND o.position > c.hw
        ORDER BY o.position LIMIT %(a_shard)s) r
    LIMIT %(cap)s
), candidate AS MATERIALIZED (
    SELECT o.xid, o.shard, o.position FROM bound b CROSS JOIN LATERAL (
        SELECT xid, shard, position FROM relay_outbox r
        WHERE r.xid >= b.min_xmax AND r.position > b.min_after AND r.position <= b.max_hw
        UNION ALL
        SELECT xid, shard, position FROM relay_outbox r
        WHERE r.xid = ANY(b.xips) AND r.xid < b.min_xmax AND r.position > b.min_after AND r.position <= b.max_hw) o
), late AS MATERIALIZED (
    SELECT k.shard, k.position FROM candidate k JOIN c ON c.shard = k.shard
    WHERE k.position > c.late_after AND k.position <= c.hw AND NOT pg_visible_in_snapshot(k.xid, c.snapshot)
    ORDER BY k.position LIMIT %(cap)s
), deferred AS MATERIALIZED (
    SELECT shard, position FROM relay_deferred ORDER BY position LIMIT %(cap)s
), held AS MATERIALIZED (
    SELECT h.shard, r.position FROM relay_hold h JOIN c ON c.shard = h.shard CROSS JOIN LATERAL (
        SELECT o.position FROM relay_outbox o
        WHERE o.shard = h.shard AND o.topic = h.topic AND o.position > h.hw AND o.position <= c.hw
        ORDER BY o.position LIMIT %(a_shard)s) r
    LIMIT %(cap)s
), unsent AS (
    SELECT 'fresh' AS kind, shard, position FROM fresh UNION ALL SELECT 'late', shard, position FROM late
    UNION ALL SELECT 'deferred', shard, position FROM deferred UNION ALL SELECT 'held', shard, position FROM held
)
"""
OLDEST = "".join(  # noqa: FLY002 - an f-string of SQL reads like one with values in it
    [
        UNSENT,
        """
SELECT u.kind, o.position, o.shard, o.id, o.topic, o.type, o.key, o.created_at,
       greatest(0, extract(epoch FROM clock_timestamp() - o.created_at))::float, d.failed, d.error,
       d.position IS NOT NULL AND (d.key IS NULL OR NOT EXISTS (
           SELECT 1 FROM relay_deferred e WHERE e.topic = d.topic AND e.key = d.key AND e.position < d.position))
FROM (SELECT * FROM unsent ORDER BY position LIMIT %(shown)s) u
CROSS JOIN LATERAL (SELECT * FROM relay_outbox r WHERE r.shard = u.shard AND r.position = u.position OFFSET 0) o
LEFT JOIN relay_deferred d ON d.shard = u.shard AND d.position = u.position
ORDER BY o.position
""",
    ]
)
BY_TOPIC = "".join(  # noqa: FLY002
    [
        UNSENT,
        """
SELECT o.topic, count(*), greatest(0, extract(epoch FROM clock_timestamp() - min(o.created_at)))::float
FROM (SELECT * FROM unsent LIMIT %(cap)s) u
CROSS JOIN LATERAL (
    SELECT r.topic, r.created_at FROM relay_outbox r WHERE r.shard = u.shard AND r.position = u.position OFFSET 0) o
GROUP BY o.topic ORDER BY 2 DESC
""",
    ]
)
_RUNNERS = """
SELECT r.id, r.name, r.kind, r.pid, r.host, r.started_at, r.seen_at,
       extract(epoch FROM clock_timestamp() - r.seen_at)::float,
       extract(epoch FROM r.expires_at - clock_timestamp())::float,
       r.state, r.sent_total, r.unacked, r.circuit_open_since
FROM relay_runner r ORDER BY r.started_at LIMIT 100
"""
_SHARDS = "SELECT shard, holder, epoch, hw, moved_at FROM relay_checkpoint ORDER BY shard"
_DEFERRED = """
SELECT shard, topic, key, count(*), min(position), (array_agg(attempts ORDER BY position))[1],
       (array_agg(due_at ORDER BY position))[1], (array_agg(failed ORDER BY position))[1],
       (array_agg(error ORDER BY position))[1]
FROM (SELECT * FROM relay_deferred ORDER BY position LIMIT %s) d
GROUP BY shard, topic, key, CASE WHEN key IS NULL THEN position END ORDER BY 5 LIMIT %s
"""
_HOLDS = "SELECT topic, count(*), min(since), min(reason) FROM relay_hold GROUP BY topic ORDER BY topic LIMIT %s"
_STATS = "SELECT sent, buckets FROM relay_stat WHERE at > clock_timestamp() - make_interval(secs => %s)"
_APPENDED = """
SELECT count(*), extract(epoch FROM clock_timestamp() - min(r.created_at))::float, c.shard
FROM relay_checkpoint c CROSS JOIN LATERAL (
    SELECT o.created_at FROM relay_outbox o WHERE o.shard = c.shard ORDER BY o.position DESC LIMIT %s) r
WHERE r.created_at > clock_timestamp() - make_interval(secs => %s) GROUP BY c.shard
"""
_WRITER = """
SELECT pid, application_name, extract(epoch FROM clock_timestamp() - xact_start)::float FROM pg_stat_activity
WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()
  AND xact_start < clock_timestamp() - make_interval(secs => %s)
ORDER BY xact_start LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class _Control:
    paused_by: str | None = None
    paused_at: datetime | None = None
    reason: str = ""


def get_relay_status() -> RelayStatus:
    """Read everything about the relay; a few milliseconds without a backlog, whatever the table's size.

    Rows that were acknowledged less than `RELAY_CHECKPOINT_EVERY_MS` ago may still count as unsent.
    """
    with _index_plans() as cursor:
        as_of = _one(cursor, "SELECT clock_timestamp()")[0]
        runner_rows = _all(cursor, _RUNNERS)
        shard_rows = _all(cursor, _SHARDS)
        control = _Control(*(_first(cursor, "SELECT paused_by, paused_at, reason FROM relay_control") or ()))
        holds = _all(cursor, _HOLDS, [HOLDS_SHOWN])
        deferred = _all(cursor, _DEFERRED, [settings.RELAY_UNSENT_COUNT_CAP, DEFERRED_SHOWN])
        oldest_rows = _all(cursor, OLDEST, _limits(a_shard=settings.RELAY_WAITING_SHOWN_ROWS))
        topic_rows = _all(cursor, BY_TOPIC, _limits(a_shard=settings.RELAY_UNSENT_COUNT_CAP))
        sent, buckets = _sum_stats(_all(cursor, _STATS, [settings.RELAY_STATUS_WINDOW_S]))
        appended_per_s = _appended_per_s(_all(cursor, _APPENDED, [RECENT_ROWS_A_SHARD, settings.RELAY_STATUS_WINDOW_S]))
        writer = _first(cursor, _WRITER, [OPEN_TRANSACTION_SHOWN_S])
        ahead = _one(
            cursor,
            "SELECT count(*) FROM relay_outbox_partition"
            " WHERE from_position > (SELECT last_value FROM relay_outbox_position)",
        )[0]
    runners = _runner_views(runner_rows, shard_rows)
    alive = [r for r in runners if r.lease_left_s > 0 and r.age_s < settings.RELAY_SILENT_AFTER_S]
    unsent = _unsent_count(topic_rows, shown=len(oldest_rows))
    facts = Facts(
        unsent=unsent,
        oldest_age_s=oldest_rows[0][8] if oldest_rows else None,
        alive=len(alive),
        silent_s=_silent_s(runners, shard_rows, as_of),
        paused_by=control.paused_by,
        circuit_open_since=min((r[12] for r in runner_rows if r[12] is not None and r[8] > 0), default=None),
        failed_keys=sum(1 for d in deferred if d[7]),
        held_topics=len(holds),
        moving=sent > 0,
    )
    waiting = [_unsent_row(row, facts, holds, alive) for row in oldest_rows]
    window = float(settings.RELAY_STATUS_WINDOW_S)
    return RelayStatus(
        as_of=as_of,
        verdict=judge_relay(facts, silent_after_s=settings.RELAY_SILENT_AFTER_S, old_after_s=settings.RELAY_STALL_S),
        oldest=waiting[0] if waiting else None,
        waiting=waiting,
        unsent=unsent,
        unsent_by_topic=[
            TopicUnsent(topic=t, unsent=CappedCount(value=n, capped=unsent.capped), oldest_age_s=age)
            for t, n, age in topic_rows
        ],
        window_s=window,
        appended_per_s=appended_per_s,
        sent_per_s=sent / window if sent else None,
        latency_p50_ms=quantile_ms(buckets, 0.5),
        latency_p99_ms=quantile_ms(buckets, 0.99),
        runners=runners,
        shards=_shard_views(runner_rows, shard_rows),
        deferred=[_deferred_key(row) for row in deferred],
        holds=[TopicHold(topic=t, shards=n, since=since, reason=reason) for t, n, since, reason in holds],
        paused_by=control.paused_by,
        paused_at=control.paused_at,
        paused_reason=control.reason,
        circuit_open_since=facts.circuit_open_since,
        blocked_by=_writer_words(writer),
        partitions_ahead=ahead,
    )


@contextmanager
def _index_plans() -> Iterator[CursorWrapper]:
    """Plan on indexes alone: a young partition has no statistics, and a guess would read it whole."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        yield cursor
        cursor.execute("SET LOCAL enable_seqscan = DEFAULT")
        cursor.execute("SET LOCAL enable_bitmapscan = DEFAULT")


def _limits(*, a_shard: int) -> dict[str, int]:
    return {
        "a_shard": a_shard,
        "cap": settings.RELAY_UNSENT_COUNT_CAP,
        "shown": settings.RELAY_WAITING_SHOWN_ROWS,
    }


def _all(cursor: CursorWrapper, query: str, params: Any = None) -> list[tuple[Any, ...]]:
    cursor.execute(query, params)
    return list(cursor.fetchall())


def _first(cursor: CursorWrapper, query: str, params: Any = None) -> tuple[Any, ...] | None:
    return next(iter(_all(cursor, query, params)), None)


def _one(cursor: CursorWrapper, query: str) -> tuple[Any, ...]:
    return _all(cursor, query)[0]


def _unsent_count(by_topic: Sequence[tuple[Any, ...]], *, shown: int) -> CappedCount:
    total = sum(n for _, n, _ in by_topic)
    return CappedCount(value=max(total, shown), capped=total >= settings.RELAY_UNSENT_COUNT_CAP)


def _sum_stats(rows: Sequence[tuple[Any, ...]]) -> tuple[int, list[int]]:
    buckets = [0] * SIZE
    for _, counted in rows:
        for i, n in enumerate(counted[:SIZE]):
            buckets[i] += n
    return sum(sent for sent, _ in rows), buckets


def _appended_per_s(rows: Sequence[tuple[Any, ...]]) -> float | None:
    """From the newest rows of each shard: exact while a shard has fewer than the probe reads, else by their span."""
    window = settings.RELAY_STATUS_WINDOW_S
    per_s = [n / max(0.001, span) if n >= RECENT_ROWS_A_SHARD else n / window for n, span, _ in rows]
    return sum(per_s) if per_s else None


def _silent_s(runners: Sequence[RunnerView], shards: Sequence[tuple[Any, ...]], as_of: datetime) -> float | None:
    """How long no runner has shown life; None = nobody knows of one."""
    seen = [r.age_s for r in runners] + [(as_of - moved).total_seconds() for *_, moved in shards if moved is not None]
    return max(0.0, min(seen)) if seen else None


def _runner_views(runners: Sequence[tuple[Any, ...]], shards: Sequence[tuple[Any, ...]]) -> list[RunnerView]:
    held: dict[object, list[int]] = {}
    for shard, holder, *_ in shards:
        held.setdefault(holder, []).append(shard)
    return [
        RunnerView(
            name=name,
            kind=kind,
            pid=pid,
            host=host,
            started_at=started_at,
            seen_at=seen_at,
            age_s=max(0.0, age_s),
            lease_left_s=max(0.0, left_s),
            shards=held.get(runner_id, []),
            state=state if left_s > 0 else "lapsed",
            sent_total=sent,
            unacked=unacked,
        )
        for runner_id, name, kind, pid, host, started_at, seen_at, age_s, left_s, state, sent, unacked, _ in runners
    ]


def _shard_views(runners: Sequence[tuple[Any, ...]], shards: Sequence[tuple[Any, ...]]) -> list[ShardView]:
    names = {row[0]: row[1] for row in runners if row[8] > 0}
    return [
        ShardView(shard=shard, holder=names.get(holder), epoch=epoch, hw=hw, moved_at=moved_at)
        for shard, holder, epoch, hw, moved_at in shards
    ]


def _unsent_row(
    row: tuple[Any, ...],
    facts: Facts,
    holds: Sequence[tuple[Any, ...]],
    alive: Sequence[RunnerView],
) -> UnsentRow:
    kind, position, shard, event_id, topic, event_type, key, created_at, age_s, failed, error, is_head = row
    held_topics = {name: reason for name, _, _, reason in holds}
    return UnsentRow(
        position=position,
        shard=shard,
        event_id=event_id,
        topic=topic,
        type=event_type,
        key_label=label_key(None if key is None else bytes(key)),
        created_at=created_at,
        age_s=age_s,
        why=explain_waiting(
            kind=kind,
            facts=facts,
            shard_is_held=any(shard in r.shards for r in alive),
            hold_reason=held_topics.get(topic),
            deferred=None if failed is None else (is_head, failed, error),
        ),
    )


def _deferred_key(row: tuple[Any, ...]) -> DeferredKey:
    shard, topic, key, rows, first, attempts, due_at, failed, error = row
    return DeferredKey(
        shard=shard,
        topic=topic,
        key_label=label_key(None if key is None else bytes(key)),
        rows=rows,
        first_position=first,
        attempts=attempts,
        due_at=due_at,
        failed=failed,
        error=error,
    )


def _writer_words(writer: tuple[Any, ...] | None) -> str | None:
    if writer is None:
        return None
    pid, application, age_s = writer
    return f"process {pid} ({application or 'unnamed'}) has had a writing transaction open for {age_s:.0f} s"
