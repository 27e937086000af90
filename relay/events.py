"""Where an event went: its outbox row, whether it waits and why, and its partition and offset in Kafka."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, assert_never
from uuid import UUID

from django.conf import settings

from relay.domain.envelope import load_headers
from relay.domain.partitioner import partition_of
from relay.domain.relay_verdict import explain_waiting, facts_of_a_row
from relay.domain.waiting import pause_words
from relay.errors import BadHeaders, UnknownTopic
from relay.kafka.locate import Stretch, find_event_offsets
from relay.keys import label_key
from relay.queries import get_relay_status, index_plans
from relay.steering import list_pauses
from relay.topics import get_topic
from relay.types import Aspect, EventState, EventTrace, Landing, OutboxState, RowRef, Verdict

ROWS_OF_AN_ID = 5
STRETCHES = 64

# `kind` is None when Kafka acknowledged the row. The two rules of a place: above `hw`, or not yet visible when it was
# taken (see docs/outbox.md).
_ROW = """
SELECT o.position, o.shard, o.id, o.topic, o.type, o.key, octet_length(o.payload), o.content_type, o.headers::text,
       o.partition, o.created_at, clock_timestamp(),
       CASE WHEN d.position IS NOT NULL THEN 'deferred'
            WHEN h.topic IS NOT NULL AND (o.position > h.hw OR (o.position > greatest(c.late_floor, h.late_cursor)
                 AND NOT pg_visible_in_snapshot(o.xid, h.snapshot))) THEN 'held'
            WHEN o.position > c.hw THEN 'fresh'
            WHEN o.position > greatest(c.late_floor, c.late_cursor)
                 AND NOT pg_visible_in_snapshot(o.xid, c.snapshot) THEN 'late' END,
       h.reason, d.failed, d.error, d.position IS NOT NULL AND NOT EXISTS (
           SELECT 1 FROM relay_deferred e
           WHERE e.topic = d.topic AND sha256(e.key) = sha256(d.key) AND e.position < d.position),
       s.skipped_by, s.skipped_at, s.reason, s.sent_anyway
FROM relay_outbox o JOIN relay_checkpoint c ON c.shard = o.shard
LEFT JOIN relay_deferred d ON d.shard = o.shard AND d.position = o.position
LEFT JOIN relay_hold h ON h.shard = o.shard AND h.topic = o.topic
LEFT JOIN relay_skipped s ON s.position = o.position
"""
BY_ID = _ROW + "WHERE o.id = %s ORDER BY o.position LIMIT %s"
REF = "SELECT id, topic, type, key FROM relay_outbox WHERE shard = ANY(%s) AND position = %s"
RANGES = """
SELECT partition, from_offset, to_offset, last_acked_at, runner FROM relay_range
WHERE topic = %(topic)s AND from_position <= %(position)s AND to_position >= %(position)s
  AND last_acked_at >= %(created_at)s::timestamptz - interval '1 minute'
ORDER BY to_offset - from_offset LIMIT %(most)s
"""

OUTBOX = """
SELECT (SELECT count(*) FROM relay_outbox_partition), r.position, r.created_at,
       (SELECT extract(epoch FROM clock_timestamp() - last_finished_at)::float FROM relay_sweep
        WHERE name = 'relay.housekeeping')
FROM (SELECT 1) AS one LEFT JOIN LATERAL (
    SELECT o.position, o.created_at FROM unnest(%s::int[]) AS s (shard) CROSS JOIN LATERAL (
        SELECT position, created_at FROM relay_outbox WHERE shard = s.shard ORDER BY position LIMIT 1) o
    ORDER BY o.position LIMIT 1) r ON true
"""


class _Row(NamedTuple):
    """A row of the outbox with what is known of it beside; `kind` None = Kafka acknowledged it, or it was skipped."""

    position: int
    shard: int
    event_id: UUID
    topic: str
    type: str
    key: memoryview | None
    payload_bytes: int | None
    content_type: str
    headers: str
    partition: int | None
    created_at: datetime
    now: datetime
    kind: str | None
    hold_reason: str | None
    failed: bool | None
    error: str | None
    is_head: bool
    skipped_by: str | None
    skipped_at: datetime | None
    skip_reason: str | None
    sent_anyway: bool | None


class _Range(NamedTuple):
    """Offsets of one partition that one step of a runner wrote."""

    partition: int
    first: int
    last: int
    acked_at: datetime
    runner: str


def get_outbox_state() -> OutboxState:
    """Read what the outbox holds: one index probe a shard."""
    with index_plans() as cursor:
        cursor.execute(OUTBOX, [list(range(settings.RELAY_SHARDS))])
        partitions, position, created_at, age_s = cursor.fetchone()
    return OutboxState(
        partitions=partitions, first_position=position, first_created_at=created_at, housekeeping_age_s=age_s
    )


def get_event_trace(event_id: UUID) -> EventTrace | None:
    """Find an event by its id; None = no row (unknown, rolled back, or purged).

    A sent event is looked for in Kafka: at most `RELAY_TRACE_WITHIN_S` seconds.
    """
    with index_plans() as cursor:
        cursor.execute(BY_ID, [event_id, ROWS_OF_AN_ID])
        rows = cursor.fetchall()
    return _trace(_Row(*rows[0]), repeats=len(rows) - 1) if rows else None


def find_row(position: int) -> RowRef | None:
    """The row at an outbox position, for acts on its key; None = no such row now."""
    with index_plans() as cursor:
        cursor.execute(REF, [list(range(settings.RELAY_SHARDS)), position])
        row = cursor.fetchone()
    if row is None:
        return None
    event_id, topic, event_type, stored = row
    key = None if stored is None else bytes(stored)
    return RowRef(position=position, event_id=event_id, topic=topic, type=event_type, key=key, key_label=label_key(key))


def _trace(row: _Row, repeats: int) -> EventTrace:
    state = _state(row)
    landings: list[Landing] = []
    words = ""
    if state is EventState.SENT:
        ranges = _ranges(row.topic, row.position, row.created_at)
        landings, words = _landings(row.topic, row.event_id, ranges, _likely_partition(row))
    return EventTrace(
        as_of=row.now,
        position=row.position,
        shard=row.shard,
        event_id=row.event_id,
        topic=row.topic,
        type=row.type,
        key_label=label_key(_bytes(row.key)),
        key_bytes=None if row.key is None else len(row.key),
        payload_bytes=row.payload_bytes,
        content_type=row.content_type,
        headers=_header_names(row.headers),
        wanted_partition=row.partition,
        created_at=row.created_at,
        age_s=max(0.0, (row.now - row.created_at).total_seconds()),
        state=state,
        is_deferred=row.kind == "deferred",
        verdict=_verdict(state, row, landings),
        landings=landings,
        landing_words=words,
        repeats=repeats,
    )


def _state(row: _Row) -> EventState:
    if row.skipped_by is not None and not row.sent_anyway:
        return EventState.SKIPPED
    return EventState.SENT if row.kind is None else EventState.WAITING


def _verdict(state: EventState, row: _Row, landings: Sequence[Landing]) -> Verdict:
    match state:
        case EventState.WAITING:
            return Verdict(aspect=Aspect.BAD if row.failed else Aspect.WARN, word="waiting", reason=_why(row))
        case EventState.SKIPPED:
            return Verdict(aspect=Aspect.WARN, word="skipped", reason=f"by {row.skipped_by}: {row.skip_reason}")
        case EventState.SENT:
            first = landings[0] if landings else None
            where = f"partition {first.partition}, offset {first.offset:,}" if first else "Kafka acknowledged it"
            return Verdict(aspect=Aspect.OK, word="sent", reason=where)
    assert_never(state)


def _why(row: _Row) -> str:
    """Why the row waits, in the words of the Relay page."""
    pause = _pause_words(row)
    if pause:
        return pause
    status = get_relay_status()
    alive = [r for r in status.runners if r.lease_left_s > 0 and r.age_s < settings.RELAY_SILENT_AFTER_S]
    facts = facts_of_a_row(alive=len(alive), paused_by=status.paused_by, circuit_open_since=status.circuit_open_since)
    return explain_waiting(
        kind=row.kind or "",
        facts=facts,
        shard_is_held=any(row.shard in runner.shards for runner in alive),
        hold_reason=row.hold_reason,
        deferred=None if row.failed is None else (row.is_head, row.failed, row.error or ""),
    )


def _pause_words(row: _Row) -> str:
    """Who paused the row's topic or key, when somebody did."""
    key = _bytes(row.key)
    mine = [p for p in list_pauses() if p.topic == row.topic and (p.key is None or p.key == key)]
    return pause_words(mine[0]) if mine else ""


def _header_names(stored: str) -> list[str]:
    """The names of the application's headers; what cannot be read has none to show."""
    try:
        return [name for name, _ in load_headers(json.loads(stored))]
    except BadHeaders:
        return []


def _bytes(stored: memoryview | bytes | None) -> bytes | None:
    return None if stored is None else bytes(stored)


# -- Sent --------------------------------------------------------------------------------------------------
def _landings(topic: str, event_id: UUID, ranges: Sequence[_Range], likely: int | None) -> tuple[list[Landing], str]:
    """Every place of a sent event, and why none or perhaps not all are known."""
    if not ranges:
        days = settings.RELAY_RANGE_RETENTION.days
        return [], f"Where it landed is not noted any more: that is kept for {days} days."
    # The partition of the key first: the others are read only when the topic has another number of them now.
    turns = [[r for r in ranges if r.partition == likely], [r for r in ranges if r.partition != likely]]
    why_not = ""
    for turn in turns:
        found = find_event_offsets(topic, event_id, [Stretch(r.partition, r.first, r.last) for r in turn])
        why_not = why_not or found.why_not
        if found.places:
            return [_landing(place, turn) for place in sorted(found.places)], found.why_not
    return [], why_not or "The records of that time were read, and none is this event: was the topic made anew?"


def _landing(place: tuple[int, int], ranges: Sequence[_Range]) -> Landing:
    partition, offset = place
    within = next(r for r in ranges if r.partition == partition and r.first <= offset <= r.last)
    return Landing(partition=partition, offset=offset, acked_at=within.acked_at, runner=within.runner)


def _ranges(topic: str, position: int, created_at: datetime) -> list[_Range]:
    """Stretches of offsets that may hold the position, the shortest first."""
    with index_plans() as cursor:
        cursor.execute(RANGES, {"topic": topic, "position": position, "created_at": created_at, "most": STRETCHES})
        return [_Range(*row) for row in cursor.fetchall()]


def _likely_partition(row: _Row) -> int | None:
    if row.partition is not None:
        return row.partition
    try:
        return partition_of(_bytes(row.key), get_topic(row.topic).partitions)
    except UnknownTopic:
        return None
