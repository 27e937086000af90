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
# Retention went on while the person chose: more is lost than they saw, so they are asked again.
_WITHDRAW = """
UPDATE dlq_data_loss SET choice = '', chosen_offset = NULL, first_kept = %s
WHERE group_name = %s AND topic = %s AND partition = %s AND settled_at IS NULL AND choice = 'offset'
"""
_COLUMNS = """id, group_name, topic, partition, first_lost, first_kept, counted, found_at, last_read_at, choice,
 chosen_offset, chosen_by, chosen_at, reason, settled_at, resumed_at"""
_CHOICES = """
SELECT topic, partition, choice, chosen_offset FROM dlq_data_loss
WHERE group_name = %s AND settled_at IS NULL AND choice IN ('first', 'end', 'offset')
"""
_CHOOSE = """
UPDATE dlq_data_loss
SET choice = %s, chosen_offset = %s, chosen_by = %s, chosen_at = clock_timestamp(), reason = %s
WHERE id = %s AND settled_at IS NULL AND choice = %s
"""
_SETTLE = """
UPDATE dlq_data_loss SET settled_at = clock_timestamp(), resumed_at = %s
WHERE group_name = %s AND topic = %s AND partition = %s AND settled_at IS NULL AND first_kept <= %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedStart:
    """Where a person lets a partition go on; `offset` is set with `LossChoice.OFFSET` only."""

    choice: LossChoice
    offset: int | None


class BadLossChoice(ValueError):
    """The offset cannot be: it is missing, or the log does not keep it."""


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
    chosen_offset: int | None
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


def wanted_starts(group: str) -> Mapping[PartitionRef, WantedStart]:
    """Where people let partitions of the group go on, of losses that are not settled."""
    with connection.cursor() as cursor:
        cursor.execute(_CHOICES, [group])
        return {
            PartitionRef(topic, partition): WantedStart(choice=LossChoice(choice), offset=offset)
            for topic, partition, choice, offset in cursor.fetchall()
        }


def withdraw_choice(group: str, place: PartitionRef, first_kept: int) -> None:
    """Take back the choice of an offset that was deleted meanwhile: the loss is larger, and a person chooses again."""
    with connection.cursor() as cursor:
        cursor.execute(_WITHDRAW, [first_kept, group, place.topic, place.partition])


def settle_loss(group: str, place: PartitionRef, resumed_at: int) -> bool:
    """Note that Kafka took the group's offset again; False when no loss was open."""
    with connection.cursor() as cursor:
        cursor.execute(_SETTLE, [resumed_at, group, place.topic, place.partition, resumed_at])
        return bool(cursor.rowcount)


def choose_after_loss(
    loss_id: int, choice: LossChoice, *, seen: LossChoice, actor: str, reason: str, offset: int | None = None
) -> None:
    """Say where the group goes on; its consumers obey within seconds, or when one starts.

    `seen` is the choice that the person's page showed; `offset` belongs to `LossChoice.OFFSET`. One that retention
    deletes before the group is there is asked for again.

    Raises:
        BadLossChoice: the offset is missing, negative, or said with another choice.
        StaleLoss: it is settled, or the choice is another one by now.
    """
    if (offset is not None) != (choice is LossChoice.OFFSET) or (offset is not None and not 0 <= offset < 2**63):
        raise BadLossChoice("An offset, from 0 on, belongs to the choice of an offset, and to no other.")
    with connection.cursor() as cursor:
        cursor.execute(_CHOOSE, [choice.value, offset, actor[:150], reason, loss_id, seen.value])
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
            chosen_offset=row[10],
            chosen_by=row[11],
            chosen_at=row[12],
            reason=row[13],
            settled_at=row[14],
            resumed_at=row[15],
        )
        for row in rows
    ]
