"""Reads of the relay. Every probe is bounded and stays on its index: see tests/integration/test_relay_plans.py."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from relay.domain.histogram import SIZE, quantile_ms
from relay.domain.places import Snapshot
from relay.domain.relay_verdict import Facts, judge_relay
from relay.domain.waiting import DeferredFacts, judge_waiting
from relay.keys import label_key
from relay.steering import list_pauses
from relay.types import (
    CappedCount,
    DeferredKey,
    RelayPause,
    RelayStatus,
    RunnerView,
    ShardView,
    TopicHold,
    TopicUnsent,
    UnsentRow,
)

DEFERRED_SHOWN = 100
HOLDS_SHOWN = 100
RECENT_ROWS_A_SHARD = 16
RECENT_POSITIONS = 200_000
OPEN_TRANSACTION_SHOWN_S = 10

# What waits, by kind, shard and topic: how many rows and the first positions. Every part stops at its limit, and the
# first and last position are literals, so that the planner leaves out the partitions where nothing can wait.
_PLACES = """
WITH c AS MATERIALIZED (
    SELECT * FROM unnest(%(shards)s::int[], %(hws)s::bigint[], %(snapshots)s::pg_snapshot[], %(floors)s::bigint[],
        %(most)s::int[]) AS c (shard, hw, snapshot, late_after, most))
"""
_FRESH = """
SELECT 'fresh' AS kind, c.shard, r.topic, r.position FROM c CROSS JOIN LATERAL (
    SELECT o.topic, o.position FROM relay_outbox o
    WHERE o.shard = c.shard AND o.position > c.hw AND o.position > %(min_hw)s AND o.position <= %(last)s
    ORDER BY o.position LIMIT c.most) r
"""
# Late rows have the lowest ids of those that a snapshot did not see, so the first `cap` of them are enough. OFFSET 0
# keeps the look-up of rows one probe a row: estimates are far off here, and a hash join would read the whole table.
_LATE_ABOVE = """
(SELECT xid, shard, position FROM relay_outbox
 WHERE xid >= %(min_xmax)s::xid8 AND position > %(min_floor)s AND position <= %(max_hw)s ORDER BY xid LIMIT %(cap)s)
"""
_LATE_RUNNING = """
(SELECT xid, shard, position FROM relay_outbox
 WHERE xid = ANY(%(xips)s::xid8[]) AND xid < %(min_xmax)s::xid8 AND position > %(min_floor)s
   AND position <= %(max_hw)s ORDER BY xid LIMIT %(cap)s)
"""
_LATE = """
SELECT 'late' AS kind, k.shard, r.topic, k.position FROM ({candidates}) k JOIN c ON c.shard = k.shard
CROSS JOIN LATERAL (
    SELECT o.topic FROM relay_outbox o
    WHERE o.shard = k.shard AND o.position = k.position AND o.position > %(min_floor)s AND o.position <= %(max_hw)s
    OFFSET 0) r
WHERE k.position > c.late_after AND k.position <= c.hw AND NOT pg_visible_in_snapshot(k.xid, c.snapshot)
"""
_SET_ASIDE = """
SELECT 'deferred' AS kind, shard, topic, position FROM (
    SELECT shard, topic, position FROM relay_deferred ORDER BY position LIMIT %(cap)s) d
"""
_HELD = """
SELECT 'held' AS kind, h.shard, h.topic, r.position FROM relay_hold h JOIN c ON c.shard = h.shard CROSS JOIN LATERAL (
    SELECT o.topic, o.position FROM relay_outbox o
    WHERE o.shard = h.shard AND o.position > h.hw AND o.position > %(min_hold)s AND o.position <= c.hw
      AND o.position <= %(max_hw)s
    ORDER BY o.position LIMIT %(a_hold)s) r
WHERE r.topic = h.topic
"""
_GROUPED = """
, u AS MATERIALIZED ({parts})
SELECT kind, shard, topic, count(*), min(position) FROM u GROUP BY kind, shard, topic
UNION ALL (SELECT kind, shard, topic, NULL, position FROM u ORDER BY position LIMIT %(shown)s)
"""
DETAILS = """
SELECT o.position, o.shard, o.id, o.topic, o.type, o.key, o.created_at,
       greatest(0, extract(epoch FROM statement_timestamp() - o.created_at))::float,
       d.attempts, d.due_at, d.failed, d.error, d.order_broken,
       d.position IS NOT NULL AND (d.key IS NULL OR NOT EXISTS (
           SELECT 1 FROM relay_deferred e
           WHERE e.topic = d.topic AND sha256(e.key) = sha256(d.key) AND e.position < d.position))
FROM unnest(%(shards)s::int[], %(positions)s::bigint[]) AS u (shard, position)
CROSS JOIN LATERAL (
    SELECT * FROM relay_outbox r WHERE r.shard = u.shard AND r.position = u.position
      AND r.position >= %(first)s AND r.position <= %(last)s OFFSET 0) o
LEFT JOIN relay_deferred d ON d.shard = u.shard AND d.position = u.position
ORDER BY o.position
"""
_FACTS = """
SELECT clock_timestamp(), s.last_value, EXISTS (SELECT 1 FROM relay_deferred), EXISTS (SELECT 1 FROM relay_hold),
       (SELECT count(*) FROM relay_outbox_partition p WHERE p.from_position > s.last_value),
       (SELECT repeats FROM relay_duplicate_scan)
FROM relay_outbox_position s
"""
_CONTROL = "SELECT paused_by, paused_at, reason FROM relay_control WHERE scope = 'all'"
_RUNNERS = """
SELECT r.id, r.name, r.kind, r.pid, r.host, r.started_at, r.seen_at,
       extract(epoch FROM clock_timestamp() - r.seen_at)::float,
       extract(epoch FROM r.expires_at - clock_timestamp())::float,
       r.state, r.sent_total, r.unacked, r.circuit_open_since, r.doorbell
FROM relay_runner r ORDER BY r.started_at LIMIT 100
"""
_SHARDS = """
SELECT shard, holder, epoch, hw, moved_at, snapshot::text, greatest(late_floor, late_cursor) FROM relay_checkpoint
ORDER BY shard
"""
_DEFERRED = """
SELECT shard, topic, key, count(*), min(position), (array_agg(attempts ORDER BY position))[1],
       (array_agg(due_at ORDER BY position))[1], (array_agg(failed ORDER BY position))[1],
       (array_agg(error ORDER BY position))[1]
FROM (SELECT * FROM relay_deferred ORDER BY position LIMIT %s) d
GROUP BY shard, topic, key, CASE WHEN key IS NULL THEN position END ORDER BY 5 LIMIT %s
"""
_HOLDS = """
SELECT topic, count(*), min(since), min(reason), min(hw) FROM relay_hold GROUP BY topic ORDER BY topic LIMIT %s
"""
_STATS = "SELECT sent, buckets FROM relay_stat WHERE at > clock_timestamp() - make_interval(secs => %s)"
APPENDED = """
SELECT count(*), extract(epoch FROM clock_timestamp() - min(r.created_at))::float, c.shard
FROM relay_checkpoint c CROSS JOIN LATERAL (
    SELECT o.created_at FROM relay_outbox o
    WHERE o.shard = c.shard AND o.position > %(first)s AND o.position <= %(last)s
    ORDER BY o.position DESC LIMIT %(a_shard)s) r
WHERE r.created_at > clock_timestamp() - make_interval(secs => %(window)s) GROUP BY c.shard
"""
_WRITER = """
SELECT pid, application_name, extract(epoch FROM clock_timestamp() - xact_start)::float FROM pg_stat_activity
WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()
  AND xact_start < clock_timestamp() - make_interval(secs => %s)
ORDER BY xact_start LIMIT 1
"""


class Detail(NamedTuple):
    """An outbox row, and what is known of it when it was set aside (`failed` None = it was not)."""

    position: int
    shard: int
    event_id: UUID
    topic: str
    type: str
    stored_key: memoryview | None
    created_at: datetime
    age_s: float
    attempts: int | None
    due_at: datetime | None
    failed: bool | None
    error: str | None
    order_broken: bool | None
    is_head: bool

    @property
    def key(self) -> bytes | None:
        """The record's key."""
        return None if self.stored_key is None else bytes(self.stored_key)

    @property
    def deferred(self) -> DeferredFacts | None:
        """What a verdict needs of a row that was set aside."""
        if self.failed is None:
            return None
        return DeferredFacts(is_head=self.is_head, failed=self.failed, error=self.error or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Waiting rows of one kind, shard and topic: how many were counted, and the first position."""

    kind: str
    shard: int
    topic: str
    count: int
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Every waiting row that was counted; `oldest` are the lowest (position, shard, kind). `is_capped`: or more."""

    groups: Sequence[Group]
    oldest: Sequence[tuple[int, int, str]]
    is_capped: bool

    @property
    def total(self) -> int:
        """How many rows were counted."""
        return sum(group.count for group in self.groups)

    def firsts(self) -> dict[str, tuple[int, int]]:
        """The lowest (position, shard) of each topic."""
        places = sorted(((g.first, g.shard, g.topic) for g in self.groups), reverse=True)
        return {topic: (position, shard) for position, shard, topic in places}


@dataclass(frozen=True, slots=True)
class _Control:
    paused_by: str | None = None
    paused_at: datetime | None = None
    reason: str = ""


def get_relay_status() -> RelayStatus:
    """Read everything about the relay; a few milliseconds without a backlog, whatever the table's size.

    Rows that were acknowledged less than `RELAY_CHECKPOINT_EVERY_MS` ago may still count as unsent.
    """
    with index_plans() as cursor:
        as_of, last, has_deferred, has_holds, ahead, repeats = _all(cursor, _FACTS)[0]
        runner_rows = _all(cursor, _RUNNERS)
        shard_rows = _all(cursor, _SHARDS)
        control = _Control(*(_first(cursor, _CONTROL) or ()))
        holds = _all(cursor, _HOLDS, [HOLDS_SHOWN]) if has_holds else []
        deferred = _all(cursor, _DEFERRED, [settings.RELAY_UNSENT_COUNT_CAP, DEFERRED_SHOWN]) if has_deferred else []
        waiting = count_waiting(cursor, shard_rows, last, holds=holds, has_deferred=has_deferred)
        details = _read_details(cursor, waiting)
        sent, buckets = sum_stats(_all(cursor, _STATS, [settings.RELAY_STATUS_WINDOW_S]))
        appended_per_s = _read_appended_per_s(cursor, last, settings.RELAY_STATUS_WINDOW_S)
        writer = _first(cursor, _WRITER, [OPEN_TRANSACTION_SHOWN_S])
    runners = _runner_views(runner_rows, shard_rows)
    alive = [r for r in runners if r.lease_left_s > 0 and r.age_s < settings.RELAY_SILENT_AFTER_S]
    oldest = [(kind, details[p, shard]) for p, shard, kind in waiting.oldest if (p, shard) in details]
    facts = Facts(
        unsent=CappedCount(value=waiting.total, capped=waiting.is_capped),
        oldest_age_s=oldest[0][1].age_s if oldest else None,
        alive=len(alive),
        silent_s=_silent_s(runners, shard_rows, as_of),
        paused_by=control.paused_by,
        circuit_open_since=min((r[12] for r in runner_rows if r[12] is not None and r[8] > 0), default=None),
        failed_keys=sum(1 for d in deferred if d[7]),
        held_topics=len(holds),
        moving=sent > 0,
    )
    pauses = {(p.topic, p.key): p for p in list_pauses()}
    rows = [_unsent_row(kind, row, facts, holds=holds, alive=alive, pauses=pauses) for kind, row in oldest]
    window = float(settings.RELAY_STATUS_WINDOW_S)
    return RelayStatus(
        as_of=as_of,
        verdict=judge_relay(facts, silent_after_s=settings.RELAY_SILENT_AFTER_S, old_after_s=settings.RELAY_STALL_S),
        oldest=rows[0] if rows else None,
        waiting=rows,
        unsent=facts.unsent,
        unsent_by_topic=_unsent_by_topic(waiting, details),
        window_s=window,
        appended_per_s=appended_per_s,
        sent_per_s=sent / window if sent else None,
        latency_p50_ms=quantile_ms(buckets, 0.5),
        latency_p99_ms=quantile_ms(buckets, 0.99),
        runners=runners,
        shards=_shard_views(runner_rows, shard_rows),
        deferred=[_deferred_key(row) for row in deferred],
        holds=[TopicHold(topic=t, shards=n, since=since, reason=reason) for t, n, since, reason, _ in holds],
        paused_by=control.paused_by,
        paused_at=control.paused_at,
        paused_reason=control.reason,
        circuit_open_since=facts.circuit_open_since,
        blocked_by=_writer_words(writer),
        partitions_ahead=ahead,
        repeated_ids=repeats,
    )


def list_unsent_by_topic() -> list[TopicUnsent]:
    """What waits by topic, the most first; counts stop at `RELAY_UNSENT_COUNT_CAP` rows in all."""
    with index_plans() as cursor:
        _, last, has_deferred, has_holds, *_ = _all(cursor, _FACTS)[0]
        shards = _all(cursor, _SHARDS)
        holds = _all(cursor, _HOLDS, [HOLDS_SHOWN]) if has_holds else []
        waiting = count_waiting(cursor, shards, last, holds=holds, has_deferred=has_deferred)
        return _unsent_by_topic(waiting, _read_details(cursor, waiting))


# -- What waits --------------------------------------------------------------------------------------------
def count_waiting(
    cursor: CursorWrapper,
    shards: Sequence[tuple[Any, ...]],
    last: int,
    *,
    holds: Sequence[tuple[Any, ...]],
    has_deferred: bool,
) -> Waiting:
    """Count what waits, up to `RELAY_UNSENT_COUNT_CAP` rows and an even part of it a shard.

    A shard that waits alone may have the whole cap: it is counted again with what the others left.
    """
    cap: int = settings.RELAY_UNSENT_COUNT_CAP
    even = max(settings.RELAY_WAITING_SHOWN_ROWS, -(-cap // max(1, len(shards))))
    params = waiting_params(shards, last, holds=holds, most=dict.fromkeys((s[0] for s in shards), even))
    groups, oldest = _groups(
        cursor, waiting_statement(params, has_holds=bool(holds), has_deferred=has_deferred), params
    )
    fresh = _fresh_by_shard(groups)
    hungry = {shard for shard, n in fresh.items() if n >= even}
    left = (cap - sum(group.count for group in groups)) // len(hungry) if hungry else 0
    if left > 0:
        most = dict.fromkeys(hungry, even + left)
        again = waiting_params([s for s in shards if s[0] in hungry], last, holds=(), most=most)
        groups = [g for g in groups if g.kind != "fresh" or g.shard not in hungry]
        groups += _groups(cursor, fresh_statement(), again)[0]
        hungry = {shard for shard, n in _fresh_by_shard(groups).items() if n >= even + left}
    is_capped = bool(hungry) or any(_count(groups, kind) >= cap for kind in ("late", "deferred", "held"))
    return Waiting(groups=groups, oldest=oldest, is_capped=is_capped)


def waiting_params(
    shards: Sequence[tuple[Any, ...]], last: int, *, holds: Sequence[tuple[Any, ...]], most: Mapping[int, int]
) -> dict[str, Any]:
    """Build the parameters of `waiting_statement()`; `shards` are rows of the checkpoints."""
    snapshots = [Snapshot.parse(s[5]) for s in shards]
    min_xmax = min(s.xmax for s in snapshots)
    cap = settings.RELAY_UNSENT_COUNT_CAP
    return {
        "shards": [s[0] for s in shards],
        "hws": [s[3] for s in shards],
        "snapshots": [s[5] for s in shards],
        "floors": [s[6] for s in shards],
        "most": [most[s[0]] for s in shards],
        "min_hw": min(s[3] for s in shards),
        "max_hw": max(s[3] for s in shards),
        "min_floor": min(s[6] for s in shards),
        "min_hold": min((h[4] for h in holds), default=0),
        "a_hold": max(settings.RELAY_WAITING_SHOWN_ROWS, cap // max(1, sum(h[1] for h in holds))),
        "last": last,
        "min_xmax": str(min_xmax),
        "xips": [str(x) for x in sorted({x for s in snapshots for x in s.xip if x < min_xmax})],
        "cap": cap,
        "shown": settings.RELAY_WAITING_SHOWN_ROWS,
    }


def waiting_statement(params: Mapping[str, Any], *, has_holds: bool, has_deferred: bool) -> str:
    """Put together only the parts that can find something now."""
    candidates = _LATE_ABOVE + (f"UNION ALL {_LATE_RUNNING}" if params["xips"] else "")
    parts = [_LATE.replace("{candidates}", candidates)]
    if params["min_hw"] < params["last"]:
        parts.append(_FRESH)
    if has_deferred:
        parts.append(_SET_ASIDE)
    if has_holds:
        parts.append(_HELD)
    return _grouped(parts)


def fresh_statement() -> str:
    """Count rows above their shard's place alone."""
    return _grouped([_FRESH])


def count_appended_per_s(window_s: float) -> float | None:
    """Rows written a second over the last `window_s` seconds; None = none was written."""
    with index_plans() as cursor:
        last = _all(cursor, "SELECT last_value FROM relay_outbox_position")[0][0]
        return _read_appended_per_s(cursor, last, window_s)


def appended_params(last: int, window_s: float | None = None) -> dict[str, Any]:
    """Build the parameters of `APPENDED`; a window of `RELAY_STATUS_WINDOW_S` when none is given."""
    return {
        "first": last - RECENT_POSITIONS,
        "last": last,
        "a_shard": RECENT_ROWS_A_SHARD,
        "window": window_s or settings.RELAY_STATUS_WINDOW_S,
    }


def _grouped(parts: Sequence[str]) -> str:
    return _PLACES + _GROUPED.replace("{parts}", " UNION ALL ".join(parts))


def _groups(
    cursor: CursorWrapper, statement: str, params: Mapping[str, Any]
) -> tuple[list[Group], list[tuple[int, int, str]]]:
    """Return the groups, and the places of the oldest rows in order."""
    rows = _all(cursor, statement, params)
    groups = [Group(kind=k, shard=s, topic=t, count=n, first=first) for k, s, t, n, first in rows if n is not None]
    return groups, sorted((position, shard, kind) for kind, shard, _, n, position in rows if n is None)


def _fresh_by_shard(groups: Sequence[Group]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for group in groups:
        if group.kind == "fresh":
            counts[group.shard] += group.count
    return counts


def _count(groups: Sequence[Group], kind: str) -> int:
    return sum(group.count for group in groups if group.kind == kind)


def _read_details(cursor: CursorWrapper, waiting: Waiting) -> dict[tuple[int, int], Detail]:
    """The rows that are shown and the first of each topic, by (position, shard)."""
    return read_details(cursor, {(p, shard) for p, shard, _ in waiting.oldest} | set(waiting.firsts().values()))


def read_details(cursor: CursorWrapper, places: Collection[tuple[int, int]]) -> dict[tuple[int, int], Detail]:
    """Read the rows at these (position, shard), in the order of their positions; those that are gone are left out."""
    if not places:
        return {}
    ordered = sorted(places)
    params = {
        "positions": [position for position, _ in ordered],
        "shards": [shard for _, shard in ordered],
        "first": ordered[0][0],
        "last": ordered[-1][0],
    }
    details = [Detail(*row) for row in _all(cursor, DETAILS, params)]
    return {(detail.position, detail.shard): detail for detail in details}


def _unsent_by_topic(waiting: Waiting, details: Mapping[tuple[int, int], Detail]) -> list[TopicUnsent]:
    counts: Counter[str] = Counter()
    for group in waiting.groups:
        counts[group.topic] += group.count
    ages = {topic: details[place].age_s if place in details else None for topic, place in waiting.firsts().items()}
    return [
        TopicUnsent(topic=topic, unsent=CappedCount(value=n, capped=waiting.is_capped), oldest_age_s=ages[topic])
        for topic, n in counts.most_common()
    ]


# -- Statements --------------------------------------------------------------------------------------------
@contextmanager
def index_plans() -> Iterator[CursorWrapper]:
    """Plan on indexes alone: a young partition has no statistics, and a guess would read it whole."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)")
        yield cursor
        cursor.execute("SELECT set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true)")


def _all(cursor: CursorWrapper, query: str, params: Any = None) -> list[tuple[Any, ...]]:
    cursor.execute(query, params)
    return list(cursor.fetchall())


def _first(cursor: CursorWrapper, query: str, params: Any = None) -> tuple[Any, ...] | None:
    return next(iter(_all(cursor, query, params)), None)


def sum_stats(rows: Sequence[tuple[Any, ...]]) -> tuple[int, list[int]]:
    """Add up (sent, latency buckets) of runners."""
    buckets = [0] * SIZE
    for _, counted in rows:
        for i, n in enumerate(counted[:SIZE]):
            buckets[i] += n
    return sum(sent for sent, _ in rows), buckets


def _read_appended_per_s(cursor: CursorWrapper, last: int, window_s: float) -> float | None:
    """From the newest rows of each shard: exact while a shard has fewer than the probe reads, else by their span."""
    rows = _all(cursor, APPENDED, appended_params(last, window_s))
    per_s = [n / max(0.001, span) if n >= RECENT_ROWS_A_SHARD else n / window_s for n, span, _ in rows]
    return sum(per_s) if per_s else None


def _silent_s(runners: Sequence[RunnerView], shards: Sequence[tuple[Any, ...]], as_of: datetime) -> float | None:
    """How long no runner has shown life; None = nobody knows of one."""
    seen = [r.age_s for r in runners] + [(as_of - s[4]).total_seconds() for s in shards if s[4] is not None]
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
            doorbell=bell,
        )
        for runner_id, name, kind, pid, host, started_at, seen_at, age_s, left_s, state, sent, unacked, _, bell in (
            runners
        )
    ]


def _shard_views(runners: Sequence[tuple[Any, ...]], shards: Sequence[tuple[Any, ...]]) -> list[ShardView]:
    names = {row[0]: row[1] for row in runners if row[8] > 0}
    return [
        ShardView(shard=shard, holder=names.get(holder), epoch=epoch, hw=hw, moved_at=moved_at)
        for shard, holder, epoch, hw, moved_at, *_ in shards
    ]


def _unsent_row(
    kind: str,
    row: Detail,
    facts: Facts,
    *,
    holds: Sequence[tuple[Any, ...]],
    alive: Sequence[RunnerView],
    pauses: Mapping[tuple[str, bytes | None], RelayPause],
) -> UnsentRow:
    held_topics = {name: reason for name, _, _, reason, _ in holds}
    _, why = judge_waiting(
        kind,
        facts,
        pause=pauses.get((row.topic, None)) or pauses.get((row.topic, row.key)),
        hold_reason=held_topics.get(row.topic),
        deferred=row.deferred,
        shard_is_held=any(row.shard in r.shards for r in alive),
    )
    return UnsentRow(
        position=row.position,
        shard=row.shard,
        event_id=row.event_id,
        topic=row.topic,
        type=row.type,
        key_label=label_key(row.key),
        created_at=row.created_at,
        age_s=row.age_s,
        why=why,
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
