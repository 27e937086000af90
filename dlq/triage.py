"""Failure groups: read them with exact counts, and keep what people say of them.

Counts are summed from what triggers append (`dlq.models_triage`): no statement here reads dead letters. A group is a
fingerprint and those merged into it; merging and splitting move no count.

Errors: TriageError <- NoSuchGroup | StaleGroup | BadGroupChange | BadGroupQuery.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from dlq.domain.triage import (
    SPANS,
    FailureGroup,
    FailureGroupDetail,
    FailureGroupPage,
    GroupFilter,
    GroupMember,
    GroupShow,
    GroupSort,
    Window,
    judge_group,
    spark_hours,
    window_starts,
)
from dlq.signals import dead_letters_changed
from dlq.types import FailureClass

Row = Mapping[str, Any]

# One row a group; `c` has a few rows a fingerprint once they are folded.
_COUNTED = """
per_fingerprint AS (
    SELECT fingerprint, max(last_at) AS last_at, sum(n)::bigint AS total,
      coalesce(sum(n) FILTER (WHERE state = 'parked'), 0)::bigint AS open,
      coalesce(sum(n) FILTER (WHERE state = 'applied'), 0)::bigint AS applied,
      coalesce(sum(n) FILTER (WHERE state = 'sent'), 0)::bigint AS sent,
      coalesce(sum(n) FILTER (WHERE state = 'discarded'), 0)::bigint AS discarded
    FROM dlq_group_count
    WHERE (%(topic)s = '' OR topic = %(topic)s) AND (%(group)s = '' OR group_name = %(group)s)
      AND (%(number)s::bigint IS NULL OR fingerprint IN (
        SELECT fingerprint FROM dlq_failure_group WHERE coalesce(merged_into_id, number) = %(number)s))
    GROUP BY fingerprint),
counted AS (
    SELECT coalesce(g.merged_into_id, g.number) AS number, count(*) AS fingerprints, min(g.first_seen_at) AS first_at,
      max(c.last_at) AS last_at, coalesce(sum(c.total), 0)::bigint AS total, coalesce(sum(c.open), 0)::bigint AS open,
      coalesce(sum(c.applied), 0)::bigint AS applied, coalesce(sum(c.sent), 0)::bigint AS sent,
      coalesce(sum(c.discarded), 0)::bigint AS discarded
    FROM dlq_failure_group g LEFT JOIN per_fingerprint c ON c.fingerprint = g.fingerprint
    WHERE (%(topic)s = '' AND %(group)s = '' OR c.fingerprint IS NOT NULL)
      AND (%(number)s::bigint IS NULL OR coalesce(g.merged_into_id, g.number) = %(number)s)
    GROUP BY 1),
found AS (
    SELECT h.*, k.fingerprints, k.first_at, k.last_at, k.total, k.open, k.applied, k.sent, k.discarded,
      coalesce(h.snoozed_until > clock_timestamp(), false) AS is_snoozed
    FROM counted k JOIN dlq_failure_group h ON h.number = k.number
    WHERE %(text)s = '' OR concat_ws(' ', h.name, h.error_class, h.error_message, h.handler, h.note, h.owner,
      'G-' || h.number) ILIKE %(text)s)
"""
_SHOWN = {
    GroupShow.TODO: "open > 0 AND NOT is_snoozed",
    GroupShow.SNOOZED: "open > 0 AND is_snoozed",
    GroupShow.OPEN: "open > 0",
    GroupShow.ALL: "true",
}
_SORTED = {
    GroupSort.OPEN: ("open", "bigint"),
    GroupSort.TOTAL: ("total", "bigint"),
    GroupSort.LAST: ("coalesce(last_at, first_at)", "timestamptz"),
    GroupSort.FIRST: ("first_at", "timestamptz"),
}
_SINCE = "coalesce(sum(b.n) FILTER (WHERE b.bucket >= %s), 0)::bigint"
_WINDOWS = f"""
SELECT coalesce(g.merged_into_id, g.number), {", ".join([_SINCE] * len(SPANS))}
FROM dlq_failure_group g JOIN dlq_group_bucket b ON b.fingerprint = g.fingerprint AND b.bucket >= %s
WHERE coalesce(g.merged_into_id, g.number) = ANY(%s) GROUP BY 1
"""  # noqa: S608 - constants
_HOURS = """
SELECT coalesce(g.merged_into_id, g.number), date_trunc('hour', b.bucket, 'UTC'), sum(b.n)::bigint
FROM dlq_failure_group g JOIN dlq_group_bucket b ON b.fingerprint = g.fingerprint AND b.bucket >= %s
WHERE coalesce(g.merged_into_id, g.number) = ANY(%s) GROUP BY 1, 2
"""
_MEMBERS = """
SELECT g.number, g.fingerprint, g.handler, g.failure_class, g.error_class, g.error_message, g.first_seen_at, g.note,
  coalesce(sum(c.n) FILTER (WHERE c.state = 'parked'), 0)::bigint AS open, coalesce(sum(c.n), 0)::bigint AS total
FROM dlq_failure_group g LEFT JOIN dlq_group_count c ON c.fingerprint = g.fingerprint
WHERE coalesce(g.merged_into_id, g.number) = %s GROUP BY g.number ORDER BY g.number
"""
_PLACES = """
SELECT c.topic, c.group_name, sum(c.n)::bigint AS open
FROM dlq_failure_group g JOIN dlq_group_count c ON c.fingerprint = g.fingerprint
WHERE coalesce(g.merged_into_id, g.number) = %s AND c.state = 'parked'
GROUP BY 1, 2 HAVING sum(c.n) > 0 ORDER BY open DESC, 1, 2 LIMIT %s
"""
_FINGERPRINTS = "SELECT fingerprint FROM dlq_failure_group WHERE coalesce(merged_into_id, number) = %s ORDER BY number"
_OF_FINGERPRINT = "SELECT coalesce(merged_into_id, number) FROM dlq_failure_group WHERE fingerprint = %s"
_HEAD = "SELECT coalesce(merged_into_id, number) FROM dlq_failure_group WHERE number = %s"

_CHANGE = """
UPDATE dlq_failure_group SET {what}, version = version + 1, changed_by = %(actor)s, changed_at = clock_timestamp()
WHERE number = %(number)s AND version = %(version)s AND merged_into_id IS NULL
"""
_MERGE_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('dlq.failure_groups', 0))"
_COUNT_MEMBERS = """
SELECT count(*) FILTER (WHERE number = %(into)s AND merged_into_id IS NULL), count(*)
FROM dlq_failure_group WHERE coalesce(merged_into_id, number) IN (%(into)s, %(number)s)
"""
_MERGE = "UPDATE dlq_failure_group SET merged_into_id = %s WHERE number = %s OR merged_into_id = %s"
_TOUCH = """
UPDATE dlq_failure_group SET version = version + 1, changed_by = %s, changed_at = clock_timestamp() WHERE number = %s
"""
_SPLIT = """
UPDATE dlq_failure_group SET merged_into_id = NULL, version = version + 1, changed_by = %(actor)s,
  changed_at = clock_timestamp()
WHERE number = %(number)s AND merged_into_id = %(of)s
"""


class TriageError(Exception):
    """What was asked for cannot be; nothing was changed."""


class NoSuchGroup(TriageError):
    """No failure group has this number."""


class StaleGroup(TriageError):
    """Somebody changed the group meanwhile."""


class BadGroupChange(TriageError):
    """A value cannot be; `field` names it and the text says what may be."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class BadGroupQuery(TriageError):
    """The page link is not one of ours."""


# -- Read --------------------------------------------------------------------------------------------------
def list_failure_groups(wanted: GroupFilter, *, cursor: str | None = None, limit: int) -> FailureGroupPage:
    """Return one page of groups, in the order of `wanted.sort`.

    Raises:
        BadGroupQuery: the cursor is not one that a page of this order gave out, or a text holds what no text can.
    """
    value, number = _read_cursor(cursor, wanted.sort) if cursor else (None, None)
    sql = _list_sql(wanted, is_first=value is None)
    values = _values(wanted) | {"at": value, "at_number": number, "limit": limit + 1}
    with connection.cursor() as db:
        now = _now(db)
        db.execute(sql, values)
        rows = _dicts(db)
        shown = rows[:limit]
        groups = _fill(db, shown, now)
    first: Row = rows[0] if rows else {"matching": 0, "all_open": 0, "all_snoozed": 0}
    return FailureGroupPage(
        as_of=now,
        groups=groups,
        matching=first["matching"],
        open=int(first["all_open"]),
        snoozed=first["all_snoozed"],
        next_cursor=_write_cursor(shown[-1], wanted.sort) if len(rows) > limit else None,
    )


def get_failure_group(number: int) -> FailureGroupDetail | None:
    """Return one group with its fingerprints; None when there is none of this number, or it was merged away."""
    values = _values(GroupFilter()) | {"number": number}
    with connection.cursor() as db:
        now = _now(db)
        db.execute(f"WITH {_COUNTED} SELECT * FROM found", values)  # noqa: S608 - constants
        groups = _fill(db, _dicts(db), now)
        if not groups:
            return None
        db.execute(_MEMBERS, [number])
        members = [_member(row) for row in _dicts(db)]
        db.execute(_PLACES, [number, settings.DLQ_GROUP_PLACES])
        return FailureGroupDetail(as_of=now, group=groups[0], members=members, places=db.fetchall())


def find_group(number: int) -> int | None:
    """The number of the group that this one is in now: its own, or the one that it was merged into."""
    with connection.cursor() as db:
        db.execute(_HEAD, [number])
        row = db.fetchone()
    return row[0] if row else None


def find_group_of(fingerprint: str) -> int | None:
    """The number of the group that a fingerprint is in; None when nothing was ever parked with it."""
    with connection.cursor() as db:
        db.execute(_OF_FINGERPRINT, [fingerprint])
        row = db.fetchone()
    return row[0] if row else None


def list_fingerprints(number: int) -> list[str]:
    """The fingerprints of a group, at most `DLQ_GROUP_MEMBERS_MAX`; empty when there is no such group."""
    with connection.cursor() as db:
        db.execute(_FINGERPRINTS, [number])
        return [fingerprint for (fingerprint,) in db.fetchall()]


# -- Change ------------------------------------------------------------------------------------------------
def describe_group(number: int, *, name: str, owner: str, note: str, expected_version: int, actor: str) -> None:
    """Set what people call a group, who looks after it, and what is known of it; the note is kept when it is fixed.

    Raises:
        NoSuchGroup, StaleGroup, BadGroupChange.
    """
    said = {"name": _text("name", name, 120), "owner": _text("owner", owner, 150), "note": _text("note", note, 2_000)}
    _change("name = %(name)s, owner = %(owner)s, note = %(note)s", said, number, expected_version, actor)


def snooze_group(number: int, *, for_s: float, expected_version: int, actor: str) -> None:
    """Leave a group out of what needs a look for so many seconds, at most `DLQ_SNOOZE_MOST`.

    Raises:
        NoSuchGroup, StaleGroup, BadGroupChange.
    """
    most_s = settings.DLQ_SNOOZE_MOST.total_seconds()
    if not 60 <= for_s <= most_s:
        days = int(most_s / 86_400)
        raise BadGroupChange("for", f"A group can be snoozed for a minute at least and {days} days at most.")
    what = "snoozed_until = clock_timestamp() + make_interval(secs => %(for_s)s)"
    _change(what, {"for_s": for_s}, number, expected_version, actor)


def mark_group_fixed(number: int, *, fixed_in: str, expected_version: int, actor: str) -> None:
    """Say in which version the cause is mended. What fails after this moment says that it came back.

    Raises:
        NoSuchGroup, StaleGroup, BadGroupChange.
    """
    version = _text("fixed_in", fixed_in, 80)
    if not version:
        raise BadGroupChange("fixed_in", "Name the version, the change or what else mended it, for example 2.14.1.")
    what = "fixed_in = %(fixed_in)s, fixed_at = clock_timestamp(), snoozed_until = NULL"
    _change(what, {"fixed_in": version}, number, expected_version, actor)


def reopen_group(number: int, *, expected_version: int, actor: str) -> None:
    """Take back that a group is snoozed or fixed.

    Raises:
        NoSuchGroup, StaleGroup.
    """
    _change("fixed_in = '', fixed_at = NULL, snoozed_until = NULL", {}, number, expected_version, actor)


def merge_group(number: int, *, into: int, expected_version: int, actor: str) -> None:
    """Make a group, with all of its fingerprints, part of another one. Its own note and state are kept for a split.

    Raises:
        NoSuchGroup, StaleGroup, BadGroupChange.
    """
    if number == into:
        raise BadGroupChange("into", "A group cannot be merged into itself. Name another one.")
    with transaction.atomic(), connection.cursor() as db:
        db.execute(_MERGE_TURN)
        _change("number = number", {}, number, expected_version, actor)
        db.execute(_COUNT_MEMBERS, {"into": into, "number": number})
        heads, members = db.fetchone()
        if not heads:
            raise BadGroupChange("into", f"G-{into} is no group of its own. Take the number from the list of groups.")
        if members > settings.DLQ_GROUP_MEMBERS_MAX:
            most = settings.DLQ_GROUP_MEMBERS_MAX
            raise BadGroupChange("into", f"Together they have {members} fingerprints; a group has at most {most}.")
        db.execute(_MERGE, [into, number, number])
        db.execute(_TOUCH, [actor[:150], into])


def split_group(number: int, *, of: int, expected_version: int, actor: str) -> None:
    """Make a fingerprint that was merged into the group `of` a group of its own again, called `number`.

    Raises:
        NoSuchGroup, StaleGroup.
    """
    with transaction.atomic(), connection.cursor() as db:
        db.execute(_MERGE_TURN)
        _change("number = number", {}, of, expected_version, actor)
        db.execute(_SPLIT, {"number": number, "of": of, "actor": actor[:150]})
        if not db.rowcount:
            raise StaleGroup(f"G-{number} is not part of G-{of} any more: somebody has split it off already.")


def _change(what: str, values: Mapping[str, Any], number: int, version: int, actor: str) -> None:
    with transaction.atomic(), connection.cursor() as db:
        db.execute(_CHANGE.format(what=what), {**values, "number": number, "version": version, "actor": actor[:150]})
        if not db.rowcount:
            _refuse(number)
        transaction.on_commit(lambda: dead_letters_changed.send_robust(sender=FailureGroup))


def _refuse(number: int) -> None:
    head = find_group(number)
    if head is None:
        raise NoSuchGroup(f"There is no failure group G-{number}.")
    if head != number:
        raise StaleGroup(f"G-{number} was merged into G-{head} since you looked.")
    raise StaleGroup(f"Somebody has changed G-{number} since you looked. Look again, then decide.")


def _text(field: str, text: str, most: int) -> str:
    text = text.strip()
    if len(text) > most:
        raise BadGroupChange(field, f"At most {most} characters; this has {len(text)}.")
    if "\0" in text:
        raise BadGroupChange(field, "It holds a character that cannot be kept. Type it again instead of pasting it.")
    return text


# -- Rows and values ---------------------------------------------------------------------------------------
def _list_sql(wanted: GroupFilter, *, is_first: bool) -> str:
    value, kind = _SORTED[wanted.sort]
    place = "true" if is_first else f"(sort_value, number) < (%(at)s::{kind}, %(at_number)s)"
    # Only constants are put together here; every value is bound.
    return f"""
WITH {_COUNTED},
shown AS (
    SELECT *, {value} AS sort_value, count(*) OVER () AS matching, sum(open) OVER () AS all_open
    FROM found WHERE {_SHOWN[wanted.show]})
SELECT *, (SELECT count(*) FROM found WHERE open > 0 AND is_snoozed) AS all_snoozed
FROM shown WHERE {place} ORDER BY sort_value DESC, number DESC LIMIT %(limit)s
"""  # noqa: S608


def _values(wanted: GroupFilter) -> dict[str, Any]:
    if "\0" in f"{wanted.text}{wanted.topic}{wanted.group}":
        raise BadGroupQuery("a filter holds a NUL character")
    escaped = wanted.text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return {
        "text": f"%{escaped}%" if wanted.text else "",
        "topic": wanted.topic,
        "group": wanted.group,
        "number": None,
    }


def _fill(db: Any, rows: Sequence[Row], now: datetime) -> list[FailureGroup]:
    """Add windows and hours to groups, by two statements for all of them."""
    numbers, starts, hours = [row["number"] for row in rows], window_starts(now), spark_hours(now)
    db.execute(_WINDOWS, [*starts, min(starts), numbers])
    windows = {number: counts for number, *counts in db.fetchall()}
    db.execute(_HOURS, [hours[0], numbers])
    by_hour = {(number, at): n for number, at, n in db.fetchall()}
    return [
        _group(
            row,
            now,
            [
                Window(label=label, since=since, parked=parked)
                for (label, _), since, parked in zip(
                    SPANS, starts, windows.get(row["number"], [0] * len(SPANS)), strict=True
                )
            ],
            [(at, float(by_hour.get((row["number"], at), 0))) for at in hours],
        )
        for row in rows
    ]


def _group(row: Row, now: datetime, windows: Sequence[Window], hours: Sequence[tuple[datetime, float]]) -> FailureGroup:
    same = ("number", "fingerprint", "name", "handler", "error_class", "error_message", "open", "applied", "sent")
    said = ("discarded", "total", "owner", "note", "snoozed_until", "fixed_in", "fixed_at", "version", "changed_by")
    return FailureGroup(
        **{name: row[name] for name in (*same, *said, "changed_at")},
        failure_class=FailureClass(row["failure_class"]),
        state=judge_group(
            now=now,
            open_now=row["open"],
            first_seen_at=row["first_at"],
            last_seen_at=row["last_at"],
            fixed_at=row["fixed_at"],
            snoozed_until=row["snoozed_until"],
            last_hour=windows[0].parked,
            last_three_hours=windows[1].parked,
        ),
        first_seen_at=row["first_at"],
        last_seen_at=row["last_at"],
        windows=windows,
        hours=hours,
        merged=row["fingerprints"] - 1,
    )


def _member(row: Row) -> GroupMember:
    same = (
        "number",
        "fingerprint",
        "handler",
        "error_class",
        "error_message",
        "first_seen_at",
        "open",
        "total",
        "note",
    )
    return GroupMember(**{name: row[name] for name in same}, failure_class=FailureClass(row["failure_class"]))


def _now(db: Any) -> datetime:
    db.execute("SELECT clock_timestamp()")
    found: datetime = db.fetchone()[0]
    return found


def _dicts(db: Any) -> list[Row]:
    names = [column.name for column in db.description]
    return [dict(zip(names, row, strict=True)) for row in db.fetchall()]


def _write_cursor(row: Row, sort: GroupSort) -> str:
    value = row["sort_value"]
    text = json.dumps([sort.value, value.isoformat() if isinstance(value, datetime) else value, row["number"]])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(text: str, sort: GroupSort) -> tuple[object, int]:
    try:
        raw = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        of, value, number = json.loads(raw)
        is_time = _SORTED[sort][1] == "timestamptz"
        place: Any = datetime.fromisoformat(value).isoformat() if is_time else int(value)
        if of == sort.value and abs(int(number)) < 2**63 and (is_time or abs(place) < 2**63):
            return place, int(number)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadGroupQuery("this page link is damaged or from another version; start at the first page") from error
    raise BadGroupQuery("this page link is of another order of the list; start at the first page")
