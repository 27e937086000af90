"""Dead letters for outbox rows that the relay gives up (`relay.ports`)."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from dlq.copying import mark_failed
from dlq.domain.failure import Failure
from dlq.domain.fingerprint import fingerprint
from dlq.models import DeadLetter
from dlq.services import OUTBOX_ID, RELAY_GROUP, park_unsent
from dlq.signals import dead_letters_changed
from dlq.types import FailureClass
from relay.ports import register_park
from relay.signals import rows_parked
from relay.types import ConsumerRecord, PartitionRef, RowToPark


def register() -> None:
    """Let the relay park rows here."""
    register_park(park_row)
    rows_parked.connect(_announce, dispatch_uid="dlq.relay_parking")


def park_row(cursor: Any, row: RowToPark) -> None:
    """Write the dead letter of an outbox row in the relay's transaction; nothing when it is there already.

    The copy of a dead letter makes no other one: it is marked on its own.
    """
    if mark_failed(cursor, row):
        return
    record = ConsumerRecord(
        place=PartitionRef(row.topic, row.shard),
        offset=row.position,
        leader_epoch=None,
        timestamp_ms=None,  # it never became a record
        key=row.key,
        value=row.value,
        headers=row.headers,
    )
    park_unsent(cursor, record, _describe(row), slot=row.shard)


def find_parked_row(topic: str, shard: int, position: int) -> UUID | None:
    """The dead letter of an outbox row that the relay gave up; None = it was not parked, or is forgotten."""
    found = DeadLetter.objects.filter(
        group=RELAY_GROUP, topic=topic, partition=shard, offset=position, topic_id=OUTBOX_ID
    )
    return found.values_list("pk", flat=True).first()


def _describe(row: RowToPark) -> Failure:
    return Failure(
        failure_class=FailureClass.PERMANENT if row.permanent else FailureClass.TRANSIENT,
        error_class=row.code,
        message=row.error,
        stack="",
        fingerprint=fingerprint(
            handler="",
            error_class=row.code,
            message=row.topic,
            frame="relay",
            secret=settings.SIGNALBOX_KEY_LABEL_SECRET,
        ),
        attempts=max(1, row.attempts),
        published_at=datetime.fromtimestamp(row.published_ms / 1000, tz=UTC),
    )


def _announce(**_: object) -> None:
    dead_letters_changed.send_robust(sender=RowToPark)
