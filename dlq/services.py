"""Writes of the consumers: claim an event, keep its result, park a record, count, remember positions.

Every transaction that applies or parks a keyed record takes the key's lock first (`dlq.key_queue`); `park_record` does
so itself, whoever calls `claim_event` has done it.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import connection
from uuid_utils.compat import uuid7

from dlq.copying import publish_copy
from dlq.domain.envelope import find_event_id, find_event_type
from dlq.domain.failure import Failure
from dlq.domain.quarantine import lane_of
from dlq.key_queue import hold_key, lock_lane
from dlq.originals import seal
from dlq.types import DeadLetterState, ForeignOrigin, Origin, Result
from relay.facade import label_key
from relay.types import ConsumerRecord, PartitionRef

SLOTS = 64
RELAY_GROUP = "relay"
"""What stands for the group where no group was reached."""
OUTBOX_ID = "outbox"
"""Stands for the topic's id: no broker gives such a one, so a row of the outbox never meets a record of Kafka."""

_CLAIM = """
INSERT INTO dlq_applied (group_name, event_id, handler, topic, partition, log_offset)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (group_name, event_id) DO NOTHING
"""
_RESULT = "UPDATE dlq_applied SET outcome = %s, result = %s::jsonb WHERE group_name = %s AND event_id = %s"

_LETTER = """
INSERT INTO dlq_dead_letter (
    id, group_name, handler, topic, partition, log_offset, topic_id, leader_epoch, record_timestamp,
    original_key, original_value, original_headers, key_label, event_id, event_type, published_at,
    failure_class, error_class, error_message, stack, fingerprint, attempts, state, origin, parked_at,
    lane, queue_number)
SELECT %(id)s, %(group)s, %(handler)s, %(topic)s, %(partition)s, %(offset)s, %(topic_id)s, %(leader_epoch)s,
    %(record_timestamp)s, %(key)s::bytea, %(value)s::bytea, %(headers)s::bytea, %(key_label)s, %(event_id)s,
    %(event_type)s, %(published_at)s, %(failure_class)s, %(error_class)s, %(error_message)s, %(stack)s,
    %(fingerprint)s, %(attempts)s, %(state)s, %(origin)s, clock_timestamp(),
    %(lane)s, CASE WHEN %(queued)s THEN nextval('dlq_queue_number') END
"""
# A repeat of an event that is parked already, with the same bytes, is a repeat and not a second dead letter.
_PARK = f"""{_LETTER}
WHERE NOT EXISTS (
    SELECT FROM dlq_dead_letter d
    WHERE d.group_name = %(group)s AND d.event_id = %(event_id)s AND d.state = %(state)s
      AND d.topic = %(topic)s AND d.original_key IS NOT DISTINCT FROM %(key)s::bytea
      AND d.original_value IS NOT DISTINCT FROM %(value)s::bytea)
ON CONFLICT ON CONSTRAINT dlq_dead_letter_once_a_record DO NOTHING
"""  # noqa: S608 - two constants
# Two foreign dead letters of one event are two: each tells of a failure of its own.
_IMPORT = f"{_LETTER} ON CONFLICT DO NOTHING"
_STOP = """
INSERT INTO dlq_foreign_stop (dead_letter_id, number, family, topic, partition, log_offset, record_timestamp,
    group_name, details, complaints)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s::jsonb)
"""
_COUNT = """
INSERT INTO dlq_counter AS c (topic, group_name, slot, open, parked, duplicates, behind)
VALUES (%(topic)s, %(group)s, %(slot)s, %(open)s, %(parked)s, %(duplicates)s, %(behind)s)
ON CONFLICT (topic, group_name, slot) DO UPDATE
SET open = c.open + excluded.open, parked = c.parked + excluded.parked,
    duplicates = c.duplicates + excluded.duplicates, behind = c.behind + excluded.behind
"""
_BUCKET = """
INSERT INTO dlq_parked_bucket AS b (minute, topic, group_name, parked)
VALUES (date_trunc('minute', clock_timestamp()), %s, %s, 1)
ON CONFLICT (minute, topic, group_name) DO UPDATE SET parked = b.parked + 1
"""
_POSITION = """
INSERT INTO dlq_position (group_name, topic, partition, topic_id, next_offset, updated_at)
VALUES (%s, %s, %s, %s, %s, clock_timestamp())
ON CONFLICT (group_name, topic, partition) DO UPDATE
SET topic_id = excluded.topic_id, next_offset = excluded.next_offset, updated_at = excluded.updated_at
"""
_REMEMBERED = """
SELECT next_offset FROM dlq_position
WHERE group_name = %s AND topic = %s AND partition = %s AND topic_id IS NOT DISTINCT FROM %s
"""
_REMEMBERED_IDS = "SELECT partition, topic_id FROM dlq_position WHERE group_name = %s AND topic = %s"
_FORGET_BUCKETS = "DELETE FROM dlq_parked_bucket WHERE minute < clock_timestamp() - make_interval(secs => %s)"


class ResultRefused(Exception):
    """A handler returned what cannot be stored; its text is fixed."""


def claim_event(group: str, event_id: uuid.UUID, handler: str, record: ConsumerRecord) -> bool:
    """Insert the dedupe row in the caller's transaction; False when the group has applied this event before.

    Waits for another transaction that holds the same event, so two never apply it at once.
    """
    place = record.place
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, [group, event_id, handler[:200], place.topic, place.partition, record.offset])
        return bool(cursor.rowcount == 1)


def store_result(group: str, event_id: uuid.UUID, result: Result) -> None:
    """Keep what a handler returned beside its dedupe row, in the same transaction.

    Raises:
        ResultRefused: it is not JSON or larger than `HANDLER_RESULT_BYTES`.
    """
    try:
        data = json.dumps(dict(result.data), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ResultRefused("the handler's result is not JSON") from error
    if len(data.encode()) > settings.HANDLER_RESULT_BYTES:
        raise ResultRefused(f"the handler's result is over {settings.HANDLER_RESULT_BYTES} bytes")
    with connection.cursor() as cursor:
        cursor.execute(_RESULT, [result.outcome[:40], data, group, event_id])


def park_record(
    group: str,
    handler: str,
    record: ConsumerRecord,
    failure: Failure,
    *,
    topic_id: str | None,
    slot: int,
    quarantines: bool = True,
) -> bool:
    """Park a record in the caller's transaction, with its counts; False when it, or its event, is parked already.

    Takes the key's lock and, with `quarantines`, makes it the head of its key: later records park behind it. Idempotent
    on (group, topic, partition, offset, topic id).
    """
    values = _dead_letter_values(group, handler, record, failure, topic_id)
    with connection.cursor() as cursor:
        return _write_dead_letter(cursor, {**values, "queued": quarantines and record.key is not None}, slot)


def park_unsent(cursor: Any, record: ConsumerRecord, failure: Failure, *, slot: int) -> bool:
    """Park an outbox row that the relay gave up, in the transaction of its cursor; False = it was parked before.

    `record` has the row's shard and position for partition and offset: it never had a place in Kafka.
    """
    values = _dead_letter_values(RELAY_GROUP, "", record, failure, OUTBOX_ID)
    return _write_dead_letter(cursor, {**values, "origin": Origin.RELAY.value}, slot)


def park_foreign(
    group: str,
    handler: str,
    record: ConsumerRecord,
    failure: Failure,
    *,
    topic_id: str | None,
) -> uuid.UUID | None:
    """Park a record of a foreign dead-letter topic in the caller's transaction; None = it is a dead letter already.

    Idempotent on (topic, partition, offset, topic id), whatever the group. Counts nothing (`count`); `keep_stops` in
    the same transaction.
    """
    values = {**_dead_letter_values(group, handler, record, failure, topic_id), "origin": Origin.FOREIGN.value}
    with connection.cursor() as cursor:
        cursor.execute(_IMPORT, values)
        return values["id"] if cursor.rowcount == 1 else None


def keep_stops(letters: Mapping[uuid.UUID, Sequence[ForeignOrigin]]) -> None:
    """Write where foreign dead letters failed, in the transaction that parked them."""
    rows = [
        _stop_values(letter, number, stop) for letter, stops in letters.items() for number, stop in enumerate(stops)
    ]
    with connection.cursor() as cursor:
        cursor.executemany(_STOP, rows)


def _stop_values(dead_letter_id: uuid.UUID, number: int, stop: ForeignOrigin) -> tuple[Any, ...]:
    return (
        dead_letter_id,
        number,
        stop.family.value,
        stop.topic,
        stop.partition,
        stop.offset,
        stop.timestamp,
        stop.group,
        json.dumps(list(stop.details)),
        json.dumps(list(stop.complaints)),
    )


def _write_dead_letter(cursor: Any, values: Mapping[str, Any], slot: int) -> bool:
    if values["queued"]:
        lock_lane(cursor, values["lane"])
    cursor.execute(_PARK, values)
    is_new = bool(cursor.rowcount == 1)
    group, topic = values["group"], values["topic"]
    if not is_new:
        _add(cursor, group, topic, slot, duplicates=1)
        return False
    publish_copy(cursor, values)
    is_head = not values["queued"] or hold_key(cursor, values)
    _add(cursor, group, topic, slot, opened=1, parked=1, behind=int(not is_head))
    cursor.execute(_BUCKET, [topic, group])
    return True


def count(
    group: str, topic: str, slot: int, *, opened: int = 0, parked: int = 0, duplicates: int = 0, behind: int = 0
) -> None:
    """Add to the exact counters; call it last in a transaction, since it locks a row until the commit."""
    with connection.cursor() as cursor:
        _add(cursor, group, topic, slot, opened=opened, parked=parked, duplicates=duplicates, behind=behind)


def _add(
    cursor: Any,
    group: str,
    topic: str,
    slot: int,
    *,
    opened: int = 0,
    parked: int = 0,
    duplicates: int = 0,
    behind: int = 0,
) -> None:
    cursor.execute(
        _COUNT,
        {
            "topic": topic,
            "group": group,
            "slot": slot % SLOTS,
            "open": opened,
            "parked": parked,
            "duplicates": duplicates,
            "behind": behind,
        },
    )


def remember_position(group: str, place: PartitionRef, topic_id: str | None, next_offset: int) -> None:
    """Note the offset that Kafka took; lower than before when a person rewound the group."""
    with connection.cursor() as cursor:
        cursor.execute(_POSITION, [group, place.topic, place.partition, topic_id, next_offset])


def remembered_position(group: str, place: PartitionRef, topic_id: str | None) -> int | None:
    """Return the last noted offset for this very topic (one that was made anew under its name has another id)."""
    with connection.cursor() as cursor:
        cursor.execute(_REMEMBERED, [group, place.topic, place.partition, topic_id])
        row = cursor.fetchone()
    return row[0] if row else None


def remembered_topic_ids(group: str, topic: str) -> dict[int, str | None]:
    """Return partition -> the broker's id of the topic that the group last read under this name."""
    with connection.cursor() as cursor:
        cursor.execute(_REMEMBERED_IDS, [group, topic])
        return dict(cursor.fetchall())


def forget_old_buckets() -> None:
    """Delete per-minute counts beyond `DLQ_BUCKET_RETENTION`; totals are kept elsewhere."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_BUCKETS, [settings.DLQ_BUCKET_RETENTION.total_seconds()])


def _dead_letter_values(
    group: str, handler: str, record: ConsumerRecord, failure: Failure, topic_id: str | None
) -> Mapping[str, Any]:
    originals = seal(record)
    return {
        "id": uuid7(),
        "group": group,
        "handler": handler[:200],
        "topic": record.place.topic,
        "partition": record.place.partition,
        "offset": record.offset,
        "topic_id": topic_id,
        "leader_epoch": record.leader_epoch,
        "record_timestamp": _as_time(record.timestamp_ms),
        "key": originals.key,
        "value": originals.value,
        "headers": originals.headers,
        "key_label": label_key(record.key),
        "event_id": find_event_id(record),
        "event_type": find_event_type(record),
        "published_at": failure.published_at,
        "failure_class": failure.failure_class.value,
        "error_class": failure.error_class[:200],
        "error_message": failure.message[:500],
        "stack": failure.stack,
        "fingerprint": failure.fingerprint,
        "attempts": failure.attempts,
        "state": DeadLetterState.PARKED.value,
        "origin": Origin.CONSUMER.value,
        "lane": None if record.key is None else lane_of(group, record.place.topic, record.key),
        "queued": False,
    }


def _as_time(ms: int | None) -> datetime | None:
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return None
