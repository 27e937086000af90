"""Freeze a selection of dead letters and say what a replay of it would do."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from uuid_utils.compat import uuid7

from dlq.domain.envelope import Undecodable, read_envelope, read_event
from dlq.domain.replay_plan import Candidate, Planned, count_verdicts, plan_replay
from dlq.foreign import find_without_payload
from dlq.handlers import Routes, UnknownGroup
from dlq.queries import build_list_query
from dlq.replay.errors import BadSelection
from dlq.replay.stored import load_records
from dlq.types import (
    RUNNABLE,
    DeadLetterFilter,
    DeadLetterState,
    FailureClass,
    Origin,
    ReplayMode,
    ReplayVerdict,
    Selection,
)
from relay.facade import UnknownTopic, get_topic

_FACTS = """
SELECT d.id, d.state, d.parked_at, d.partition, d.log_offset, d.lane, d.queue_number, k.head_id, d.needs_human,
    d.topic, d.event_type, d.failure_class, d.group_name, d.origin,
    a.event_id IS NOT NULL, i.dead_letter_id IS NOT NULL, coalesce(p.next_offset > d.log_offset + 1, false), f.topic
FROM dlq_dead_letter d
LEFT JOIN dlq_key k ON k.lane = d.lane
LEFT JOIN dlq_applied a ON a.group_name = d.group_name AND a.event_id = d.event_id
LEFT JOIN dlq_replay_item i ON i.dead_letter_id = d.id AND i.outcome IN ('queued', 'running')
LEFT JOIN dlq_position p ON p.group_name = d.group_name AND p.topic = d.topic AND p.partition = d.partition
LEFT JOIN dlq_foreign_stop f ON f.dead_letter_id = d.id AND f.number = 0
WHERE d.id = ANY(%s)
"""
_BEHIND = "SELECT coalesce(sum(letters - 1), 0)::bigint FROM dlq_key WHERE lane = ANY(%s)"
_KEEP = """
INSERT INTO dlq_selection (id, actor, group_name, mode, filter, as_of, expires_at, rate_per_s, total, followers, counts)
VALUES (%(id)s, %(actor)s, %(group)s, %(mode)s, %(filter)s::jsonb, %(as_of)s,
    %(as_of)s + make_interval(secs => %(life_s)s), %(rate)s, %(total)s, %(followers)s, %(counts)s::jsonb)
"""
_KEEP_ITEMS = """
INSERT INTO dlq_selection_item (selection_id, number, dead_letter_id, lane, verdict)
SELECT %s, * FROM unnest(%s::int[], %s::uuid[], %s::bigint[], %s::text[])
"""
_FORGET = """
WITH old AS (
    SELECT id FROM dlq_selection WHERE expires_at < clock_timestamp() - make_interval(secs => %s)
    ORDER BY expires_at LIMIT 50 FOR UPDATE SKIP LOCKED
), items AS (
    DELETE FROM dlq_selection_item i USING old WHERE i.selection_id = old.id
)
DELETE FROM dlq_selection s USING old WHERE s.id = old.id
"""
CHUNK = 5_000
T = TypeVar("T")


def freeze_selection(selection: Selection, *, rate_per_s: float | None, actor: str) -> UUID:
    """Materialise a selection with a verdict for each dead letter; the id of the preview. One transaction.

    What comes to match later is no part of it.

    Raises:
        BadSelection: nothing matches, more than `REPLAY_SELECTION_MAX` do, or they are of several groups.
        BadFilter: a filter's value cannot be.
    """
    check_rate(rate_per_s)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        as_of = cursor.fetchone()[0]
        ids = _pick(cursor, selection)
        facts = _Facts(_read(cursor, ids))
        planned = plan_replay(facts.candidates(), facts.mode)
        preview_id = uuid7()
        cursor.execute(
            _KEEP,
            {
                "id": preview_id,
                "actor": actor[:150],
                "group": facts.group,
                "mode": facts.mode.value,
                "filter": None if selection.filter is None else write_filter(selection.filter),
                "as_of": as_of,
                "life_s": settings.REPLAY_PREVIEW_LIFE_S,
                "rate": rate_per_s,
                "total": len(planned),
                "followers": _count_followers(cursor, planned),
                "counts": json.dumps({verdict.value: n for verdict, n in count_verdicts(planned).items()}),
            },
        )
        _keep_items(cursor, preview_id, planned)
    return preview_id


def check_rate(rate_per_s: float | None) -> None:
    """Refuse a rate that cannot be.

    Raises:
        BadSelection: it is not above 0, or above `REPLAY_RATE_MAX_PER_S`.
    """
    if rate_per_s is not None and not 0.01 <= rate_per_s <= settings.REPLAY_RATE_MAX_PER_S:
        raise BadSelection(
            f"The rate is {rate_per_s:g} per second; it must be from 0.01 to {settings.REPLAY_RATE_MAX_PER_S:,}."
        )


def write_filter(wanted: DeadLetterFilter) -> str:
    """A filter as JSON, for a job's row."""
    return json.dumps({name: value for name, value in asdict(wanted).items() if value}, default=_as_text)


def read_filter(stored: str | Mapping[str, Any] | None) -> DeadLetterFilter | None:
    """A filter from its JSON; fields that no filter has any more are left out."""
    if stored is None:
        return None
    found = json.loads(stored) if isinstance(stored, str) else dict(stored)
    known = {f.name: f.type for f in fields(DeadLetterFilter)}
    return DeadLetterFilter(
        **{name: _from_text(str(known[name]), value) for name, value in found.items() if name in known}
    )


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _from_text(kind: str, value: Any) -> Any:
    if isinstance(value, str) and "datetime" in kind:
        return datetime.fromisoformat(value)
    return UUID(value) if isinstance(value, str) and "UUID" in kind else value


def _pick(cursor: Any, selection: Selection) -> list[UUID]:
    most = settings.REPLAY_SELECTION_MAX
    if selection.filter is None:
        ids = list(dict.fromkeys(selection.ids))
    else:
        sql, values = build_list_query(selection.filter, None, most + 1)
        cursor.execute(f"SELECT id FROM ({sql}) picked", values)  # noqa: S608 - a statement of our own
        ids = [row_id for (row_id,) in cursor.fetchall()]
    if not ids:
        raise BadSelection("Nothing matches: no dead letter is selected.")
    if len(ids) > most:
        raise BadSelection(f"More than {most:,} dead letters match; narrow the filter and replay in parts.")
    return ids


def _read(cursor: Any, ids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    cursor.execute(_FACTS, [list(ids)])
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    if len(rows) < len(ids):
        raise BadSelection(f"{len(ids) - len(rows)} of the selected dead letters are not there any more; select anew.")
    return rows


class _Facts:
    """What was read of the selected dead letters, and what they have in common."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows
        kinds = sorted({(row[12], _mode_of(row[13]).value) for row in rows})
        if len(kinds) > 1:
            names = ", ".join(f"{group or 'no group'} (through the {mode})" for group, mode in kinds[:10])
            raise BadSelection(f"The selection is of several groups: {names}. Narrow it to one; each is a replay.")
        ((self.group, mode),) = kinds
        self.mode = ReplayMode(mode)
        self._routes = _routes_of(self.group)
        self._topics: dict[str, bool] = {}
        self._bare = find_without_payload([row[0] for row in rows if row[13] == Origin.FOREIGN])

    def candidates(self) -> list[Candidate]:
        """Return what the plan decides on."""
        broken = self._find_broken()
        return [self._candidate(row, broken) for row in self._rows]

    def _candidate(self, row: tuple[Any, ...], broken: set[UUID]) -> Candidate:
        return Candidate(
            id=row[0],
            state=DeadLetterState(row[1]),
            parked_at=row[2],
            partition=row[3],
            offset=row[4],
            lane=row[5],
            queue_number=row[6],
            head_id=row[7],
            needs_human=row[8],
            can_go=self._can_go(row),
            decodes=row[0] not in broken,
            has_bytes=row[0] not in self._bare,
            is_applied=self.mode is ReplayMode.HANDLER and row[14],
            is_in_replay=row[15],
            is_passed=self.mode is ReplayMode.HANDLER and row[16],
        )

    def _can_go(self, row: tuple[Any, ...]) -> bool:
        topic, event_type, failure_class, origin, stop_topic = row[9], row[10], row[11], row[13], row[17]
        if self.mode is ReplayMode.TOPIC:
            return self._is_declared(stop_topic if origin == Origin.FOREIGN else topic)
        if self._routes is None:
            return False
        # A broken record may have no type; whether it decodes now is the other question.
        return failure_class == FailureClass.SCHEMA or self._routes.find(topic, event_type) is not None

    def _is_declared(self, topic: str | None) -> bool:
        if topic is None:
            return False
        if topic not in self._topics:
            self._topics[topic] = _has_topic(topic)
        return self._topics[topic]

    def _find_broken(self) -> set[UUID]:
        """Return those parked as undecodable that still are, within `REPLAY_SCHEMA_CHECK_ROWS`."""
        if self.mode is ReplayMode.TOPIC or self._routes is None:
            return set()
        asked = [row[0] for row in self._rows if row[11] == FailureClass.SCHEMA]
        return {
            record_id
            for chunk in chunks(asked[: settings.REPLAY_SCHEMA_CHECK_ROWS], 100)
            for record_id, stored in load_records(chunk).items()
            if not _decodes(self._routes, stored.record)
        }


def _decodes(routes: Routes, record: Any) -> bool:
    try:
        envelope = read_envelope(record)
        spec = routes.find(record.place.topic, envelope.event_type)
        if spec is not None:
            read_event(record, envelope, spec.decode)
    except Undecodable:
        return False
    return spec is not None


def _mode_of(origin: str) -> ReplayMode:
    return ReplayMode.HANDLER if origin == Origin.CONSUMER else ReplayMode.TOPIC


def _routes_of(group: str) -> Routes | None:
    try:
        return Routes(group)
    except UnknownGroup:
        return None


def _has_topic(topic: str) -> bool:
    try:
        get_topic(topic)
    except UnknownTopic:
        return False
    return True


def _count_followers(cursor: Any, planned: Sequence[Planned]) -> int:
    """Count those parked behind selected heads that are not selected themselves."""
    heads = [
        line.candidate.lane
        for line in planned
        if line.verdict in RUNNABLE and line.candidate.head_id == line.candidate.id
    ]
    cursor.execute(_BEHIND, [heads])
    behind: int = cursor.fetchone()[0]
    return max(0, behind - sum(line.verdict is ReplayVerdict.FOLLOWS for line in planned))


def _keep_items(cursor: Any, preview_id: UUID, planned: Sequence[Planned]) -> None:
    lines = [(n, p.candidate.id, p.candidate.lane, p.verdict.value) for n, p in enumerate(planned, start=1)]
    for chunk in chunks(lines, CHUNK):
        cursor.execute(_KEEP_ITEMS, [preview_id, *map(list, zip(*chunk, strict=True))])


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def forget_old_previews() -> None:
    """Delete selections that expired `REPLAY_PREVIEW_KEPT_S` ago; a replay has its own items."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [settings.REPLAY_PREVIEW_KEPT_S])
