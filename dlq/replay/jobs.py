"""What people do to replays: start one from a preview, pause, resume, cancel, change its rate, release a key.

Each act is one transaction; the caller may wrap it with its audit row. An act names the version it was made from, so
that a stale page changes nothing.
"""

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from uuid_utils.compat import uuid7

from dlq.replay.announcing import announce_replays
from dlq.replay.counting import add_counts, read_counts
from dlq.replay.errors import (
    AlreadyStarted,
    BadSelection,
    NeedsSecondPerson,
    NotStartable,
    ReplayError,
    StaleReplay,
    UnknownReplay,
)
from dlq.replay.leasing import settle_left
from dlq.replay.reading import get_preview, get_replay, require_replay
from dlq.replay.selecting import CHUNK, check_rate, chunks, freeze_selection
from dlq.types import RUNNABLE, ReplayJob, ReplayOutcome, ReplayPreview, ReplayState, Selection, SkipReason

ACTOR_CHARS = 150
REASON_CHARS = 500

_LOCK_PREVIEW = """
SELECT group_name, mode, filter::text, expires_at < clock_timestamp(), job_id, counts, followers
FROM dlq_selection WHERE id = %s FOR UPDATE
"""
_COUNT_OPEN = """
SELECT count(*) FROM (SELECT FROM dlq_replay WHERE state IN ('running', 'paused') LIMIT %s) open
"""
_START = """
INSERT INTO dlq_replay (id, group_name, mode, state, phase, why, filter, selection_id, actor, second, reason, version,
    changed_by, rate_per_s, total, mark_tried, mark_failed, paid_until, window_settled)
VALUES (%(id)s, %(group)s, %(mode)s, 'running', 'canary', '', %(filter)s::jsonb, %(preview)s, %(actor)s, %(second)s,
    %(reason)s, 1, %(actor)s, %(rate)s, 0, 0, 0, clock_timestamp() - interval '1 day', 0)
"""
_RUNNABLE = """
SELECT s.number, s.dead_letter_id, s.lane, coalesce(d.state = 'parked', false)
FROM dlq_selection_item s LEFT JOIN dlq_dead_letter d ON d.id = s.dead_letter_id
WHERE s.selection_id = %s AND s.verdict = ANY(%s) ORDER BY s.number
"""
# What is in another open replay by now is not queued.
_QUEUE = """
INSERT INTO dlq_replay_item (
    job_id, number, dead_letter_id, lane, outcome, blocked, follows, why, error_class, taken_by)
SELECT %s, new.number, new.id, new.lane, 'queued', false, false, '', '', ''
FROM unnest(%s::bigint[], %s::uuid[], %s::bigint[]) AS new (number, id, lane) ORDER BY new.id
ON CONFLICT (dead_letter_id) WHERE outcome = 'queued' OR outcome = 'running' DO NOTHING
RETURNING number
"""
_SKIP_CHANGED = """
INSERT INTO dlq_replay_item (
    job_id, number, dead_letter_id, lane, outcome, blocked, follows, why, error_class, taken_by, settled_at)
SELECT %s, new.number, new.id, new.lane, 'skipped', false, false, 'changed', '', '', clock_timestamp()
FROM unnest(%s::bigint[], %s::uuid[], %s::bigint[]) AS new (number, id, lane)
"""
_BLOCK = "UPDATE dlq_replay_item SET blocked = true WHERE job_id = %s AND number = ANY(%s)"
_SET_TOTAL = "UPDATE dlq_replay SET total = %s WHERE id = %s"
_USE = "UPDATE dlq_selection SET job_id = %s WHERE id = %s"
_PAUSE = """
UPDATE dlq_replay SET state = 'paused', why = %(why)s, version = version + 1, changed_by = %(actor)s,
    changed_at = clock_timestamp()
WHERE id = %(job)s AND version = %(version)s AND state = 'running'
"""
# It begins anew with one item: what stopped it may still be there.
_RESUME = """
UPDATE dlq_replay SET state = 'running', why = '', phase = 'canary', mark_tried = %(tried)s, mark_failed = %(failed)s,
    window_at = NULL, version = version + 1, changed_by = %(actor)s, changed_at = clock_timestamp()
WHERE id = %(job)s AND version = %(version)s AND state = 'paused'
"""
_CANCEL = """
UPDATE dlq_replay SET state = 'cancelled', why = %(why)s, ended_at = clock_timestamp(), version = version + 1,
    changed_by = %(actor)s, changed_at = clock_timestamp()
WHERE id = %(job)s AND version = %(version)s AND state IN ('running', 'paused')
"""
_SKIP_QUEUED = """
UPDATE dlq_replay_item SET outcome = 'skipped', why = %s, settled_at = clock_timestamp()
WHERE job_id = %s AND outcome = 'queued'
"""
_SET_RATE = """
UPDATE dlq_replay SET rate_per_s = %(rate)s, paid_until = clock_timestamp(), version = version + 1,
    changed_by = %(actor)s, changed_at = clock_timestamp()
WHERE id = %(job)s AND version = %(version)s AND state IN ('running', 'paused')
"""
_FAILED = """
SELECT i.dead_letter_id FROM dlq_replay_item i JOIN dlq_dead_letter d ON d.id = i.dead_letter_id AND d.state = 'parked'
WHERE i.job_id = %s AND i.outcome = 'failed' ORDER BY i.number LIMIT %s
"""
_HEAD = "SELECT head_id FROM dlq_key WHERE id = %s"


# -- Previews ----------------------------------------------------------------------------------------------
def preview_replay(selection: Selection, *, rate_per_s: float | None, actor: str) -> ReplayPreview:
    """Freeze a selection and say what a replay of it would do; nothing is replayed.

    Raises:
        BadSelection: nothing matches, too much does, or it is of several groups; or the rate cannot be.
        BadFilter: a filter's value cannot be.
    """
    return get_preview(freeze_selection(selection, rate_per_s=rate_per_s, actor=_require_actor(actor)))


def replay_failed(job_id: UUID, *, rate_per_s: float | None, actor: str) -> ReplayPreview:
    """Preview a replay of what failed in this one and is still parked.

    Raises:
        UnknownReplay: there is no such job. BadSelection: nothing of it failed, or the rate cannot be.
    """
    require_replay(job_id)
    with connection.cursor() as cursor:
        cursor.execute(_FAILED, [job_id, settings.REPLAY_SELECTION_MAX])
        ids = [letter_id for (letter_id,) in cursor.fetchall()]
    if not ids:
        raise BadSelection("Nothing that failed in this replay is still parked.")
    return preview_replay(Selection(ids=ids), rate_per_s=rate_per_s, actor=actor)


def preview_release(key_id: UUID, *, rate_per_s: float | None, actor: str) -> ReplayPreview:
    """Preview the release of a quarantined key: its head, and what follows it in order.

    Raises:
        UnknownReplay: the key is not quarantined any more.
    """
    with connection.cursor() as cursor:
        cursor.execute(_HEAD, [key_id])
        row = cursor.fetchone()
    if row is None:
        raise UnknownReplay("This key is not quarantined any more: it was released, or what was parked was discarded.")
    return preview_replay(Selection(ids=[row[0]]), rate_per_s=rate_per_s, actor=actor)


# -- Acts --------------------------------------------------------------------------------------------------
@transaction.atomic
def start_replay(
    preview_id: UUID, *, rate_per_s: float | None, reason: str, actor: str, second: str | None = None
) -> ReplayJob:
    """Start the replay of a preview, once; consumers of the group take it up.

    Above `DLQ_SECOND_PERSON_ABOVE` dead letters it needs a reason and a second person.

    Raises:
        UnknownReplay: there is no such preview. AlreadyStarted: it was started, as the job that the error names.
        NotStartable: it expired, nothing in it can be replayed, or too many replays are open.
        NeedsSecondPerson: so many need one, who is not the first. BadSelection: the rate cannot be.
    """
    check_rate(rate_per_s)
    actor, second, reason = _require_actor(actor), (second or "").strip()[:ACTOR_CHARS], reason.strip()[:REASON_CHARS]
    with connection.cursor() as cursor:
        group, mode, stored_filter = _open_preview(cursor, preview_id, actor=actor, second=second, reason=reason)
        job_id = uuid7()
        cursor.execute(
            _START,
            {
                "id": job_id,
                "preview": preview_id,
                "group": group,
                "mode": mode,
                "filter": stored_filter,
                "actor": actor,
                "second": second,
                "reason": reason,
                "rate": rate_per_s,
            },
        )
        total = _queue_items(cursor, job_id, preview_id)
        cursor.execute(_SET_TOTAL, [total, job_id])
        cursor.execute(_USE, [job_id, preview_id])
    announce_replays()
    return get_replay(job_id)


def release_key(
    key_id: UUID, *, rate_per_s: float | None = None, reason: str, actor: str, second: str | None = None
) -> ReplayJob:
    """Replay a quarantined key from its head to its tail, in order; what arrives meanwhile follows.

    Raises:
        UnknownReplay: the key is not quarantined any more. NotStartable, NeedsSecondPerson: as `start_replay`.
    """
    with transaction.atomic():
        preview = preview_release(key_id, rate_per_s=rate_per_s, actor=actor)
        if not preview.runnable:
            words = ", ".join(str(verdict) for verdict in preview.counts)
            raise NotStartable(f"The head of this key cannot be replayed ({words}). Open it to see why.")
        return start_replay(preview.id, rate_per_s=rate_per_s, reason=reason, actor=actor, second=second)


def pause_replay(job_id: UUID, *, expected_version: int, reason: str, actor: str) -> ReplayJob:
    """Let a replay take no more items; those in their handlers end as they end.

    Raises:
        UnknownReplay. StaleReplay: it changed since, or does not run.
    """
    return _act(_PAUSE, job_id, expected_version, actor, why=_words("paused", reason))


@transaction.atomic
def resume_replay(job_id: UUID, *, expected_version: int, actor: str) -> ReplayJob:
    """Let a paused replay go on, with one item first again.

    Raises:
        UnknownReplay. StaleReplay: it changed since, or is not paused.
    """
    with connection.cursor() as cursor:
        counts = read_counts(cursor, job_id)
    tried = sum(counts.get(o.value, 0) for o in (ReplayOutcome.APPLIED, ReplayOutcome.DEDUPLICATED, ReplayOutcome.SENT))
    failed = counts.get(ReplayOutcome.FAILED.value, 0)
    return _act(_RESUME, job_id, expected_version, actor, tried=tried + failed, failed=failed)


@transaction.atomic
def cancel_replay(job_id: UUID, *, expected_version: int, reason: str, actor: str) -> ReplayJob:
    """End a replay: what was not begun is skipped and stays parked; what runs ends as it ends.

    Raises:
        UnknownReplay. StaleReplay: it changed since, or has ended.
    """
    _act(_CANCEL, job_id, expected_version, actor, why=_words("cancelled", reason))
    with connection.cursor() as cursor:
        cursor.execute(_SKIP_QUEUED, [SkipReason.CANCELLED.value, job_id])
        if cursor.rowcount:
            add_counts(cursor, job_id, 0, {ReplayOutcome.SKIPPED.value: cursor.rowcount})
    settle_left()
    return get_replay(job_id)


def set_replay_rate(job_id: UUID, *, rate_per_s: float | None, expected_version: int, actor: str) -> ReplayJob:
    """Change how many items a second may start at most; None = as fast as the consumers can.

    Raises:
        UnknownReplay. StaleReplay: it changed since, or has ended. BadSelection: the rate cannot be.
    """
    check_rate(rate_per_s)
    return _act(_SET_RATE, job_id, expected_version, actor, rate=rate_per_s)


def _queue_items(cursor: Any, job_id: UUID, preview_id: UUID) -> int:
    """Queue what can run and skip what changed since the preview; of a key only the first may run at once."""
    cursor.execute(_RUNNABLE, [preview_id, [verdict.value for verdict in RUNNABLE]])
    rows = cursor.fetchall()
    queued: set[int] = set()
    for chunk in chunks([row[:3] for row in rows if row[3]], CHUNK):
        cursor.execute(_QUEUE, [job_id, *map(list, zip(*chunk, strict=True))])
        queued.update(number for (number,) in cursor.fetchall())
    changed = [row[:3] for row in rows if row[0] not in queued]
    for chunk in chunks(changed, CHUNK):
        cursor.execute(_SKIP_CHANGED, [job_id, *map(list, zip(*chunk, strict=True))])
    if changed:
        add_counts(cursor, job_id, 0, {ReplayOutcome.SKIPPED.value: len(changed)})
    cursor.execute(_BLOCK, [job_id, _not_first((number, lane) for number, _, lane, _ in rows if number in queued)])
    if len(rows) > CHUNK:
        cursor.execute("ANALYZE dlq_replay_item")  # a large job is most of its table: plans must know it at once
    return len(rows)


def _not_first(items: Iterable[tuple[int, int | None]]) -> list[int]:
    seen: set[int] = set()
    later = []
    for number, lane in items:
        if lane is not None and lane in seen:
            later.append(number)
        elif lane is not None:
            seen.add(lane)
    return later


def _act(sql: str, job_id: UUID, version: int, actor: str, **values: Any) -> ReplayJob:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, {"job": job_id, "version": version, "actor": _require_actor(actor), **values})
        is_done = bool(cursor.rowcount)
        job = get_replay(job_id)
        if not is_done:
            raise StaleReplay(_stale_words(job))
        announce_replays()
        return job


def _open_preview(
    cursor: Any, preview_id: UUID, *, actor: str, second: str, reason: str
) -> tuple[str, str, str | None]:
    cursor.execute(_LOCK_PREVIEW, [preview_id])
    row = cursor.fetchone()
    if row is None:
        raise UnknownReplay("There is no such preview; it may be forgotten. Select and preview again.")
    group, mode, stored_filter, is_expired, job_id, counts, followers = row
    if job_id is not None:
        raise AlreadyStarted("This preview was started already; open its replay.", job_id)
    if is_expired:
        raise NotStartable("This preview has expired: things may have changed. Preview again.")
    runnable = _count_runnable(counts)
    if not runnable:
        raise NotStartable("Nothing in this selection can be replayed; the preview says why.")
    _require_second(runnable + followers, actor, second, reason)
    cursor.execute(_COUNT_OPEN, [settings.REPLAY_OPEN_MAX])
    if cursor.fetchone()[0] >= settings.REPLAY_OPEN_MAX:
        raise NotStartable(f"{settings.REPLAY_OPEN_MAX} replays are open already; let some end, or cancel one.")
    return group, mode, stored_filter


def _count_runnable(counts: Any) -> int:
    found = json.loads(counts) if isinstance(counts, str) else counts
    return sum(found.get(verdict.value, 0) for verdict in RUNNABLE)


def _require_second(total: int, actor: str, second: str, reason: str) -> None:
    if total <= settings.DLQ_SECOND_PERSON_ABOVE:
        return
    if not reason:
        raise NeedsSecondPerson(f"Replaying {total:,} dead letters needs a reason.")
    if not second or second == actor:
        raise NeedsSecondPerson(
            f"Replaying {total:,} dead letters needs a second person (above {settings.DLQ_SECOND_PERSON_ABOVE:,})."
        )


def _require_actor(actor: str) -> str:
    if not actor.strip():
        raise ReplayError("The name of who does this is missing.")
    return actor.strip()[:ACTOR_CHARS]


def _words(what: str, reason: str) -> str:
    return f"{what}: {reason.strip()[:REASON_CHARS]}" if reason.strip() else what


def _stale_words(job: ReplayJob) -> str:
    state = {
        ReplayState.RUNNING: "runs",
        ReplayState.PAUSED: f"is {job.why or 'paused'}",
        ReplayState.FINISHED: "has finished",
        ReplayState.CANCELLED: f"was {job.why or 'cancelled'}",
    }[job.state]
    return f"This replay changed since the page was made: it {state} now (by {job.changed_by}). Nothing was done."
