"""Replay one item: what happens around its attempt, in the attempt's own transaction and under the key's lock.

    begin: still ours, still to be replayed? -> the handler, by `Attempts.replay` -> settle: the outcome

The dead letter leaves the state parked in the transaction of its effect; a failure leaves it parked, with one attempt
more and its new cause. What follows of its key is queued in the same transaction, so a crash loses no place in order.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from dlq.attempts import Applied, Duplicate, Failed, Ignored, ReplayOutcome
from dlq.domain.failure import Failure
from dlq.domain.replay_plan import JOINED_FROM
from dlq.replay.counting import FAILED_SAME, FOLLOWED, SLOTS, add_counts
from dlq.replay.leasing import Taken, give_back
from dlq.types import DeadLetterState, ReplayState, SkipReason
from dlq.types import ReplayOutcome as Outcome

_LOOK = """
SELECT j.state, d.state, d.lane, d.queue_number IS NOT NULL AND k.lane IS NOT NULL, k.head_id = d.id, d.group_name,
    d.topic, d.error_class, d.fingerprint,
    EXISTS (SELECT FROM dlq_replay_item b WHERE b.job_id = i.job_id AND b.lane = i.lane AND b.outcome = 'queued'
        AND b.blocked)
FROM dlq_replay_item i JOIN dlq_replay j ON j.id = i.job_id JOIN dlq_dead_letter d ON d.id = i.dead_letter_id
LEFT JOIN dlq_key k ON k.lane = d.lane
WHERE i.job_id = %s AND i.number = %s AND i.outcome = 'running' AND i.token = %s
"""
_SETTLE = """
UPDATE dlq_replay_item SET outcome = %(outcome)s, why = %(why)s, error_class = %(error_class)s,
    same_error = %(same_error)s, settled_at = clock_timestamp(), token = NULL, lease_until = NULL
WHERE job_id = %(job)s AND number = %(number)s AND outcome = 'running' AND token = %(token)s
"""
# One statement, since each item pays for it: the item, its dead letter, and both counts.
_CLOSE = """
WITH item AS (
    UPDATE dlq_replay_item SET outcome = %(outcome)s, settled_at = clock_timestamp(), token = NULL, lease_until = NULL
    WHERE job_id = %(job)s AND number = %(number)s AND outcome = 'running' AND token = %(token)s RETURNING 1
), letter AS (
    UPDATE dlq_dead_letter SET state = %(state)s, settled_at = clock_timestamp()
    WHERE id = %(letter)s AND state = 'parked' AND EXISTS (SELECT FROM item) RETURNING 1
), counted AS (
    INSERT INTO dlq_replay_count AS c (job_id, what, slot, n)
    SELECT %(job)s, what, %(slot)s, n FROM unnest(%(what)s::text[], %(n)s::bigint[]) AS new (what, n) ORDER BY what
    ON CONFLICT (job_id, what, slot) DO UPDATE SET n = c.n + excluded.n
), total AS (
    INSERT INTO dlq_counter AS c (topic, group_name, slot, open, parked, duplicates, behind)
    VALUES (%(topic)s, %(group)s, %(slot)s, -1, 0, %(duplicates)s, %(behind)s)
    ON CONFLICT (topic, group_name, slot) DO UPDATE SET open = c.open - 1,
        duplicates = c.duplicates + excluded.duplicates, behind = c.behind + excluded.behind
)
SELECT count(*) FROM letter
"""
_FAIL = """
UPDATE dlq_dead_letter SET attempts = attempts + 1, replays = replays + 1,
    needs_human = needs_human OR replays + 1 >= %(guard)s, last_failed_at = clock_timestamp(),
    failure_class = %(failure_class)s, error_class = %(error_class)s, error_message = %(message)s, stack = %(stack)s,
    fingerprint = %(fingerprint)s
WHERE id = %(id)s AND state = 'parked'
"""
_NEXT = """
SELECT id, needs_human FROM dlq_dead_letter
WHERE lane = %s AND state = 'parked' AND queue_number IS NOT NULL AND id <> %s
ORDER BY queue_number LIMIT 1
"""
_FREE_LAST = "DELETE FROM dlq_key WHERE lane = %s AND head_id = %s AND letters = 1"
_LOCK_QUEUE = "SELECT FROM dlq_key WHERE lane = %s FOR UPDATE"
_FREE = "DELETE FROM dlq_key WHERE lane = %s"
_MOVE_ON = "UPDATE dlq_key SET head_id = %s, letters = letters - 1, head_at = clock_timestamp() WHERE lane = %s"
# Whoever cancels the job changes this row: what joins is there before, and is skipped, or sees it, and does not join.
_IS_OPEN = "SELECT state IN ('running', 'paused') FROM dlq_replay WHERE id = %s FOR SHARE"
_UNBLOCK = """
UPDATE dlq_replay_item SET blocked = false, follows = true
WHERE job_id = %(job)s AND outcome = 'queued' AND number = (
    SELECT number FROM dlq_replay_item
    WHERE job_id = %(job)s AND lane = %(lane)s AND outcome = 'queued' AND blocked
        AND (%(letter)s::uuid IS NULL OR dead_letter_id = %(letter)s)
    ORDER BY number LIMIT 1)
"""
_JOIN = """
INSERT INTO dlq_replay_item (
    job_id, number, dead_letter_id, lane, outcome, blocked, follows, why, error_class, taken_by)
SELECT %(job)s, %(base)s + queue_number, id, lane, 'queued', false, true, '', '', ''
FROM dlq_dead_letter WHERE id = %(letter)s
ON CONFLICT DO NOTHING
"""
_SKIP_REST = """
UPDATE dlq_replay_item SET outcome = 'skipped', why = %s, settled_at = clock_timestamp()
WHERE job_id = %s AND lane = %s AND outcome = 'queued' AND blocked
"""


_GONE = """
UPDATE dlq_replay_item SET outcome = 'skipped', why = 'changed', settled_at = clock_timestamp(), token = NULL,
    lease_until = NULL
WHERE job_id = %s AND number = %s AND outcome = 'running' AND token = %s
"""


def skip_gone(item: Taken, slot: int) -> None:
    """End an item whose dead letter was deleted."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_GONE, [item.job_id, item.number, item.token])
        if cursor.rowcount:
            add_counts(cursor, item.job_id, slot, {Outcome.SKIPPED.value: 1})


class LeaseLost(Exception):
    """Somebody else has the item by now: the effect is rolled back."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What stood in the database when the item began."""

    lane: int | None
    is_queued: bool
    group: str
    topic: str
    error_class: str
    fingerprint: str
    has_blocked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """What moving on in a key's queue changed: how many fewer are behind, how many joined the job or were skipped."""

    behind: int = 0
    joined: int = 0
    skipped: int = 0


class ItemStep:
    """The `ReplayStep` of one item (`dlq.attempts`); used once or, after a broken transaction, twice."""

    def __init__(self, item: Taken, slot: int) -> None:
        self._item = item
        self._slot = slot
        self._seen: _Seen | None = None

    def begin(self, cursor: Any) -> bool:
        """Tell whether the item is to be replayed; else it was given back or skipped here."""
        cursor.execute(_LOOK, [self._item.job_id, self._item.number, self._item.token])
        row = cursor.fetchone()
        if row is None:
            return False
        job_state, state, lane, is_queued, is_head, group, topic, error_class, fingerprint, has_blocked = row
        self._seen = _Seen(lane, is_queued, group, topic, error_class, fingerprint, has_blocked)
        if job_state != ReplayState.RUNNING:
            give_back([self._item], self._item.token)
            return False
        if state != DeadLetterState.PARKED:
            self._skip(cursor, SkipReason.CHANGED)
            return False
        if is_queued and not is_head:
            self._skip(cursor, SkipReason.BEHIND)
            return False
        return True

    def settle(self, cursor: Any, outcome: ReplayOutcome) -> None:
        """Write the outcome; it commits with the effect, or not at all.

        Raises:
            LeaseLost: the item is not ours any more.
        """
        match outcome:
            case Applied():
                self._close(cursor, DeadLetterState.APPLIED, Outcome.APPLIED)
            case Duplicate():
                self._close(cursor, DeadLetterState.APPLIED, Outcome.DEDUPLICATED)
            case Failed(failure=failure):
                self._fail(cursor, failure)
            case Ignored():
                self._skip(cursor, SkipReason.NO_HANDLER)

    def send(self, cursor: Any) -> None:
        """Write that the record was given to the outbox."""
        self._close(cursor, DeadLetterState.SENT, Outcome.SENT)

    # -- Outcomes ------------------------------------------------------------------------------------------
    def _close(self, cursor: Any, state: DeadLetterState, outcome: Outcome) -> None:
        seen = self._known()
        moved = self._move_on(cursor) if seen.is_queued else _Moved()
        if seen.has_blocked and not seen.is_queued:
            self._unblock(cursor, None)
        counts = {outcome.value: 1, FOLLOWED: moved.joined, Outcome.SKIPPED.value: moved.skipped}
        counts = {what: n for what, n in counts.items() if n}
        cursor.execute(
            _CLOSE,
            {
                "job": self._item.job_id,
                "number": self._item.number,
                "token": self._item.token,
                "letter": self._item.letter_id,
                "outcome": outcome.value,
                "state": state.value,
                "what": list(counts),
                "n": list(counts.values()),
                "slot": self._slot % SLOTS,
                "topic": seen.topic,
                "group": seen.group,
                "duplicates": int(outcome is Outcome.DEDUPLICATED),
                "behind": -moved.behind,
            },
        )
        if cursor.fetchone()[0] != 1:
            raise LeaseLost("the item, or its dead letter, is not ours to end any more")

    def _fail(self, cursor: Any, failure: Failure) -> None:
        seen = self._known()
        is_same = (failure.error_class, failure.fingerprint) == (seen.error_class, seen.fingerprint)
        self._end_item(cursor, Outcome.FAILED, error_class=failure.error_class, same_error=is_same)
        cursor.execute(
            _FAIL,
            {
                "id": self._item.letter_id,
                "guard": settings.REPLAY_LOOP_GUARD,
                "failure_class": failure.failure_class.value,
                "error_class": failure.error_class[:200],
                "message": failure.message[:500],
                "stack": failure.stack,
                "fingerprint": failure.fingerprint,
            },
        )
        if not cursor.rowcount:
            raise LeaseLost("the dead letter is not parked any more")
        skipped = self._skip_rest(cursor, SkipReason.HEAD_FAILED)
        counts = {Outcome.FAILED.value: 1, FAILED_SAME: int(is_same), Outcome.SKIPPED.value: skipped}
        add_counts(cursor, self._item.job_id, self._slot, {what: n for what, n in counts.items() if n})

    def _skip(self, cursor: Any, why: SkipReason) -> None:
        """End the item without a replay. Behind a head that has gone the next one of the key may still run."""
        seen = self._known()
        self._end_item(cursor, Outcome.SKIPPED, why=why.value)
        goes_on = why is SkipReason.CHANGED and seen.has_blocked and self._unblock(cursor, None)
        skipped = 1 if goes_on else 1 + self._skip_rest(cursor, SkipReason.BEHIND)
        add_counts(cursor, self._item.job_id, self._slot, {Outcome.SKIPPED.value: skipped})

    def _end_item(
        self,
        cursor: Any,
        outcome: Outcome,
        *,
        why: str = "",
        error_class: str = "",
        same_error: bool | None = None,
    ) -> None:
        values = {
            "job": self._item.job_id,
            "number": self._item.number,
            "token": self._item.token,
            "outcome": outcome.value,
            "why": why,
            "error_class": error_class[:200],
            "same_error": same_error,
        }
        cursor.execute(_SETTLE, values)
        if not cursor.rowcount:
            raise LeaseLost("the item was given to another consumer")

    # -- What follows of the key -----------------------------------------------------------------------------
    def _move_on(self, cursor: Any) -> _Moved:
        """Make the next of the queue the head and let it follow, or free the key."""
        seen = self._known()
        if not seen.has_blocked:
            cursor.execute(_FREE_LAST, [seen.lane, self._item.letter_id])
            if cursor.rowcount:
                return _Moved()
        cursor.execute(_LOCK_QUEUE, [seen.lane])  # who discards locks it too (`dlq.quarantine.lock_letters`)
        cursor.execute(_NEXT, [seen.lane, self._item.letter_id])
        row = cursor.fetchone()
        if row is None:
            cursor.execute(_FREE, [seen.lane])
            if seen.has_blocked:
                self._unblock(cursor, None)
            return _Moved()
        letter_id, needs_human = row
        cursor.execute(_MOVE_ON, [letter_id, seen.lane])
        cursor.execute(_IS_OPEN, [self._item.job_id])
        if not cursor.fetchone()[0] or (not needs_human and self._unblock(cursor, letter_id)):
            return _Moved(behind=1)
        if not needs_human and self._join(cursor, letter_id):
            return _Moved(behind=1, joined=1)
        return _Moved(behind=1, skipped=self._skip_rest(cursor, SkipReason.BEHIND))

    def _join(self, cursor: Any, letter_id: UUID) -> bool:
        cursor.execute(_JOIN, {"job": self._item.job_id, "base": JOINED_FROM, "letter": letter_id})
        return bool(cursor.rowcount)

    def _unblock(self, cursor: Any, letter_id: UUID | None) -> bool:
        cursor.execute(_UNBLOCK, {"job": self._item.job_id, "lane": self._known().lane, "letter": letter_id})
        return bool(cursor.rowcount)

    def _skip_rest(self, cursor: Any, why: SkipReason) -> int:
        """Skip what waits for this item in its job, since the order of its key would not hold; how many."""
        seen = self._known()
        if not seen.has_blocked:
            return 0
        cursor.execute(_SKIP_REST, [why.value, self._item.job_id, seen.lane])
        return int(cursor.rowcount)

    def _known(self) -> _Seen:
        if self._seen is None:
            raise LeaseLost("the item was not begun")
        return self._seen
