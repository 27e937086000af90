"""Recorded tries: what failed, when and how it ended, without any text or payload.

They feed the simulation of policies and the timeline of a record. A record that succeeds at its first try leaves
none, so the table grows with failures alone; it is bounded by age and by rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from dlq.types import AttemptOutcome, FailureClass
from relay.facade import label_key
from relay.types import ConsumerRecord, PartitionRef

_NOTE = """
INSERT INTO dlq_attempt (group_name, topic, partition, log_offset, topic_id, handler, event_id, event_type, key_label,
    number, outcome, failure_class, error_class, fingerprint, wait_s, at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, clock_timestamp())
"""
_OF_RECORD = """
SELECT number, outcome, failure_class, error_class, fingerprint, wait_s, at FROM dlq_attempt
WHERE group_name = %s AND topic = %s AND partition = %s AND log_offset = %s
  AND (topic_id IS NULL OR %s::text IS NULL OR topic_id = %s)
ORDER BY id DESC LIMIT %s
"""
_FORGET_OLD = """
DELETE FROM dlq_attempt WHERE id IN (
    SELECT id FROM dlq_attempt WHERE at < clock_timestamp() - make_interval(secs => %s) ORDER BY at LIMIT %s)
"""
# Ids have few gaps, so the distance to the newest stands for the number of rows.
_FORGET_MANY = """
DELETE FROM dlq_attempt WHERE id IN (
    SELECT id FROM dlq_attempt WHERE id <= (SELECT max(id) FROM dlq_attempt) - %s ORDER BY id LIMIT %s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """How one try of a record ended. `number` counts from 1; `wait_s` is None unless it waits.

    For an applied one, the failure is the one before it.
    """

    handler: str
    event_id: UUID | None
    event_type: str
    number: int
    outcome: AttemptOutcome
    failure_class: FailureClass
    error_class: str
    fingerprint: str
    wait_s: float | None = None
    topic_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One recorded try of a record."""

    number: int
    outcome: AttemptOutcome
    failure_class: FailureClass
    error_class: str
    fingerprint: str
    wait_s: float | None
    at: datetime


def note_attempt(cursor: Any, group: str, record: ConsumerRecord, tried: Tried) -> None:
    """Record a try in the transaction that settles it: the waiting row, the parking, or the effect."""
    place = record.place
    cursor.execute(
        _NOTE,
        [
            group,
            place.topic,
            place.partition,
            record.offset,
            tried.topic_id,
            tried.handler[:200],
            tried.event_id,
            tried.event_type[:200],
            label_key(record.key),
            tried.number,
            tried.outcome.value,
            tried.failure_class.value,
            tried.error_class[:200],
            tried.fingerprint,
            tried.wait_s,
        ],
    )


def list_attempts(group: str, place: PartitionRef, offset: int, topic_id: str | None) -> Sequence[AttemptRow]:
    """Return the recorded tries of one record, oldest first: the last `DLQ_ATTEMPTS_SHOWN`.

    A try that was made while the broker could not be asked for the topic's id counts as one of it.
    """
    params: list[Any] = [group, place.topic, place.partition, offset, topic_id, topic_id, settings.DLQ_ATTEMPTS_SHOWN]
    with connection.cursor() as cursor:
        cursor.execute(_OF_RECORD, params)
        rows = cursor.fetchall()
    return [
        AttemptRow(
            number=number,
            outcome=AttemptOutcome(outcome),
            failure_class=FailureClass(failure_class),
            error_class=error_class,
            fingerprint=fingerprint,
            wait_s=wait_s,
            at=at,
        )
        for number, outcome, failure_class, error_class, fingerprint, wait_s, at in reversed(rows)
    ]


def forget_old_attempts() -> None:
    """Delete tries beyond `DLQ_ATTEMPT_RETENTION` and beyond `DLQ_ATTEMPT_ROWS`, batch by batch, bounded a call."""
    _forget(_FORGET_OLD, settings.DLQ_ATTEMPT_RETENTION.total_seconds())
    _forget(_FORGET_MANY, settings.DLQ_ATTEMPT_ROWS)


def _forget(statement: str, limit: float) -> None:
    for _ in range(settings.DLQ_ATTEMPT_SWEEP_BATCHES):
        with connection.cursor() as cursor:
            cursor.execute(statement, [limit, settings.DLQ_ATTEMPT_SWEEP_ROWS])
            if cursor.rowcount < settings.DLQ_ATTEMPT_SWEEP_ROWS:
                return
