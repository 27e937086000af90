"""Reads of replays, previews and quarantined keys. Nothing here returns a payload, key or header value."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from dlq.breaker import list_breakers
from dlq.domain.replay_plan import JOINED_FROM, duration_s
from dlq.queries import BadCursor, build_list_query, read_rows
from dlq.replay.counting import FAILED_SAME, FOLLOWED
from dlq.replay.errors import UnknownReplay
from dlq.replay.selecting import read_filter
from dlq.switch import get_switch
from dlq.types import (
    RUNNABLE,
    SKIP_WORDS,
    BreakerView,
    QuarantinedKey,
    QuarantineFilter,
    QuarantinePage,
    ReplayItem,
    ReplayItemPage,
    ReplayJob,
    ReplayMode,
    ReplayOutcome,
    ReplayPage,
    ReplayPhase,
    ReplayPreview,
    ReplayState,
    ReplayVerdict,
    Selection,
    SkipReason,
)
from relay.facade import list_processes
from relay.types import Aspect, ProcessView, Role

KEYS_COUNT_CAP = 10_000
_ALIVE = (Aspect.OK, Aspect.WARN)

_PREVIEW = """
SELECT id, group_name, mode, filter::text, actor, as_of, expires_at, expires_at < clock_timestamp(), total,
    counts::text, followers, rate_per_s, job_id
FROM dlq_selection WHERE id = %s
"""
_SAMPLES = """
(SELECT dead_letter_id, verdict, number FROM dlq_selection_item WHERE selection_id = %(id)s
 ORDER BY number LIMIT %(most)s)
"""
_EXPLICIT = "SELECT dead_letter_id FROM dlq_selection_item WHERE selection_id = %s ORDER BY number"
# What matches now and was not there: also what was being parked when the selection was frozen.
_LATE = """
SELECT count(*) FROM (
    SELECT id FROM ({picked}) picked
    WHERE parked_at > %s::timestamptz - interval '1 minute'
      AND NOT EXISTS (SELECT FROM dlq_selection_item i WHERE i.selection_id = %s AND i.dead_letter_id = picked.id)
    LIMIT %s
) late
"""
_JOB = """
SELECT clock_timestamp(), id, group_name, mode, state, phase, why, filter::text, selection_id, actor, second, reason,
    created_at, started_at, ended_at, version, changed_by, changed_at, rate_per_s, total, measured_per_s,
    (SELECT jsonb_object_agg(what, n) FROM (
        SELECT what, sum(n)::bigint AS n FROM dlq_replay_count c WHERE c.job_id = r.id GROUP BY what) counts)::text,
    (SELECT count(*) FROM dlq_replay_item i WHERE i.job_id = r.id AND i.outcome = 'running')
FROM dlq_replay r
"""
_ITEMS = """
SELECT i.number, i.dead_letter_id, d.topic, d.partition, d.log_offset, d.event_type, d.key_label, i.outcome, i.why,
    i.error_class, i.same_error, i.taken_by, i.settled_at
FROM dlq_replay_item i JOIN dlq_dead_letter d ON d.id = i.dead_letter_id
WHERE i.job_id = %s {outcome} AND i.number > %s ORDER BY i.number LIMIT %s
"""
_OF_LETTER = """
SELECT i.job_id, i.number, i.dead_letter_id, d.topic, d.partition, d.log_offset, d.event_type, d.key_label, i.outcome,
    i.why, i.error_class, i.same_error, i.taken_by, i.settled_at
FROM dlq_replay_item i JOIN dlq_dead_letter d ON d.id = i.dead_letter_id
WHERE i.dead_letter_id = %s ORDER BY i.job_id DESC, i.number LIMIT %s
"""
_KEYS = """
SELECT k.id, k.group_name, k.topic, k.key_label, k.head_id, k.letters, k.quarantined_at, k.head_at,
    (SELECT i.job_id FROM dlq_replay_item i
     WHERE i.dead_letter_id = k.head_id AND i.outcome IN ('queued', 'running') LIMIT 1)
FROM dlq_key k
"""
_COUNT_KEYS = "SELECT count(*) FROM (SELECT FROM dlq_key k {where} LIMIT %s) keys"


# -- Previews ----------------------------------------------------------------------------------------------
def get_preview(preview_id: UUID) -> ReplayPreview:
    """Return a preview as it was frozen, with what came since.

    Raises:
        UnknownReplay: there is none, or it is forgotten.
    """
    with connection.cursor() as cursor:
        cursor.execute(_PREVIEW, [preview_id])
        row = cursor.fetchone()
        if row is None:
            raise UnknownReplay("There is no such preview; it may be forgotten. Select and preview again.")
        selection = _selection(cursor, preview_id, row[3])
        cursor.execute(_SAMPLES, {"id": preview_id, "most": settings.REPLAY_SAMPLES})
        samples = cursor.fetchall()
        late = _count_late(cursor, selection, row[5], preview_id)
    counts = {ReplayVerdict(name): n for name, n in json.loads(row[9]).items()}
    runnable = sum(counts.get(verdict, 0) for verdict in RUNNABLE)
    lines = read_rows([letter_id for letter_id, _, _ in samples])
    return ReplayPreview(
        id=row[0],
        group=row[1],
        mode=ReplayMode(row[2]),
        selection=selection,
        actor=row[4],
        as_of=row[5],
        expires_at=row[6],
        expired=row[7],
        total=row[8],
        runnable=runnable,
        counts=counts,
        followers=row[10],
        late=late,
        late_limit=settings.REPLAY_LATE_COUNT_CAP,
        rate_per_s=row[11],
        duration_s=duration_s(runnable + row[10], row[11]),
        needs_second=runnable + row[10] > settings.DLQ_SECOND_PERSON_ABOVE,
        samples=[(lines[letter_id], ReplayVerdict(verdict)) for letter_id, verdict, _ in samples if letter_id in lines],
        job_id=row[12],
    )


def _selection(cursor: Any, preview_id: UUID, stored_filter: str | None) -> Selection:
    if stored_filter is not None:
        return Selection(filter=read_filter(stored_filter))
    cursor.execute(_EXPLICIT, [preview_id])
    return Selection(ids=[letter_id for (letter_id,) in cursor.fetchall()])


def _count_late(cursor: Any, selection: Selection, as_of: datetime, preview_id: UUID) -> int:
    if selection.filter is None:
        return 0
    cap = settings.REPLAY_LATE_COUNT_CAP
    sql, values = build_list_query(selection.filter, None, cap * 2)
    cursor.execute(_LATE.format(picked=sql), [*values, as_of, preview_id, cap])
    return int(cursor.fetchone()[0])


# -- Jobs --------------------------------------------------------------------------------------------------
def get_replay(job_id: UUID) -> ReplayJob:
    """Return one replay with its counts.

    Raises:
        UnknownReplay: there is none.
    """
    with connection.cursor() as cursor:
        cursor.execute(_JOB + "WHERE r.id = %s", [job_id])
        row = cursor.fetchone()
    if row is None:
        raise UnknownReplay("There is no such replay.")
    return _job(row, _Around())


def list_replays(cursor: str | None = None, limit: int = 50) -> ReplayPage:
    """Return replays, newest first; `cursor` comes from a page.

    Raises:
        BadCursor: the cursor is not one that a page gave out.
    """
    limit = max(1, min(limit, settings.REPLAY_PAGE_ITEMS_MAX))
    where, values = _after(cursor, "r.created_at", "r.id")
    with connection.cursor() as db:
        db.execute(_JOB + f"{where} ORDER BY r.created_at DESC, r.id DESC LIMIT %s", [*values, limit + 1])
        rows = db.fetchall()
    around = _Around()
    jobs = [_job(row, around) for row in rows[:limit]]
    next_cursor = write_place(jobs[-1].created_at, jobs[-1].id) if len(rows) > limit else None
    return ReplayPage(as_of=rows[0][0] if rows else datetime.now(UTC), jobs=jobs, next_cursor=next_cursor)


def require_replay(job_id: UUID) -> None:
    """Refuse the number of a job that is not there.

    Raises:
        UnknownReplay.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM dlq_replay WHERE id = %s", [job_id])
        if not cursor.rowcount:
            raise UnknownReplay("There is no such replay.")


def list_replay_items(
    job_id: UUID, outcome: ReplayOutcome | None = None, cursor: str | None = None, limit: int = 100
) -> ReplayItemPage:
    """Return items of a job in their order, of one outcome or all; `cursor` comes from a page.

    Raises:
        BadCursor: the cursor is not one that a page gave out. UnknownReplay: there is no such job.
    """
    require_replay(job_id)
    limit = max(1, min(limit, settings.REPLAY_PAGE_ITEMS_MAX))
    after = _read_number(cursor) if cursor else 0
    narrowed = "AND i.outcome = %s" if outcome is not None else ""
    with connection.cursor() as db:
        db.execute("SELECT clock_timestamp()")
        as_of = db.fetchone()[0]
        values: list[Any] = [job_id, *([outcome.value] if outcome is not None else []), after, limit + 1]
        db.execute(_ITEMS.format(outcome=narrowed), values)
        rows = db.fetchall()
    items = [_item(job_id, row) for row in rows[:limit]]
    return ReplayItemPage(as_of=as_of, items=items, next_cursor=str(items[-1].number) if len(rows) > limit else None)


def list_replays_of(dead_letter_id: UUID) -> list[ReplayItem]:
    """Return what replays did with one dead letter, the latest first, at most `REPLAY_SAMPLES`."""
    with connection.cursor() as cursor:
        cursor.execute(_OF_LETTER, [dead_letter_id, settings.REPLAY_SAMPLES])
        return [_item(row[0], row[1:]) for row in cursor.fetchall()]


class _Around:
    """What decides whether a running job waits: processes, breakers, switches; read once a page, and only if asked."""

    def __init__(self) -> None:
        self._processes: list[ProcessView] | None = None
        self._breakers: list[BreakerView] | None = None

    def words(self, group: str, mode: ReplayMode) -> str:
        """What a running job waits for; "" = nothing."""
        if self._processes is None:
            self._processes = list_processes()
        alive = [p for p in self._processes if p.role is Role.CONSUMER and p.verdict.aspect in _ALIVE]
        if mode is ReplayMode.TOPIC:
            return "" if alive else "waiting for a consumer of any group, which sends it"
        switch = get_switch(group)
        if switch is not None and switch.stopped:
            return f"waiting until {group} is started again: stopped by {switch.set_by}"
        if not any(p.facts.get("group") == group for p in alive):
            return f"waiting for a consumer of {group}"
        return self._breaker_words(group)

    def _breaker_words(self, group: str) -> str:
        if self._breakers is None:
            self._breakers = list_breakers(only_open=True)
        held = [b.handler for b in self._breakers if b.group == group]
        return f"waiting while the breaker of {', '.join(held)} is open" if held else ""


def _job(row: Sequence[Any], around: _Around) -> ReplayJob:
    as_of, job_id, group, mode, state, phase, why, stored_filter, preview_id, actor, second, reason, *rest = row
    created_at, started_at, ended_at, version, changed_by, changed_at, rate, total, measured, stored, running = rest
    counts: Mapping[str, int] = json.loads(stored) if stored else {}
    done = {outcome: counts.get(outcome.value, 0) for outcome in ReplayOutcome}
    total += counts.get(FOLLOWED, 0)
    queued = max(0, total - sum(done.values()) - running)
    is_running = state == ReplayState.RUNNING
    return ReplayJob(
        id=job_id,
        group=group,
        mode=ReplayMode(mode),
        state=ReplayState(state),
        phase=ReplayPhase(phase),
        why=why,
        waiting_for=around.words(group, ReplayMode(mode)) if is_running else "",
        actor=actor,
        second=second,
        reason=reason,
        created_at=created_at,
        started_at=started_at,
        ended_at=ended_at,
        as_of=as_of,
        version=version,
        changed_by=changed_by,
        changed_at=changed_at,
        rate_per_s=rate,
        total=total,
        followed=counts.get(FOLLOWED, 0),
        queued=queued,
        running=running,
        applied=done[ReplayOutcome.APPLIED],
        deduplicated=done[ReplayOutcome.DEDUPLICATED],
        sent=done[ReplayOutcome.SENT],
        failed=done[ReplayOutcome.FAILED],
        failed_same=counts.get(FAILED_SAME, 0),
        skipped=done[ReplayOutcome.SKIPPED],
        measured_per_s=measured if is_running else None,
        eta_s=(queued + running) / measured if is_running and measured else None,
        preview_id=preview_id,
        selection=Selection(filter=read_filter(stored_filter)),
    )


def _item(job_id: UUID, row: Sequence[Any]) -> ReplayItem:
    number, letter_id, topic, partition, offset, event_type, key_label, outcome, why, error_class, same, by, at = row
    return ReplayItem(
        job_id=job_id,
        number=number,
        dead_letter_id=letter_id,
        topic=topic,
        partition=partition,
        offset=offset,
        event_type=event_type,
        key_label=key_label,
        outcome=ReplayOutcome(outcome),
        why=SKIP_WORDS[SkipReason(why)] if why else "",
        error_class=error_class,
        same_error=same,
        joined=number > JOINED_FROM,
        taken_by=by,
        settled_at=at,
    )


# -- Quarantined keys --------------------------------------------------------------------------------------
def list_quarantined(
    cursor: str | None = None, limit: int = 50, wanted: QuarantineFilter | None = None
) -> QuarantinePage:
    """Return quarantined keys, newest first; `cursor` comes from a page.

    Raises:
        BadCursor: the cursor is not one that a page gave out.
    """
    limit = max(1, min(limit, settings.REPLAY_PAGE_ITEMS_MAX))
    conditions, values = _key_conditions(wanted or QuarantineFilter())
    where = f"WHERE {conditions}" if conditions else ""
    after, place = _after(cursor, "k.quarantined_at", "k.id", word="AND" if conditions else "WHERE")
    with connection.cursor() as db:
        db.execute("SELECT clock_timestamp()")
        as_of = db.fetchone()[0]
        db.execute(_COUNT_KEYS.format(where=where), [*values, KEYS_COUNT_CAP])
        total = db.fetchone()[0]
        db.execute(
            f"{_KEYS} {where} {after} ORDER BY k.quarantined_at DESC, k.id DESC LIMIT %s", [*values, *place, limit + 1]
        )
        rows = db.fetchall()
    keys = _with_heads(rows[:limit])
    next_cursor = write_place(keys[-1].quarantined_at, keys[-1].id) if len(rows) > limit and keys else None
    return QuarantinePage(as_of=as_of, keys=keys, next_cursor=next_cursor, total=total, total_limit=KEYS_COUNT_CAP)


def get_quarantined(key_id: UUID) -> QuarantinedKey | None:
    """Return one quarantined key; None = it is free by now."""
    with connection.cursor() as cursor:
        cursor.execute(_KEYS + "WHERE k.id = %s", [key_id])
        found = _with_heads(cursor.fetchall())
    return found[0] if found else None


def find_quarantined(dead_letter_id: UUID) -> QuarantinedKey | None:
    """Return the quarantined key in whose queue a dead letter is; None = it is in none."""
    with connection.cursor() as cursor:
        cursor.execute(
            _KEYS + "JOIN dlq_dead_letter d ON d.lane = k.lane AND d.state = 'parked' AND d.queue_number IS NOT NULL"
            " WHERE d.id = %s",
            [dead_letter_id],
        )
        found = _with_heads(cursor.fetchall())
    return found[0] if found else None


def _key_conditions(wanted: QuarantineFilter) -> tuple[str, list[Any]]:
    texts = {"k.group_name": wanted.group, "k.topic": wanted.topic, "k.key_label": wanted.key_label}
    given = {column: text for column, text in texts.items() if text}
    return " AND ".join(f"{column} = %s" for column in given), list(given.values())


def _with_heads(rows: Sequence[Sequence[Any]]) -> list[QuarantinedKey]:
    heads = read_rows([row[4] for row in rows])
    return [
        QuarantinedKey(
            id=row[0],
            group=row[1],
            topic=row[2],
            key_label=row[3],
            head=heads[row[4]],
            letters=row[5],
            quarantined_at=row[6],
            head_since=row[7],
            job_id=row[8],
        )
        for row in rows
        if row[4] in heads
    ]


# -- Places in lists ---------------------------------------------------------------------------------------
def write_place(at: datetime, row_id: UUID) -> str:
    """An opaque cursor for what is older than this row."""
    return base64.urlsafe_b64encode(json.dumps([at.isoformat(), str(row_id)]).encode()).decode().rstrip("=")


def _after(cursor: str | None, at: str, row_id: str, *, word: str = "WHERE") -> tuple[str, list[Any]]:
    if not cursor:
        return "", []
    try:
        stored_at, stored_id = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)))
        values = [datetime.fromisoformat(stored_at).astimezone(UTC), UUID(stored_id)]
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, binascii.Error) as error:
        raise BadCursor("this page link is damaged or from another version; start at the first page") from error
    return f"{word} ({at}, {row_id}) < (%s, %s)", values


def _read_number(cursor: str) -> int:
    if not cursor.isdigit() or len(cursor) > 18:
        raise BadCursor("this page link is damaged or from another version; start at the first page")
    return int(cursor)
