"""Which items of which replay may be worked now, and by whom; all by the database clock.

A consumer takes items for a while (`REPLAY_LEASE_S`) and renews; what its process leaves behind when it dies goes back
into the queue. Each step locks the job's row, so that consumers of one group take turns; items are only locked with
SKIP LOCKED after it, so nobody waits for a handler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction

from dlq.domain.replay_plan import Allowance, Limits, Progress, Step, allow, next_step
from dlq.replay.announcing import announce_replays
from dlq.replay.counting import read_counts
from dlq.types import ReplayMode, ReplayOutcome, ReplayPhase

log = structlog.get_logger(__name__)

_DUE = """
SELECT id, phase, rate_per_s, mark_tried, mark_failed,
    extract(epoch FROM clock_timestamp() - paid_until)::float,
    window_at, window_settled, extract(epoch FROM clock_timestamp() - window_at)::float
FROM dlq_replay WHERE state = 'running' AND mode = %(mode)s AND (%(mode)s = 'topic' OR group_name = %(group)s)
ORDER BY served_at LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_EXPIRED = """
UPDATE dlq_replay_item i SET outcome = 'queued', token = NULL, lease_until = NULL, taken_by = ''
FROM (
    SELECT job_id, number FROM dlq_replay_item
    WHERE job_id = %s AND outcome = 'running' AND lease_until < clock_timestamp()
    ORDER BY number LIMIT %s FOR UPDATE SKIP LOCKED
) late
WHERE i.job_id = late.job_id AND i.number = late.number
"""
_RUNNING = "SELECT count(*) FROM dlq_replay_item WHERE job_id = %s AND outcome = 'running'"
_TAKE = """
WITH next AS MATERIALIZED (
    SELECT job_id, number FROM dlq_replay_item
    WHERE job_id = %(job)s AND outcome = 'queued' AND NOT blocked
    ORDER BY follows DESC, number LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
UPDATE dlq_replay_item i SET outcome = 'running', token = %(token)s, taken_by = %(by)s,
    lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
FROM next WHERE i.job_id = next.job_id AND i.number = next.number
RETURNING i.number, i.dead_letter_id, i.lane
"""
_HAS_OPEN = """
SELECT EXISTS (SELECT FROM dlq_replay_item WHERE job_id = %(job)s AND outcome = 'running')
    OR EXISTS (SELECT FROM dlq_replay_item WHERE job_id = %(job)s AND outcome = 'queued')
"""
_NOTE = """
UPDATE dlq_replay SET served_at = clock_timestamp(), started_at = coalesce(started_at, clock_timestamp()),
    phase = %(phase)s, mark_tried = %(mark_tried)s, mark_failed = %(mark_failed)s,
    paid_until = CASE WHEN %(paid)s THEN clock_timestamp() - make_interval(secs => %(rest_s)s) ELSE paid_until END,
    measured_per_s = CASE WHEN %(measures)s THEN %(measured)s ELSE measured_per_s END,
    window_at = CASE WHEN %(measures)s THEN clock_timestamp() ELSE window_at END,
    window_settled = CASE WHEN %(measures)s THEN %(settled)s ELSE window_settled END
WHERE id = %(job)s
"""
_STOP = """
UPDATE dlq_replay SET state = 'paused', why = %s, version = version + 1, changed_by = 'signalbox',
    changed_at = clock_timestamp() WHERE id = %s
"""
_FINISH = """
UPDATE dlq_replay SET state = 'finished', ended_at = clock_timestamp(), version = version + 1,
    started_at = coalesce(started_at, clock_timestamp()) WHERE id = %s
"""
_RENEW = """
UPDATE dlq_replay_item SET lease_until = clock_timestamp() + make_interval(secs => %s)
WHERE job_id = ANY(%s) AND outcome = 'running' AND token = %s
"""
# Whoever cancels a job changes its row first: what is given back is skipped there, or here.
_BACK = """
, back AS (
    UPDATE dlq_replay_item i SET token = NULL, lease_until = NULL,
        outcome = CASE WHEN late.state = 'cancelled' THEN 'skipped' ELSE 'queued' END,
        why = CASE WHEN late.state = 'cancelled' THEN 'cancelled' ELSE '' END,
        taken_by = CASE WHEN late.state = 'cancelled' THEN i.taken_by ELSE '' END,
        settled_at = CASE WHEN late.state = 'cancelled' THEN clock_timestamp() END
    FROM late WHERE i.job_id = late.job_id AND i.number = late.number AND i.outcome = 'running'
    RETURNING i.job_id, i.outcome
)
INSERT INTO dlq_replay_count AS c (job_id, what, slot, n)
SELECT job_id, 'skipped', 0, count(*) FROM back WHERE outcome = 'skipped' GROUP BY job_id
ON CONFLICT (job_id, what, slot) DO UPDATE SET n = c.n + excluded.n
"""
_GIVE_BACK = f"""
WITH jobs AS MATERIALIZED (
    SELECT id, state FROM dlq_replay WHERE id = ANY(%(jobs)s) ORDER BY id FOR SHARE
), late AS MATERIALIZED (
    SELECT i.job_id, i.number, jobs.state FROM unnest(%(jobs)s::uuid[], %(numbers)s::bigint[]) AS given (job, number)
    JOIN jobs ON jobs.id = given.job
    JOIN dlq_replay_item i ON i.job_id = given.job AND i.number = given.number
    WHERE i.token = %(token)s FOR UPDATE OF i
)
{_BACK}
"""  # noqa: S608 - a constant
# Of replays that no consumer steps any more, what a dead process left behind.
_LEFT = f"""
WITH late AS MATERIALIZED (
    SELECT i.job_id, i.number, r.state FROM dlq_replay_item i JOIN dlq_replay r ON r.id = i.job_id
    WHERE i.outcome = 'running' AND i.lease_until < clock_timestamp() AND r.state IN ('paused', 'cancelled')
    LIMIT %(most)s FOR UPDATE OF i SKIP LOCKED FOR SHARE OF r SKIP LOCKED
)
{_BACK}
"""  # noqa: S608 - a constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """An item that is ours until the lease ends; `token` proves it."""

    job_id: UUID
    number: int
    letter_id: UUID
    lane: int | None
    mode: ReplayMode
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """A job's row, locked."""

    id: UUID
    phase: ReplayPhase
    rate_per_s: float | None
    mark_tried: int
    mark_failed: int
    unused_s: float
    is_measured: bool
    window_settled: int
    window_s: float


def take_items(group: str, mode: ReplayMode, *, token: UUID, by: str, most: int) -> list[Taken] | None:
    """Take items of the job that was served longest ago, or stop or finish it; one transaction.

    None = no job is due; an empty list = there is one, and nothing of it may start now.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        due = _find_due(cursor, group, mode)
        return None if due is None else _step(cursor, due, mode, token=token, by=by, most=most)


def renew_leases(token: UUID, job_ids: Sequence[UUID]) -> None:
    """Keep what was taken under this token for `REPLAY_LEASE_S` more."""
    with connection.cursor() as cursor:
        cursor.execute(_RENEW, [settings.REPLAY_LEASE_S, list(job_ids), token])


def give_back(items: Sequence[Taken], token: UUID) -> None:
    """Put items that were not replayed back into their queues; those of a cancelled replay are skipped."""
    with connection.cursor() as cursor:
        cursor.execute(
            _GIVE_BACK, {"jobs": [i.job_id for i in items], "numbers": [i.number for i in items], "token": token}
        )


def settle_left() -> None:
    """Give back or skip what dead processes left of paused and cancelled replays."""
    with connection.cursor() as cursor:
        cursor.execute(_LEFT, {"most": settings.REPLAY_SELECTION_MAX})


def _find_due(cursor: Any, group: str, mode: ReplayMode) -> _Due | None:
    cursor.execute(_DUE, {"mode": mode.value, "group": group})
    row = cursor.fetchone()
    if row is None:
        return None
    return _Due(
        id=row[0],
        phase=ReplayPhase(row[1]),
        rate_per_s=row[2],
        mark_tried=row[3],
        mark_failed=row[4],
        unused_s=row[5],
        is_measured=row[6] is not None,
        window_settled=row[7],
        window_s=row[8] or 0.0,
    )


def _step(cursor: Any, due: _Due, mode: ReplayMode, *, token: UUID, by: str, most: int) -> list[Taken]:
    cursor.execute(_EXPIRED, [due.id, settings.REPLAY_SELECTION_MAX])
    cursor.execute(_RUNNING, [due.id])
    running = cursor.fetchone()[0]
    counts = read_counts(cursor, due.id)
    step = next_step(_progress(due, counts, running), _limits())
    if step.stop and not _is_over(cursor, due):  # else there is nothing left to stop
        return _stop(cursor, due, step)
    wanted = most if step.most is None else min(most, step.most)
    allowed = allow(due.rate_per_s, due.unused_s, wanted)
    taken = _take(cursor, due, mode, token=token, by=by, most=allowed.items) if allowed.items else []
    if not taken and running == 0 and _is_over(cursor, due):
        return _finish(cursor, due)
    _note(cursor, due, step, counts, allow(due.rate_per_s, due.unused_s, len(taken)))
    return taken


def _progress(due: _Due, counts: Mapping[str, int], running: int) -> Progress:
    outcomes = (ReplayOutcome.APPLIED, ReplayOutcome.DEDUPLICATED, ReplayOutcome.SENT, ReplayOutcome.FAILED)
    return Progress(
        phase=due.phase,
        tried=sum(counts.get(outcome.value, 0) for outcome in outcomes),
        failed=counts.get(ReplayOutcome.FAILED.value, 0),
        running=running,
        mark_tried=due.mark_tried,
        mark_failed=due.mark_failed,
    )


def _limits() -> Limits:
    return Limits(
        ramp=settings.REPLAY_RAMP_ITEMS, window=settings.REPLAY_WINDOW_ITEMS, stop_ratio=settings.REPLAY_STOP_RATIO
    )


def _take(cursor: Any, due: _Due, mode: ReplayMode, *, token: UUID, by: str, most: int) -> list[Taken]:
    cursor.execute(
        _TAKE,
        {"job": due.id, "most": most, "token": token, "by": by[:120], "lease_s": settings.REPLAY_LEASE_S},
    )
    taken = [
        Taken(job_id=due.id, number=number, letter_id=letter_id, lane=lane, mode=mode, token=token)
        for number, letter_id, lane in cursor.fetchall()
    ]
    return sorted(taken, key=lambda item: item.number)


def _is_over(cursor: Any, due: _Due) -> bool:
    cursor.execute(_HAS_OPEN, {"job": due.id})
    return not cursor.fetchone()[0]


def _stop(cursor: Any, due: _Due, step: Step) -> list[Taken]:
    log.warning("replay.stopped_by_itself", job=str(due.id), why=step.stop)
    cursor.execute(_STOP, [step.stop, due.id])
    announce_replays()
    return []


def _finish(cursor: Any, due: _Due) -> list[Taken]:
    log.info("replay.finished", job=str(due.id))
    cursor.execute(_FINISH, [due.id])
    announce_replays()
    return []


def _note(cursor: Any, due: _Due, step: Step, counts: Mapping[str, int], used: Allowance) -> None:
    settled = sum(n for what, n in counts.items() if what in set(ReplayOutcome))
    measures = not due.is_measured or due.window_s >= settings.REPLAY_SPEED_WINDOW_S
    cursor.execute(
        _NOTE,
        {
            "job": due.id,
            "phase": step.progress.phase.value,
            "mark_tried": step.progress.mark_tried,
            "mark_failed": step.progress.mark_failed,
            "paid": due.rate_per_s is not None and used.items > 0,
            "rest_s": used.rest_s,
            "measures": measures,
            "measured": (settled - due.window_settled) / due.window_s if measures and due.window_s else None,
            "settled": settled,
        },
    )
