"""Replay to the topic: for dead letters of groups that are not Signalbox's, and rows that the relay gave up.

The record goes into the outbox again under its own event id, with its own bytes; that is *sent*, not applied.
"""

from typing import Any
from uuid import UUID

from django.db import connection, transaction

from dlq.domain.copying import RESERVED
from dlq.key_queue import lock_lane
from dlq.replay.leasing import Taken
from dlq.replay.stored import StoredLetter
from dlq.replay.working import ItemStep
from dlq.types import Origin
from relay.facade import publish

_TARGET = """
SELECT d.origin, d.topic, f.topic FROM dlq_dead_letter d
LEFT JOIN dlq_foreign_stop f ON f.dead_letter_id = d.id AND f.number = 0 WHERE d.id = %s
"""
UNTYPED = "unknown"
"""The event type of a record that has none: the outbox needs one."""


def send_item(item: Taken, letter: StoredLetter, step: ItemStep) -> None:
    """Put one record into the outbox, or leave it as the step says; one transaction.

    Raises:
        PublishError: the outbox refuses the record; nothing was written.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        if item.lane is not None:
            lock_lane(cursor, item.lane)
        if not step.begin(cursor):
            return
        publish(
            _find_topic(cursor, item.letter_id),
            key=letter.record.key,
            type=letter.event_type or UNTYPED,
            payload=letter.record.value,
            headers=[(name, value) for name, value in letter.record.headers or () if name.lower() not in RESERVED],
            event_id=letter.event_id,
            strict=letter.record.key is not None,
        )
        step.send(cursor)


def _find_topic(cursor: Any, letter_id: UUID) -> str:
    cursor.execute(_TARGET, [letter_id])
    origin, topic, stop_topic = cursor.fetchone()
    return str(stop_topic if origin == Origin.FOREIGN else topic)
