"""Durable waiting: what a record has spent, when it is due, and the bytes of those that Kafka need not hold for us.

A row stands for one record that waits. Delivered ones are held by the partition's frontier and come again from Kafka;
*stored* ones have their bytes here, so their offset may move on. The stored records of a key are a queue in the order
of their ids: only the first of them is due, and a delivered record of the key goes behind them.

Every function that writes needs the key's lock (`dlq.key_queue.lock_lane`) in the same transaction and an earlier
statement. The database's clock decides what is due.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection

from dlq.domain.failure import Failure
from dlq.domain.retrying import Spent
from dlq.originals import Originals, seal, unseal
from dlq.types import FailureClass, Hold
from relay.facade import label_key
from relay.types import ConsumerRecord, PartitionRef

_LOOK_UP = """
SELECT w.id, w.attempts, w.unknown_attempts, w.stored, extract(epoch FROM w.due_at - clock_timestamp())::float8,
    w.failure_class, w.error_class, w.error_message, w.fingerprint,
    EXISTS (
        SELECT FROM dlq_waiting a
        WHERE a.group_name = %(group)s AND a.topic = %(topic)s AND a.lane = %(lane)s AND a.stored
          AND CASE WHEN w.stored THEN a.id < w.id
              ELSE NOT (a.partition = %(partition)s AND a.topic_id IS NOT DISTINCT FROM %(topic_id)s
                        AND a.log_offset >= %(offset)s) END),
    EXISTS (SELECT FROM dlq_key k WHERE k.lane = %(lane)s)
FROM (VALUES (1)) one LEFT JOIN dlq_waiting w ON w.group_name = %(group)s AND w.topic = %(topic)s
    AND w.partition = %(partition)s AND w.log_offset = %(offset)s AND w.topic_id IS NOT DISTINCT FROM %(topic_id)s
"""
_IS_APPLIED = "SELECT EXISTS (SELECT FROM dlq_applied WHERE group_name = %s AND event_id = %s)"
_NOTE = """
INSERT INTO dlq_waiting AS w (group_name, topic, partition, log_offset, topic_id, lane, key_label, handler, event_id,
    event_type, attempts, unknown_attempts, first_failed_at, due_at, failure_class, error_class, error_message,
    fingerprint)
VALUES (%(group)s, %(topic)s, %(partition)s, %(offset)s, %(topic_id)s, %(lane)s, %(key_label)s, %(handler)s,
    %(event_id)s, %(event_type)s, %(attempts)s, %(unknown)s, clock_timestamp(),
    clock_timestamp() + make_interval(secs => %(after_s)s), %(failure_class)s, %(error_class)s, %(error_message)s,
    %(fingerprint)s)
ON CONFLICT ON CONSTRAINT dlq_waiting_once_a_record DO UPDATE
SET attempts = excluded.attempts, unknown_attempts = excluded.unknown_attempts, due_at = excluded.due_at,
    first_failed_at = coalesce(w.first_failed_at, excluded.first_failed_at), handler = excluded.handler,
    failure_class = excluded.failure_class, error_class = excluded.error_class,
    error_message = excluded.error_message, fingerprint = excluded.fingerprint
RETURNING id
"""
_STORE = """
INSERT INTO dlq_waiting AS w (group_name, topic, partition, log_offset, topic_id, lane, key_label, handler, event_id,
    event_type, due_at, failure_class, error_class, error_message, fingerprint, stored, leader_epoch, timestamp_ms,
    original_key, original_value, original_headers, size_bytes)
VALUES (%(group)s, %(topic)s, %(partition)s, %(offset)s, %(topic_id)s, %(lane)s, %(key_label)s, %(handler)s,
    %(event_id)s, %(event_type)s, CASE WHEN %(is_behind)s THEN NULL ELSE clock_timestamp() END, '', '', '', '', true,
    %(leader_epoch)s, %(timestamp_ms)s, %(key)s, %(value)s, %(headers)s, %(size_bytes)s)
ON CONFLICT ON CONSTRAINT dlq_waiting_once_a_record DO UPDATE
SET stored = true, leader_epoch = excluded.leader_epoch, timestamp_ms = excluded.timestamp_ms,
    original_key = excluded.original_key, original_value = excluded.original_value,
    original_headers = excluded.original_headers, size_bytes = excluded.size_bytes,
    due_at = CASE WHEN %(is_behind)s THEN NULL ELSE w.due_at END
"""
_COUNT_KEY = """
SELECT count(*) FROM (
    SELECT FROM dlq_waiting WHERE group_name = %s AND topic = %s AND lane = %s AND stored LIMIT %s) x
"""
_TAKE_AWAY = "DELETE FROM dlq_waiting WHERE id = %s AND attempts = %s"
_NEXT_OF_KEY = """
UPDATE dlq_waiting SET due_at = clock_timestamp()
WHERE due_at IS NULL AND id = (
    SELECT id FROM dlq_waiting WHERE group_name = %s AND topic = %s AND lane = %s AND stored ORDER BY id LIMIT 1)
"""
_REST = "UPDATE dlq_waiting SET due_at = NULL WHERE id = %s AND stored"
_REFUND = """
UPDATE dlq_waiting w SET attempts = greatest(0, w.attempts - c.times), unknown_attempts =
    least(w.unknown_attempts, greatest(0, w.attempts - c.times)), due_at = clock_timestamp()
FROM (SELECT id, count(*)::int AS times FROM unnest(%s::bigint[]) AS id GROUP BY id) c
WHERE w.id = c.id AND w.due_at IS NOT NULL
"""
_DUE = """
SELECT id, lane, topic, partition, size_bytes FROM dlq_waiting
WHERE group_name = %(group)s AND stored AND due_at <= clock_timestamp() AND id <> ALL(%(but)s)
  AND handler <> ALL(%(held)s)
  AND (topic, partition) IN (SELECT * FROM unnest(%(topics)s::text[], %(partitions)s::int[]))
ORDER BY due_at, id LIMIT %(limit)s
"""
_BEHIND = """
SELECT b.id, b.size_bytes FROM unnest(%(topics)s::text[], %(lanes)s::bigint[], %(ids)s::bigint[]) AS h (topic, lane, id)
CROSS JOIN LATERAL (
    SELECT w.id, w.size_bytes FROM dlq_waiting w
    WHERE w.group_name = %(group)s AND w.topic = h.topic AND w.lane = h.lane AND w.stored AND w.id > h.id
    ORDER BY w.id LIMIT %(limit)s) b
WHERE b.id <> ALL(%(but)s) ORDER BY b.id
"""
_READ = """
SELECT id, topic, partition, log_offset, leader_epoch, timestamp_ms, original_key, original_value, original_headers,
    topic_id
FROM dlq_waiting WHERE id = ANY(%s) AND stored ORDER BY id
"""
_SIZE = """
SELECT count(*), coalesce(sum(size_bytes), 0)::bigint FROM (
    SELECT size_bytes FROM dlq_waiting WHERE group_name = %s AND stored LIMIT %s) x
"""
_FORGET_PASSED = """
DELETE FROM dlq_waiting w USING dlq_position p
WHERE NOT w.stored AND p.group_name = w.group_name AND p.topic = w.topic AND p.partition = w.partition
  AND CASE WHEN p.topic_id IS NOT DISTINCT FROM w.topic_id THEN w.log_offset < p.next_offset
      ELSE w.created_at < p.updated_at END
  AND p.updated_at < clock_timestamp() - make_interval(secs => %s)
"""
_HOLDS = """
SELECT h.topic, h.partition, h.records, h.stored, w.key_label, w.log_offset, w.attempts, w.error_class, w.due_at
FROM (
    SELECT topic, partition, count(*) AS records, count(*) FILTER (WHERE stored) AS stored,
        min(log_offset) FILTER (WHERE due_at IS NOT NULL) AS head
    FROM (
        SELECT topic, partition, log_offset, stored, due_at FROM dlq_waiting
        WHERE group_name = %(group)s LIMIT %(cap)s) c
    GROUP BY topic, partition) h
CROSS JOIN LATERAL (
    SELECT key_label, log_offset, attempts, error_class, due_at FROM dlq_waiting
    WHERE group_name = %(group)s AND topic = h.topic AND partition = h.partition AND log_offset = h.head LIMIT 1) w
ORDER BY h.topic, h.partition LIMIT %(rows)s
"""


class WaitingFull(Exception):
    """No further record may be stored: the key, or the group, has as many as it may. Nothing was written."""


class WaitingChanged(Exception):
    """Another process changed the waiting row meanwhile: this attempt's effect must not be committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is known of a record before its next try; `id` None = it does not wait. `due_in_s` may be negative.

    `is_behind`: stored records of its key go first. `is_quarantined`: a parked head of its key does.
    """

    id: int | None
    spent: Spent
    stored: bool
    due_in_s: float | None
    failure_class: FailureClass | None
    error_class: str
    error_message: str
    fingerprint: str
    is_behind: bool
    is_quarantined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The record that is worked on, and what it is known by. `lane` is its key's, None without one."""

    group: str
    record: ConsumerRecord
    topic_id: str | None
    lane: int | None
    handler: str
    event_id: uuid.UUID | None
    event_type: str


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A stored record as it was delivered, with its row's number and the broker's id of its topic then."""

    id: int
    record: ConsumerRecord
    topic_id: str | None


# -- One record, under its key's lock ------------------------------------------------------------------------
def look_up(cursor: Any, subject: Subject) -> Found:
    """Read what is known of the record."""
    cursor.execute(_LOOK_UP, _coordinates(subject))
    row = cursor.fetchone()
    number, attempts, unknown, stored, due_in_s, failure_class, error_class, message, mark, is_behind, is_shut = row
    return Found(
        id=number,
        spent=Spent(attempts=attempts or 0, unknown=unknown or 0),
        stored=bool(stored),
        due_in_s=due_in_s,
        failure_class=FailureClass(failure_class) if failure_class else None,
        error_class=error_class or "",
        error_message=message or "",
        fingerprint=mark or "",
        is_behind=is_behind,
        is_quarantined=is_shut,
    )


def is_applied(cursor: Any, group: str, event_id: uuid.UUID | None) -> bool:
    """Tell whether the group has applied the event; the caller holds the key's lock."""
    if event_id is None:
        return False
    cursor.execute(_IS_APPLIED, [group, event_id])
    return bool(cursor.fetchone()[0])


def note_wait(cursor: Any, subject: Subject, spent: Spent, failure: Failure, after_s: float) -> int:
    """Keep what the record has spent and when it is due; returns the row's number."""
    values = {
        **_known(subject),
        "attempts": spent.attempts,
        "unknown": spent.unknown,
        "after_s": after_s,
        "failure_class": failure.failure_class.value,
        "error_class": failure.error_class[:200],
        "error_message": failure.message[:500],
        "fingerprint": failure.fingerprint,
    }
    cursor.execute(_NOTE, values)
    return int(cursor.fetchone()[0])


def store(cursor: Any, subject: Subject, *, is_behind: bool) -> None:
    """Keep the record's exact bytes, so that its offset may move on; what it has spent stays.

    Raises:
        WaitingFull: its key has `CONSUMER_WAITING_KEY_RECORDS` stored already.
    """
    record = subject.record
    if subject.lane is not None:
        limit = settings.CONSUMER_WAITING_KEY_RECORDS
        cursor.execute(_COUNT_KEY, [subject.group, record.place.topic, subject.lane, limit])
        if cursor.fetchone()[0] >= limit:
            raise WaitingFull(f"the key has {limit} records waiting, as many as it may")
    originals = seal(record)
    values = {
        **_known(subject),
        "is_behind": is_behind,
        "leader_epoch": record.leader_epoch,
        "timestamp_ms": record.timestamp_ms,
        "key": originals.key,
        "value": originals.value,
        "headers": originals.headers,
        "size_bytes": record.size_bytes,
    }
    cursor.execute(_STORE, values)


def take_away(cursor: Any, subject: Subject, found: Found) -> None:
    """Delete the row of a record that is settled, and let the next stored one of its key be due.

    Raises:
        WaitingChanged: the row is gone or counts another try: roll back.
    """
    if found.id is None:
        return
    cursor.execute(_TAKE_AWAY, [found.id, found.spent.attempts])
    if cursor.rowcount == 0:
        raise WaitingChanged("the record's waiting row was changed by another process")
    if found.stored and subject.lane is not None:
        cursor.execute(_NEXT_OF_KEY, [subject.group, subject.record.place.topic, subject.lane])


def rest(cursor: Any, found: Found) -> None:
    """Let a stored record that is not the first of its key wait for the first."""
    cursor.execute(_REST, [found.id])


def refund(cursor: Any, culprits: Sequence[int]) -> None:
    """Take back one try for each time that a row's number stands in `culprits`; those records are due at once."""
    cursor.execute(_REFUND, [list(culprits)])


# -- Stored records that may run -----------------------------------------------------------------------------
def load_due(
    group: str,
    places: Collection[PartitionRef],
    *,
    but: Collection[int],
    held: Collection[str],
    limit: int,
    limit_bytes: int,
) -> list[StoredRecord]:
    """Read stored records of these partitions that are due, each key's first with some of those behind it, in order.

    At most `limit` records and `limit_bytes` (one is always read); none whose number is in `but` or whose first of the
    key is for a handler in `held`.
    """
    if not places or limit < 1:
        return []
    with connection.cursor() as cursor:
        wanted: dict[str, Any] = {
            "group": group,
            "but": list(but),
            "held": list(held),
            "limit": limit,
            **_columns(places),
        }
        cursor.execute(_DUE, wanted)
        heads = cursor.fetchall()
        if not heads:
            return []
        sizes = {number: size for number, _, _, _, size in heads}
        sizes.update(_sizes_behind(cursor, group, [head for head in heads if head[1] is not None], but, limit))
        cursor.execute(_READ, [_fitting(sizes, limit, limit_bytes)])
        return [_stored_record(row) for row in cursor.fetchall()]


def _sizes_behind(
    cursor: Any, group: str, heads: Sequence[tuple[Any, ...]], but: Collection[int], limit: int
) -> dict[int, int]:
    if not heads:
        return {}
    values = {
        "group": group,
        "topics": [topic for _, _, topic, _, _ in heads],
        "lanes": [lane for _, lane, _, _, _ in heads],
        "ids": [number for number, *_ in heads],
        "limit": max(1, limit // len(heads)),
        "but": list(but),
    }
    cursor.execute(_BEHIND, values)
    return dict(cursor.fetchall())


def _fitting(sizes: dict[int, int], limit: int, limit_bytes: int) -> list[int]:
    """Return the numbers that fit, heads first, as `sizes` has them."""
    taken: list[int] = []
    total = 0
    for number, size in sizes.items():
        total += size
        if taken and (len(taken) >= limit or total > limit_bytes):
            break
        taken.append(number)
    return taken


def _stored_record(row: tuple[Any, ...]) -> StoredRecord:
    number, topic, partition, offset, leader_epoch, timestamp_ms, key, value, headers, topic_id = row
    originals = Originals(key=_bytes(key), value=_bytes(value), headers=_bytes(headers))
    opened_key, opened_value, opened_headers = unseal(originals)
    record = ConsumerRecord(
        place=PartitionRef(topic, partition),
        offset=offset,
        leader_epoch=leader_epoch,
        timestamp_ms=timestamp_ms,
        key=opened_key,
        value=opened_value,
        headers=opened_headers,
    )
    return StoredRecord(number, record, topic_id)


# -- The whole group -----------------------------------------------------------------------------------------
def is_room_full(group: str) -> bool:
    """Tell whether the group has as many stored records or bytes as it may: a bounded count."""
    with connection.cursor() as cursor:
        cursor.execute(_SIZE, [group, settings.CONSUMER_WAITING_GROUP_RECORDS])
        records, size = cursor.fetchone()
    return bool(records >= settings.CONSUMER_WAITING_GROUP_RECORDS or size >= settings.CONSUMER_WAITING_GROUP_BYTES)


def forget_passed() -> None:
    """Delete rows of delivered records that do not come again: the group was moved past them, or the topic is gone."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_PASSED, [settings.CONSUMER_WAITING_PASSED_S])


def list_holds(group: str) -> list[Hold]:
    """What waits on each partition of a group, with the lowest that is due next; counts end at a cap."""
    values: dict[str, Any] = {
        "group": group,
        "cap": settings.CONSUMER_WAITING_GROUP_RECORDS,
        "rows": settings.CONSUMER_HOLDS_SHOWN,
    }
    with connection.cursor() as cursor:
        cursor.execute(_HOLDS, values)
        rows = cursor.fetchall()
    return [
        Hold(
            group=group,
            topic=topic,
            partition=partition,
            records=records,
            stored=stored,
            key_label=key_label,
            head_offset=offset,
            attempts=attempts,
            error_class=error_class,
            until=due_at,
        )
        for topic, partition, records, stored, key_label, offset, attempts, error_class, due_at in rows
    ]


def _coordinates(subject: Subject) -> dict[str, Any]:
    return {
        "group": subject.group,
        "topic": subject.record.place.topic,
        "partition": subject.record.place.partition,
        "offset": subject.record.offset,
        "topic_id": subject.topic_id,
        "lane": subject.lane,
    }


def _known(subject: Subject) -> dict[str, Any]:
    return {
        **_coordinates(subject),
        "key_label": label_key(subject.record.key),
        "handler": subject.handler[:200],
        "event_id": subject.event_id,
        "event_type": subject.event_type[:200],
    }


def _columns(places: Collection[PartitionRef]) -> dict[str, list[Any]]:
    listed = sorted(places)
    return {"topics": [place.topic for place in listed], "partitions": [place.partition for place in listed]}


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
