"""Dead letters as records again, byte for byte."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from dlq.originals import Originals, unseal
from relay.types import ConsumerRecord, PartitionRef

_LOAD = """
SELECT id, topic, partition, log_offset, leader_epoch, record_timestamp, original_key, original_value,
    original_headers, topic_id, attempts, event_id, event_type
FROM dlq_dead_letter WHERE id = ANY(%s)
"""

_SMALL = "AND coalesce(octet_length(original_value), 0) + coalesce(octet_length(original_headers), 0) <= %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetter:
    """A dead letter's record, with how often it was tried."""

    record: ConsumerRecord
    topic_id: str | None
    attempts: int
    event_id: UUID | None
    event_type: str


def load_records(letter_ids: Sequence[UUID]) -> Mapping[UUID, StoredLetter]:
    """Return the exact records of dead letters, by id; the caller bounds how many."""
    return _load(_LOAD, [list(letter_ids)])


def load_small_records(letter_ids: Sequence[UUID]) -> Mapping[UUID, StoredLetter]:
    """Return those of them whose values are at most `REPLAY_SMALL_BYTES`: many may be held at once."""
    return _load(f"{_LOAD} {_SMALL}", [list(letter_ids), settings.REPLAY_SMALL_BYTES])


def _load(sql: str, values: list[Any]) -> Mapping[UUID, StoredLetter]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return {row[0]: _letter(row) for row in cursor.fetchall()}


def _letter(row: tuple[Any, ...]) -> StoredLetter:
    _, topic, partition, offset, epoch, timestamp, key, value, headers, topic_id, attempts, event_id, event_type = row
    key, value, headers = unseal(Originals(key=key, value=value, headers=headers))
    record = ConsumerRecord(
        place=PartitionRef(topic, partition),
        offset=offset,
        leader_epoch=epoch,
        timestamp_ms=_as_ms(timestamp),
        key=key,
        value=value,
        headers=headers,
    )
    return StoredLetter(record=record, topic_id=topic_id, attempts=attempts, event_id=event_id, event_type=event_type)


def _as_ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)
