"""Every row that waits and why, page by page, without counting: each look is bounded and says how far it went."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django.conf import settings
from django.db.backends.utils import CursorWrapper

from relay.domain.places import Snapshot
from relay.domain.relay_verdict import Facts, facts_of_a_row
from relay.domain.waiting import Look, judge_waiting, merge_looks
from relay.errors import BadWaitingQuery
from relay.keys import label_key
from relay.queries import Detail, index_plans, read_details
from relay.steering import list_pauses
from relay.types import RelayPause, WaitingFilter, WaitingPage, WaitingRow, WaitingState

_MATCHES = """(%(topic)s::text IS NULL OR {row}.topic = %(topic)s)
      AND (%(key)s::bytea IS NULL OR {row}.key = %(key)s::bytea)"""
# A look: the first rows that match, and by shard how far it went and over how many rows.
_LOOK = """
WITH looked AS MATERIALIZED ({looked})
SELECT part, max(position), count(*) FROM looked GROUP BY part
UNION ALL (SELECT shard, position, NULL FROM looked WHERE is_match ORDER BY position LIMIT %(limit)s)
"""


def _statement(looked: str, row: str) -> str:
    return _LOOK.replace("{looked}", looked).replace("{match}", _MATCHES.replace("{row}", row))


_FRESH = _statement(
    """
    SELECT c.shard AS part, c.shard, r.position, r.is_match FROM relay_checkpoint c CROSS JOIN LATERAL (
        SELECT o.position, {match} AS is_match FROM relay_outbox o
        WHERE o.shard = c.shard AND o.position > greatest(c.hw, %(after)s) AND o.position > %(first)s
          AND o.position <= %(last)s
        ORDER BY o.position LIMIT %(most)s) r
    WHERE %(shard)s::int IS NULL OR c.shard = %(shard)s
""",
    "o",
)
_HELD = _statement(
    """
    SELECT dense_rank() OVER (ORDER BY h.shard, h.topic)::int AS part, h.shard, r.position,
           r.is_match AND r.topic = h.topic AS is_match
    FROM relay_hold h JOIN relay_checkpoint c ON c.shard = h.shard CROSS JOIN LATERAL (
        SELECT o.position, o.topic, {match} AS is_match FROM relay_outbox o
        WHERE o.shard = h.shard AND o.position > greatest(h.hw, %(after)s) AND o.position > %(first)s
          AND o.position <= c.hw AND o.position <= %(last)s
        ORDER BY o.position LIMIT %(most)s) r
    WHERE (%(shard)s::int IS NULL OR h.shard = %(shard)s) AND (%(topic)s::text IS NULL OR h.topic = %(topic)s)
""",
    "o",
)
_DEFERRED = _statement(
    """
    SELECT 0 AS part, d.shard, d.position, {match} AND (d.failed OR NOT %(failed)s) AS is_match
    FROM relay_deferred d WHERE d.position > %(after)s ORDER BY d.position LIMIT %(most)s
""",
    "d",
)
_DEFERRED_KEY = """
SELECT shard, position FROM relay_deferred
WHERE topic = %(topic)s AND sha256(key) = sha256(%(key)s::bytea) AND position > %(after)s
  AND (failed OR NOT %(failed)s)
ORDER BY position LIMIT %(limit)s
"""
# Rows below a place that it could not see: few, since only transactions that were open then can have them.
_LATE = """
WITH place AS MATERIALIZED (
    SELECT shard, NULL::text AS topic, hw, snapshot, greatest(late_floor, late_cursor) AS late_after
    FROM relay_checkpoint
    UNION ALL
    SELECT h.shard, h.topic, h.hw, h.snapshot, greatest(c.late_floor, h.late_cursor)
    FROM relay_hold h JOIN relay_checkpoint c ON c.shard = h.shard
), candidate AS MATERIALIZED (
    (SELECT xid, shard, position FROM relay_outbox
     WHERE xid >= %(min_xmax)s::xid8 AND position > %(after)s AND position <= %(max_hw)s ORDER BY xid LIMIT %(most)s)
    UNION ALL
    (SELECT xid, shard, position FROM relay_outbox
     WHERE xid = ANY(%(xips)s::xid8[]) AND xid < %(min_xmax)s::xid8 AND position > %(after)s
       AND position <= %(max_hw)s ORDER BY xid LIMIT %(most)s)
)
SELECT DISTINCT k.shard, k.position FROM candidate k
JOIN place p ON p.shard = k.shard AND k.position > p.late_after AND k.position <= p.hw
    AND NOT pg_visible_in_snapshot(k.xid, p.snapshot)
CROSS JOIN LATERAL (SELECT * FROM relay_outbox r WHERE r.shard = k.shard AND r.position = k.position OFFSET 0) o
WHERE (p.topic IS NULL OR p.topic = o.topic) AND {matches}
ORDER BY k.position LIMIT %(limit)s
""".replace("{matches}", _MATCHES.replace("{row}", "o"))
_PLACES = """
SELECT c.shard, c.hw, c.snapshot::text, r.id IS NOT NULL FROM relay_checkpoint c
LEFT JOIN relay_runner r ON r.id = c.holder AND r.expires_at > clock_timestamp()
UNION ALL SELECT h.shard, h.hw, h.snapshot::text, false FROM relay_hold h
"""
_HOLDS = "SELECT shard, topic, hw, reason FROM relay_hold"
_FACTS = """
SELECT (SELECT last_value FROM relay_outbox_position),
       (SELECT count(*) FROM relay_runner WHERE expires_at > clock_timestamp()),
       (SELECT paused_by FROM relay_control WHERE scope = 'all'),
       (SELECT min(circuit_open_since) FROM relay_runner WHERE expires_at > clock_timestamp()),
       (SELECT relay_shard(%(topic)s, %(key)s::bytea, 0) WHERE %(key)s::bytea IS NOT NULL)
"""
_SET_ASIDE = {WaitingState.PAUSED, WaitingState.FAILED, WaitingState.DEFERRED, WaitingState.BEHIND}
# Which looks can find rows of a state.
_KINDS = {
    "late": {WaitingState.PAUSED, WaitingState.HELD, WaitingState.LATE},
    "fresh": {WaitingState.PAUSED, WaitingState.HELD, WaitingState.UNREAD},
    "held": {WaitingState.PAUSED, WaitingState.HELD},
    "deferred": _SET_ASIDE,
}


class _Scene(NamedTuple):
    """What every row of a page is judged by."""

    facts: Facts
    held_shards: frozenset[int]
    holds: Mapping[tuple[int, str], tuple[int, str]]
    pauses: Mapping[tuple[str, bytes | None], RelayPause]


def list_waiting(wanted: WaitingFilter, *, cursor: str | None = None, limit: int) -> WaitingPage:
    """Rows that wait, oldest first, from after `cursor` (the `next` of the page before).

    Looks at no more than `RELAY_UNSENT_COUNT_CAP` rows of a kind, so a page of a rare topic may be short or empty and
    still have a `next`.

    Raises:
        BadWaitingQuery: the filter, cursor or limit cannot be.
    """
    after = _read_cursor(cursor)
    _check(wanted, limit)
    with index_plans() as database:
        database.execute(_FACTS, {"topic": wanted.topic, "key": wanted.key})
        last, alive, paused_by, circuit, shard = database.fetchone()
        database.execute(_PLACES)
        places = database.fetchall()
        params = _params(wanted, places, after=after, last=last, shard=shard, limit=limit)
        page = merge_looks([_look(database, kind, params) for kind in _kinds(wanted)], limit)
        database.execute(_HOLDS)
        scene = _Scene(
            facts=facts_of_a_row(alive=alive, paused_by=paused_by, circuit_open_since=circuit),
            held_shards=frozenset(s for s, _, _, is_held in places if is_held),
            holds={(s, topic): (hw, reason) for s, topic, hw, reason in database.fetchall()},
            pauses={(p.topic, p.key): p for p in list_pauses()},
        )
        details = read_details(database, page.places)
    rows = [_waiting_row(detail, page.places[place], scene) for place, detail in details.items()]
    shown = [row for row in rows if not wanted.states or row.state in wanted.states]
    return WaitingPage(rows=shown, next=None if page.next is None else str(page.next))


# -- The question ------------------------------------------------------------------------------------------
def _read_cursor(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise BadWaitingQuery("The place in the list is not one that a page gave. Start again at the first page.")
    return int(cursor)


def _check(wanted: WaitingFilter, limit: int) -> None:
    if wanted.key is not None and wanted.topic is None:
        raise BadWaitingQuery("A key is looked for within its topic: give the topic as well.")
    if wanted.topic is not None and "\x00" in wanted.topic:
        raise BadWaitingQuery("No topic has such a name.")
    if not 1 <= limit <= settings.RELAY_WAITING_PAGE_ROWS_MAX:
        raise BadWaitingQuery(f"A page has 1 to {settings.RELAY_WAITING_PAGE_ROWS_MAX} rows.")


def _kinds(wanted: WaitingFilter) -> Iterable[str]:
    """The looks that are needed; rows move from one to the next in this order, so none is missed in between."""
    return [kind for kind, states in _KINDS.items() if not wanted.states or states & wanted.states]


def _params(
    wanted: WaitingFilter, places: list[tuple[Any, ...]], *, after: int, last: int, shard: int | None, limit: int
) -> dict[str, Any]:
    snapshots = [Snapshot.parse(text) for _, _, text, _ in places]
    min_xmax = min(s.xmax for s in snapshots)
    cap: int = settings.RELAY_UNSENT_COUNT_CAP
    is_narrow = wanted.topic is not None
    only_failed = wanted.states == {WaitingState.FAILED}
    parts = 1 if shard is not None else len(places)
    return {
        "topic": wanted.topic,
        "key": wanted.key,
        "shard": shard,
        "failed": only_failed,
        "after": after,
        "first": max(after, min(hw for _, hw, *_ in places)),
        "last": last,
        "max_hw": max(hw for _, hw, *_ in places),
        "min_xmax": str(min_xmax),
        "xips": [str(x) for x in sorted({x for s in snapshots for x in s.xip if x < min_xmax})],
        "limit": limit + 1,
        "most": max(limit + 1, cap // parts) if is_narrow else limit + 1,
        "most_deferred": max(limit + 1, cap) if is_narrow or only_failed else limit + 1,
    }


# -- Looks -------------------------------------------------------------------------------------------------
def _look(cursor: CursorWrapper, kind: str, params: dict[str, Any]) -> Look:
    if kind == "late":
        cursor.execute(_LATE, {**params, "most": settings.RELAY_UNSENT_COUNT_CAP})
        return _exact(kind, cursor, params["limit"])
    if kind == "deferred" and params["key"] is not None:
        cursor.execute(_DEFERRED_KEY, params)
        return _exact(kind, cursor, params["limit"])
    if kind == "deferred":
        params = {**params, "most": params["most_deferred"]}
    cursor.execute({"fresh": _FRESH, "held": _HELD, "deferred": _DEFERRED}[kind], params)
    found = cursor.fetchall()
    rows = [(position, shard) for shard, position, n in found if n is None]
    cuts = [position for _, position, n in found if n is not None and n >= params["most"]]
    return Look(kind=kind, rows=rows, cut=min([*cuts, *_cut_at_limit(rows, params["limit"])], default=None))


def _exact(kind: str, cursor: CursorWrapper, limit: int) -> Look:
    rows = [(position, shard) for shard, position in cursor.fetchall()]
    return Look(kind=kind, rows=rows, cut=min(_cut_at_limit(rows, limit), default=None))


def _cut_at_limit(rows: list[tuple[int, int]], limit: int) -> list[int]:
    return [rows[-1][0]] if len(rows) >= limit else []


# -- The answer --------------------------------------------------------------------------------------------
def _waiting_row(row: Detail, kind: str, scene: _Scene) -> WaitingRow:
    hold = scene.holds.get((row.shard, row.topic))
    topic_pause = scene.pauses.get((row.topic, None))
    key_pause = None if row.key is None else scene.pauses.get((row.topic, row.key))
    state, why = judge_waiting(
        kind,
        scene.facts,
        pause=topic_pause or key_pause,
        hold_reason=None if hold is None else hold[1],
        deferred=row.deferred,
        shard_is_held=row.shard in scene.held_shards,
    )
    return WaitingRow(
        position=row.position,
        shard=row.shard,
        event_id=row.event_id,
        topic=row.topic,
        type=row.type,
        key=row.key,
        key_label=label_key(row.key),
        created_at=row.created_at,
        age_s=row.age_s,
        state=state,
        why=why,
        attempts=row.attempts or 0,
        due_at=row.due_at,
        error=row.error or "",
        order_broken=bool(row.order_broken),
        may_skip=row.deferred is not None and (hold is None or hold[0] >= row.position),
        may_retry=row.deferred is not None and row.is_head and topic_pause is None and key_pause is None,
    )
