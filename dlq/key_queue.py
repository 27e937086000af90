"""The queue of a quarantined key, statement by statement; `dlq.quarantine` has the rules.

The lock comes first: every transaction that applies, parks, appends, releases or edits a keyed record takes it, and
only a later statement reads `dlq_key` (a statement's snapshot must be younger than the lock). It is held until the
transaction ends. Taking it again in one transaction costs nothing but the statement.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_FIND = """
SELECT k.head_id, k.letters, d.fingerprint FROM dlq_key k JOIN dlq_dead_letter d ON d.id = k.head_id WHERE k.lane = %s
"""
_HOLD = """
INSERT INTO dlq_key AS k (id, lane, group_name, topic, key_label, head_id, letters)
VALUES (%(id)s, %(lane)s, %(group)s, %(topic)s, %(key_label)s, %(head)s, 1)
ON CONFLICT (lane) DO UPDATE SET letters = k.letters + 1
RETURNING letters
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The parked head of a quarantined key; `letters` counts it and those behind it."""

    lane: int
    letter_id: UUID
    letters: int
    fingerprint: str


def lock_lane(cursor: Any, lane: int) -> None:
    """Wait for the lock of the key that the number stands for; it ends with the transaction of `cursor`."""
    cursor.execute(_LOCK, [lane])


def find_head(cursor: Any, lane: int) -> Head | None:
    """The head that the key's records park behind; None = it is not quarantined. The caller holds the key's lock."""
    cursor.execute(_FIND, [lane])
    row = cursor.fetchone()
    return None if row is None else Head(lane=lane, letter_id=row[0], letters=row[1], fingerprint=row[2])


def hold_key(cursor: Any, letter: Mapping[str, Any]) -> bool:
    """Quarantine the key of a letter that was just parked, or queue the letter; True = it is the head now.

    The caller holds the key's lock.
    """
    cursor.execute(
        _HOLD,
        {
            "id": uuid7(),
            "lane": letter["lane"],
            "group": letter["group"],
            "topic": letter["topic"],
            "key_label": letter["key_label"],
            "head": letter["id"],
        },
    )
    return bool(cursor.fetchone()[0] == 1)
