"""Discard and restore dead letters: a person ends them with a reason, and can take that back until a shown date.

    locks of their keys -> the rows that are still parked and in no open replay -> counters, queues of their keys

all in one transaction, so that no replay and no release meets half of it. The bytes stay; only the state changes.

Errors: DiscardError <- BadDiscard | NothingToDiscard | NotRestorable.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from uuid_utils.compat import uuid7

from dlq import services
from dlq.quarantine import lock_letters, settle_queues
from dlq.signals import dead_letters_changed
from dlq.types import Selection

_OF_PREVIEW = """
SELECT s.expires_at < clock_timestamp(), s.job_id FROM dlq_selection s WHERE s.id = %s FOR UPDATE
"""
_ITEMS = "SELECT dead_letter_id FROM dlq_selection_item WHERE selection_id = %s ORDER BY number LIMIT %s"
_OPEN_IN_REPLAY = """
SELECT dead_letter_id FROM dlq_replay_item WHERE dead_letter_id = ANY(%s) AND outcome IN ('queued', 'running')
"""
# Rows in the order of their ids: two that discard the same ones at once wait, and never for each other.
_DISCARD = """
WITH wanted AS (
    SELECT id FROM dlq_dead_letter WHERE id = ANY(%s) AND state = 'parked' ORDER BY id FOR UPDATE)
UPDATE dlq_dead_letter d SET state = 'discarded', settled_at = clock_timestamp()
FROM wanted WHERE d.id = wanted.id RETURNING d.id, d.topic, d.group_name
"""
_KEEP = """
INSERT INTO dlq_discard (id, actor, second, reason, letters, restorable_until)
VALUES (%s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s)) RETURNING restorable_until
"""
_KEEP_ITEMS = "INSERT INTO dlq_discard_item (discard_id, dead_letter_id) SELECT %s, unnest(%s::uuid[])"
_RESTORABLE = """
SELECT i.dead_letter_id FROM dlq_discard_item i JOIN dlq_discard d ON d.id = i.discard_id
WHERE i.dead_letter_id = ANY(%s) AND i.restored_at IS NULL AND d.restorable_until > clock_timestamp()
"""
_RESTORE = """
WITH wanted AS (
    SELECT id FROM dlq_dead_letter WHERE id = ANY(%s) AND state = 'discarded' ORDER BY id FOR UPDATE)
UPDATE dlq_dead_letter d SET state = 'parked', settled_at = NULL
FROM wanted WHERE d.id = wanted.id RETURNING d.id, d.topic, d.group_name
"""
_NOTE_RESTORED = """
UPDATE dlq_discard_item SET restored_at = clock_timestamp(), restored_by = %s, restore_reason = %s
WHERE dead_letter_id = ANY(%s) AND restored_at IS NULL
"""
_OF_LETTER = """
SELECT d.id, d.actor, d.second, d.reason, d.letters, d.discarded_at, d.restorable_until, i.restored_at, i.restored_by,
  i.restore_reason, d.restorable_until > clock_timestamp() AND i.restored_at IS NULL
FROM dlq_discard_item i JOIN dlq_discard d ON d.id = i.discard_id
WHERE i.dead_letter_id = %s ORDER BY d.discarded_at LIMIT %s
"""
_OF_DISCARD = """
SELECT dead_letter_id FROM dlq_discard_item WHERE discard_id = %s AND restored_at IS NULL ORDER BY 1 LIMIT %s
"""
HISTORY_MAX = 50


class DiscardError(Exception):
    """It cannot be; nothing was changed."""


class BadDiscard(DiscardError):
    """The selection cannot be discarded: there is none, it is too large, or it has expired."""


class NothingToDiscard(DiscardError):
    """None of them is parked any more, or all that are run in a replay."""


class NotRestorable(DiscardError):
    """None of them is discarded any more, or the date until which they could be restored is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """What a discard did: `skipped` were not parked any more, `in_replay` are in a replay that has not ended."""

    id: UUID
    discarded: int
    skipped: int
    in_replay: int
    restorable_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardView:
    """One discard in the history of a dead letter; `letters` were discarded together."""

    id: UUID
    actor: str
    second: str
    reason: str
    letters: int
    discarded_at: datetime
    restorable_until: datetime
    restored_at: datetime | None
    restored_by: str
    restore_reason: str
    is_restorable: bool


def discard_dead_letters(selection: Selection | UUID, *, reason: str, actor: str, second: str = "") -> Discarded:
    """End dead letters: explicit ones, or the frozen selection of a preview (its id). One transaction.

    What is in an open replay, or not parked any more, is left as it is and counted.

    Raises:
        BadDiscard: nothing or more than `DLQ_DISCARD_MAX` selected, a filter that was not frozen, an expired preview.
        NothingToDiscard.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        ids = _pick(cursor, selection)
        lock_letters(cursor, ids)
        in_replay = _in_replay(cursor, ids)
        cursor.execute(_DISCARD, [[one for one in ids if one not in in_replay]])
        rows = cursor.fetchall()
        if not rows:
            raise NothingToDiscard(_nothing(len(in_replay)))
        done = [letter for letter, _, _ in rows]
        discard_id = uuid7()
        days_s = settings.DLQ_DISCARD_RESTORABLE.total_seconds()
        cursor.execute(_KEEP, [discard_id, actor[:150], second[:150], reason[:500], len(done), days_s])
        until = cursor.fetchone()[0]
        cursor.execute(_KEEP_ITEMS, [discard_id, done])
        settle_queues(cursor, done)
        _count(rows, -1)
        transaction.on_commit(_announce)
    return Discarded(
        id=discard_id,
        discarded=len(done),
        skipped=len(ids) - len(done) - len(in_replay),
        in_replay=len(in_replay),
        restorable_until=until,
    )


def restore_dead_letter(dead_letter_id: UUID, *, reason: str, actor: str) -> None:
    """Park a discarded dead letter again; in a quarantined key it takes its old place.

    Raises:
        NotRestorable.
    """
    restore_dead_letters([dead_letter_id], reason=reason, actor=actor)


def restore_discard(discard_id: UUID, *, reason: str, actor: str) -> int:
    """Park again what is still discarded of one act; how many.

    Raises:
        NotRestorable.
    """
    with connection.cursor() as cursor:
        cursor.execute(_OF_DISCARD, [discard_id, settings.DLQ_DISCARD_MAX])
        ids = [letter for (letter,) in cursor.fetchall()]
    return restore_dead_letters(ids, reason=reason, actor=actor)


def restore_dead_letters(ids: Sequence[UUID], *, reason: str, actor: str) -> int:
    """Park discarded dead letters again, at most `DLQ_DISCARD_MAX`; how many. One transaction.

    Raises:
        NotRestorable: none of them can be.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        wanted = list(dict.fromkeys(ids))[: settings.DLQ_DISCARD_MAX]
        lock_letters(cursor, wanted)
        cursor.execute(_RESTORABLE, [wanted])
        cursor.execute(_RESTORE, [[letter for (letter,) in cursor.fetchall()]])
        rows = cursor.fetchall()
        if not rows:
            raise NotRestorable("It is not discarded any more, or the date until which it could be restored is over.")
        done = [letter for letter, _, _ in rows]
        cursor.execute(_NOTE_RESTORED, [actor[:150], reason[:500], done])
        settle_queues(cursor, done)
        _count(rows, 1)
        transaction.on_commit(_announce)
    return len(done)


def list_discards(dead_letter_id: UUID) -> list[DiscardView]:
    """The discards of one dead letter, oldest first, at most `HISTORY_MAX`."""
    with connection.cursor() as cursor:
        cursor.execute(_OF_LETTER, [dead_letter_id, HISTORY_MAX])
        names = [column.name for column in cursor.description]
        names[-1] = "is_restorable"
        return [DiscardView(**dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def _pick(cursor: Any, selection: Selection | UUID) -> list[UUID]:
    most = settings.DLQ_DISCARD_MAX
    ids = _frozen(cursor, selection, most) if isinstance(selection, UUID) else list(dict.fromkeys(selection.ids))
    if not ids:
        raise BadDiscard("No dead letter is selected.")
    if len(ids) > most:
        raise BadDiscard(f"More than {most:,} are selected; narrow the filter and discard in parts.")
    return ids


def _frozen(cursor: Any, preview_id: UUID, most: int) -> list[UUID]:
    cursor.execute(_OF_PREVIEW, [preview_id])
    row = cursor.fetchone()
    if row is None:
        raise BadDiscard("This selection is not kept any more. Select again.")
    is_expired, job_id = row
    if is_expired or job_id is not None:
        raise BadDiscard("This selection was used by a replay, or has expired. Select again.")
    cursor.execute(_ITEMS, [preview_id, most + 1])
    return [letter for (letter,) in cursor.fetchall()]


def _in_replay(cursor: Any, ids: Sequence[UUID]) -> set[UUID]:
    cursor.execute(_OPEN_IN_REPLAY, [list(ids)])
    return {letter for (letter,) in cursor.fetchall()}


def _nothing(in_replay: int) -> str:
    if in_replay:
        return "What is selected is in a replay that has not ended. Wait for it, or cancel it first."
    return "Nothing of it is parked any more: it was replayed or discarded since you looked."


def _count(rows: Sequence[tuple[UUID, str, str]], sign: int) -> None:
    for (group, topic), n in sorted(Counter((group, topic) for _, topic, group in rows).items()):
        services.count(group, topic, 0, opened=sign * n)


def _announce() -> None:
    dead_letters_changed.send_robust(sender=Discarded)
