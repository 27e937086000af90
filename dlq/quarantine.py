"""Quarantine: a key with a parked head. Its later records park behind it, in order, until a person releases it.

    lock_lane -> find_head -> (none: apply, or park and become the head) | (one: append_behind)

all in one transaction, so that nothing newer overtakes. The runtime calls it for each record, a replay for each dead
letter. Whoever discards or restores some calls `lock_letters` before and `settle_queues` after.

Errors: QuarantineFull: a bound is reached; the record waits in Kafka, and with it at last its partition.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from dlq import services
from dlq.domain.envelope import find_event_id
from dlq.domain.failure import Failure
from dlq.key_queue import Head, find_head
from dlq.retrying import is_applied
from dlq.types import FailureClass
from relay.facade import close_incident, label_key, list_open_incidents, open_incident
from relay.types import ConsumerRecord, IncidentKind

__all__ = [
    "Head",
    "KeyFreed",
    "QuarantineFull",
    "append_behind",
    "close_relieved",
    "find_head",
    "lock_letters",
    "report_full",
    "settle_queues",
]

BEHIND_CLASS = "behind the head of its key"
_BEHIND = "SELECT coalesce(sum(behind), 0)::bigint FROM dlq_counter WHERE group_name = %s"
_LETTERS = """
SELECT coalesce(max(letters), 0) FROM dlq_key WHERE group_name = %s AND topic = %s AND key_label = %s
"""
_LANES = """
SELECT DISTINCT lane FROM dlq_dead_letter WHERE id = ANY(%s) AND lane IS NOT NULL ORDER BY lane
"""
_LOCK_KEYS = """
SELECT FROM dlq_key WHERE lane IN (SELECT lane FROM dlq_dead_letter WHERE id = ANY(%s)) ORDER BY lane FOR UPDATE
"""
_QUEUES = """
SELECT k.lane, k.group_name, k.topic, k.letters, q.letters, q.head
FROM dlq_key k CROSS JOIN LATERAL (
    SELECT count(*) AS letters, (array_agg(d.id ORDER BY d.queue_number))[1] AS head FROM dlq_dead_letter d
    WHERE d.lane = k.lane AND d.state = 'parked' AND d.queue_number IS NOT NULL
) q
WHERE k.lane = ANY(%s)
"""
_SET = """
UPDATE dlq_key k SET head_id = new.head, letters = new.letters,
    head_at = CASE WHEN k.head_id = new.head THEN k.head_at ELSE clock_timestamp() END
FROM unnest(%s::bigint[], %s::uuid[], %s::int[]) AS new (lane, head, letters) WHERE k.lane = new.lane
"""
_FREE = "DELETE FROM dlq_key WHERE lane = ANY(%s)"
# What is parked again although its key is free has no place in a queue: later records may have passed it.
_UNQUEUE = """
UPDATE dlq_dead_letter d SET queue_number = NULL
WHERE id = ANY(%s) AND state = 'parked' AND queue_number IS NOT NULL
  AND NOT EXISTS (SELECT FROM dlq_key k WHERE k.lane = d.lane)
"""


class QuarantineFull(Exception):
    """As many records as may wait behind heads are waiting; nothing was written. Its text holds no key."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


def append_behind(
    head: Head, group: str, handler: str, record: ConsumerRecord, *, topic_id: str | None, slot: int
) -> bool:
    """Park a record behind the head of its key, in the caller's transaction, which holds the key's lock.

    Returns:
        False when nothing was written but a duplicate counted: its event is applied, or it is a dead letter already.

    Raises:
        QuarantineFull: the key or the group has as many as it may.
        KeyFreed: a person discarded what it would have stood behind.
    """
    topic = record.place.topic
    with connection.cursor() as cursor:
        if is_applied(cursor, group, find_event_id(record)):
            services.count(group, topic, slot, duplicates=1)
            return False
        _require_room(cursor, head, group, record)
    failure = Failure(
        failure_class=FailureClass.BEHIND,
        error_class=BEHIND_CLASS,
        message="never tried: it waits until the one before it is released",
        stack="",
        fingerprint=head.fingerprint,
        attempts=0,
    )
    is_new = services.park_record(group, handler, record, failure, topic_id=topic_id, slot=slot)
    with connection.cursor() as cursor:
        found = find_head(cursor, head.lane)
    if found is None or (is_new and found.letters == 1):
        raise KeyFreed("nothing of this key is parked any more")
    return is_new


def _require_room(cursor: Any, head: Head, group: str, record: ConsumerRecord) -> None:
    label, topic = label_key(record.key), record.place.topic
    if head.letters >= settings.DLQ_KEY_LETTERS_MAX:
        raise QuarantineFull(
            f"{group}/{topic}/{label}",
            f"{head.letters:,} records of {label} in {topic} wait behind a parked one; {group} keeps at most"
            f" {settings.DLQ_KEY_LETTERS_MAX:,} of a key (DLQ_KEY_LETTERS_MAX)",
        )
    cursor.execute(_BEHIND, [group])
    behind = cursor.fetchone()[0]
    if behind >= settings.DLQ_GROUP_BEHIND_MAX:
        raise QuarantineFull(
            group,
            f"{behind:,} records wait behind parked ones of their keys; {group} keeps at most"
            f" {settings.DLQ_GROUP_BEHIND_MAX:,} (DLQ_GROUP_BEHIND_MAX)",
        )


class KeyFreed(Exception):
    """The key was freed while a record was appended to it: the transaction ends, and the record is tried again."""


def report_full(full: QuarantineFull) -> None:
    """Open the incident of a full quarantine; call it after the transaction that was refused."""
    open_incident(
        IncidentKind.QUARANTINE_FULL,
        full.cause,
        title=f"Quarantine is full: {full}",
        meaning="Further records of the key stay in Kafka, in order; at last their partition waits with them. Nothing"
        " is dropped.",
        action="Release or discard what is parked. The records go on by themselves.",
        link="/quarantine/",
    )


def close_relieved(group: str) -> None:
    """Close the incidents of this group's quarantine that has room again."""
    for incident in list_open_incidents():
        if incident.kind is IncidentKind.QUARANTINE_FULL and _has_room(group, incident.cause):
            close_incident(IncidentKind.QUARANTINE_FULL, incident.cause)


def _has_room(group: str, cause: str) -> bool:
    """Tell whether a cause of `append_behind` is this group's and has passed."""
    topic, _, label = cause.removeprefix(f"{group}/").partition("/")
    with connection.cursor() as cursor:
        if cause == group:
            cursor.execute(_BEHIND, [group])
            return bool(cursor.fetchone()[0] < settings.DLQ_GROUP_BEHIND_MAX)
        if not cause.startswith(f"{group}/") or "/" in label:
            return False
        cursor.execute(_LETTERS, [group, topic, label])
        return bool(cursor.fetchone()[0] < settings.DLQ_KEY_LETTERS_MAX)


def lock_letters(cursor: Any, letter_ids: Sequence[UUID]) -> None:
    """Lock the queues of these dead letters, in one order for everybody, before they are changed.

    Rows are locked, not keys: a lock of a key is kept in shared memory, which thousands would use up, and is held while
    a handler runs. Whoever moves a queue on under the key's lock locks its row as well.
    """
    cursor.execute(_LOCK_KEYS, [list(letter_ids)])


def settle_queues(cursor: Any, letter_ids: Sequence[UUID]) -> None:
    """Put the queues right after these dead letters left the state parked or came back to it; after `lock_letters`.

    The first of a queue is its head, also one that was never tried; it waits for its release. A key with an empty queue
    is free. What comes back to a quarantined key takes its old place.
    """
    cursor.execute(_LANES, [list(letter_ids)])
    lanes = [lane for (lane,) in cursor.fetchall()]
    cursor.execute(_QUEUES, [lanes])
    rows = cursor.fetchall()
    kept = [(lane, head, letters) for lane, _, _, _, letters, head in rows if letters]
    cursor.execute(_SET, [list(column) for column in zip(*kept, strict=True)] if kept else [[], [], []])
    cursor.execute(_FREE, [[lane for lane, _, _, _, letters, _ in rows if not letters]])
    cursor.execute(_UNQUEUE, [list(letter_ids)])
    behind: Counter[tuple[str, str]] = Counter()
    for _, group, topic, before, letters, _ in rows:
        behind[group, topic] += max(letters, 1) - before
    for (group, topic), change in sorted(behind.items()):
        services.count(group, topic, 0, behind=change)
