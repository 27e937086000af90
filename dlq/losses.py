"""Records that were deleted before a group read them: what is lost, and where a person lets the group go on.

Open until the group's offset was taken by Kafka at the place that was chosen. One open row a partition of a group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from dlq.domain.start import Lost
from dlq.types import LossChoice
from relay.signals import lag_changed
from relay.types import PartitionRef

_REPORT = """
INSERT INTO dlq_data_loss
    (group_name, topic, partition, topic_id, first_lost, first_kept, counted, found_at, last_read_at, choice,
     chosen_by, reason)
VALUES (%(group)s, %(topic)s, %(partition)s, %(topic_id)s, %(first)s, %(upto)s, %(counted)s, clock_timestamp(),
    (SELECT updated_at FROM dlq_position
     WHERE group_name = %(group)s AND topic = %(topic)s AND partition = %(partition)s), '', '', '')
ON CONFLICT (group_name, topic, partition) WHERE settled_at IS NULL DO UPDATE
SET topic_id = excluded.topic_id, first_lost = excluded.first_lost, first_kept = excluded.first_kept,
    counted = excluded.counted
RETURNING id
"""
_COLUMNS = """id, group_name, topic, partition, first_lost, first_kept, counted, found_at, last_read_at, choice,
 chosen_by, chosen_at, reason, settled_at, resumed_at"""
_CHOICES = """
SELECT topic, partition, choice FROM dlq_data_loss
WHERE group_name = %s AND settled_at IS NULL AND choice IN ('first', 'end')
"""
_CHOOSE = """
UPDATE dlq_data_loss SET choice = %s, chosen_by = %s, chosen_at = clock_timestamp(), reason = %s
WHERE id = %s AND settled_at IS NULL AND choice = %s
"""
_SETTLE = """
UPDATE dlq_data_loss SET settled_at = clock_timestamp(), resumed_at = %s
WHERE group_name = %s AND topic = %s AND partition = %s AND settled_at IS NULL AND first_kept <= %s
"""


class StaleLoss(Exception):
    """The loss is settled, or somebody has chosen meanwhile; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoss:
    """What one partition of a group lost. Offsets from `first_lost` to before `first_kept` are gone.

    `counted` is False when the log is shorter than what was read (cut, or made anew): then nothing can be counted.
    `last_read_at`: when the group's offset was last taken. `resumed_at`: the offset where it went on.
    """

    id: int
    group: str
    place: PartitionRef
    first_lost: int
    first_kept: int
    counted: bool
    found_at: datetime
    last_read_at: datetime | None
    choice: LossChoice
    chosen_by: str
    chosen_at: datetime | None
    reason: str
    settled_at: datetime | None
    resumed_at: int | None

    @property
    def lost(self) -> int | None:
        """How many offsets are gone."""
        return self.first_kept - self.first_lost if self.counted else None


def report_loss(group: str, place: PartitionRef, topic_id: str | None, lost: Lost) -> int:
    """Note a loss, or that an open one is larger by now; returns its id. A choice that was made stays."""
    asked: dict[str, Any] = {
        "group": group,
        "topic": place.topic,
        "partition": place.partition,
        "topic_id": topic_id,
        "first": lost.first,
        "upto": lost.upto,
        "counted": lost.count is not None,
    }
    with connection.cursor() as cursor:
        cursor.execute(_REPORT, asked)
        return int(cursor.fetchone()[0])


def wanted_starts(group: str) -> Mapping[PartitionRef, LossChoice]:
    """Where people let partitions of the group go on, of losses that are not settled."""
    with connection.cursor() as cursor:
        cursor.execute(_CHOICES, [group])
        return {PartitionRef(topic, partition): LossChoice(choice) for topic, partition, choice in cursor.fetchall()}


def settle_loss(group: str, place: PartitionRef, resumed_at: int) -> bool:
    """Note that Kafka took the group's offset again; False when no loss was open."""
    with connection.cursor() as cursor:
        cursor.execute(_SETTLE, [resumed_at, group, place.topic, place.partition, resumed_at])
        return bool(cursor.rowcount)


def choose_after_loss(loss_id: int, choice: LossChoice, *, seen: LossChoice, actor: str, reason: str) -> None:
    """Say where the group goes on; its consumers obey within seconds, or when one starts.

    `seen` is the choice that the person's page showed.

    Raises:
        StaleLoss: it is settled, or the choice is another one by now.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CHOOSE, [choice.value, actor[:150], reason, loss_id, seen.value])
        if not cursor.rowcount:
            raise StaleLoss("The group goes on already, or somebody has chosen meanwhile.")
    transaction.on_commit(lambda: lag_changed.send(sender=DataLoss), robust=True)


def get_loss(loss_id: int) -> DataLoss | None:
    """One loss, open or settled."""
    found = _read("WHERE id = %s", [loss_id])
    return found[0] if found else None


def list_open_losses(group: str = "") -> list[DataLoss]:
    """Losses that are not settled, oldest first; of one group when named."""
    return _read("WHERE settled_at IS NULL AND (%s = '' OR group_name = %s) ORDER BY id LIMIT 1000", [group, group])


def _read(where: str, params: Sequence[Any]) -> list[DataLoss]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_COLUMNS} FROM dlq_data_loss {where}", params)  # noqa: S608 - fixed texts, no input
        rows = cursor.fetchall()
    return [
        DataLoss(
            id=row[0],
            group=row[1],
            place=PartitionRef(row[2], row[3]),
            first_lost=row[4],
            first_kept=row[5],
            counted=row[6],
            found_at=row[7],
            last_read_at=row[8],
            choice=LossChoice(row[9]),
            chosen_by=row[10],
            chosen_at=row[11],
            reason=row[12],
            settled_at=row[13],
            resumed_at=row[14],
        )
        for row in rows
    ]
