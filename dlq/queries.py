"""Reads of the dead-letter queue. Nothing here returns a payload, key or header value: lengths and digests only.

Errors: BadQuery <- BadCursor | BadFilter, for input that a person or a link got wrong.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from dlq.triage import list_fingerprints
from dlq.types import (
    DeadLetterFilter,
    DeadLetterPage,
    DeadLetterRow,
    DeadLetterState,
    DlqStatus,
    FailureClass,
    LetterSort,
    Origin,
)

MAX_PAGE_ROWS = 500

ROW = """id, state, topic, partition, log_offset, group_name, handler, event_id, event_type, key_label,
 failure_class, error_class, error_message, fingerprint, attempts, parked_at, origin, replays, needs_human,
 queue_number"""

# One index probe or a handful of small rows each; none scans dead letters. `now` is the database clock.
_STATUS = """
SELECT clock_timestamp(),
  (SELECT extract(epoch FROM clock_timestamp() - min(parked_at))::float FROM dlq_dead_letter WHERE state = 'parked'),
  (SELECT coalesce(sum(parked), 0)::bigint FROM dlq_parked_bucket
   WHERE minute > date_trunc('minute', clock_timestamp()) - interval '1 hour'),
  (SELECT coalesce(sum(duplicates), 0)::bigint FROM dlq_counter),
  (SELECT count(*) FROM (SELECT FROM dlq_applied
   WHERE applied_at > clock_timestamp() - make_interval(secs => %s) LIMIT %s) recent),
  EXISTS (SELECT FROM dlq_applied)
"""
_OPEN = """
SELECT topic, group_name, sum(open)::bigint AS open FROM dlq_counter
GROUP BY topic, group_name HAVING sum(open) > 0 ORDER BY open DESC, topic, group_name
"""


class BadQuery(ValueError):
    """What was asked for cannot be read; the text says what is wrong."""


class BadCursor(BadQuery):
    """The page link is not one of ours, or was cut; go back to the first page."""


class BadFilter(BadQuery):
    """A filter's value cannot be; the text says which."""


@dataclass(frozen=True, slots=True)
class _Order:
    """What the list is sorted by: columns that together name one place, all in one direction, with their types."""

    columns: tuple[tuple[str, str], ...]
    falls: bool

    def sort_sql(self, *, back: bool) -> str:
        direction = "DESC" if self.falls is not back else "ASC"
        return ", ".join(f"{name} {direction}" for name, _ in self.columns)

    def beyond_sql(self, *, back: bool) -> str:
        names = ", ".join(name for name, _ in self.columns)
        values = ", ".join(f"%s::{kind}" for _, kind in self.columns)
        return f"({names}) {'<' if self.falls is not back else '>'} ({values})"


_TIME = (("parked_at", "timestamptz"), ("id", "uuid"))
_ORDERS: Mapping[LetterSort, _Order] = {
    LetterSort.NEWEST: _Order(_TIME, falls=True),
    LetterSort.OLDEST: _Order(_TIME, falls=False),
    LetterSort.TRIES: _Order((("attempts", "integer"), *_TIME), falls=True),
    LetterSort.PLACE: _Order(
        (("topic", "text"), ("partition", "integer"), ("log_offset", "bigint"), ("id", "uuid")), falls=False
    ),
}


@dataclass(frozen=True, slots=True)
class _Cursor:
    """A place in the list: rows after it in the order, or before it (`back`)."""

    sort: LetterSort
    back: bool
    values: tuple[Any, ...]


def get_dlq_status() -> DlqStatus:
    """Depth, age and rates for the Now page; counts are exact, the rate covers `DLQ_RATE_WINDOW_S`."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN)
        by_topic_group = tuple((topic, group, int(count)) for topic, group, count in cursor.fetchall())
        cursor.execute(_STATUS, [settings.DLQ_RATE_WINDOW_S, settings.DLQ_RATE_COUNT_CAP])
        as_of, oldest_age_s, parked, duplicates, recent, has_applied = cursor.fetchone()
    return DlqStatus(
        as_of=as_of,
        open=sum(count for _, _, count in by_topic_group),
        parked_last_hour=parked,
        oldest_age_s=oldest_age_s,
        by_topic_group=by_topic_group,
        applied_per_s=recent / settings.DLQ_RATE_WINDOW_S if has_applied else None,
        duplicates_total=duplicates,
    )


def list_dead_letters(
    wanted: DeadLetterFilter, *, cursor: str | None = None, limit: int, sort: LetterSort = LetterSort.NEWEST
) -> DeadLetterPage:
    """Return one page in the order `sort`; `cursor` comes from a page of that order and works both ways.

    Raises:
        BadCursor: the cursor is not one that a page of this order gave out.
        BadFilter: a state that does not exist, or text that no row can hold.
    """
    place = _read_cursor(cursor, sort) if cursor else None
    limit = max(1, min(limit, MAX_PAGE_ROWS))
    sql, values = build_list_query(wanted, place, limit + 1, sort)
    with connection.cursor() as db:
        db.execute("SELECT clock_timestamp()")
        as_of = db.fetchone()[0]
        db.execute(sql, values)
        found = [make_row(r) for r in db.fetchall()]
    has_more, rows = len(found) > limit, found[:limit]
    goes_back = place is not None and place.back
    if goes_back:
        rows.reverse()
    has_previous = has_more if goes_back else place is not None
    has_next = True if goes_back else has_more
    return DeadLetterPage(
        as_of=as_of,
        rows=rows,
        next_cursor=_write_cursor(rows[-1], sort, back=False) if rows and has_next else None,
        previous_cursor=_write_cursor(rows[0], sort, back=True) if rows and has_previous else None,
    )


def build_list_query(
    wanted: DeadLetterFilter, place: _Cursor | None, limit: int, sort: LetterSort = LetterSort.NEWEST
) -> tuple[str, list[Any]]:
    """Return the statement of one page; it must stay on a keyset index (there is an EXPLAIN test).

    The indexes begin with the state. So any state, or a failure group of several fingerprints, is read as one short
    list for each of them, and their heads are merged.
    """
    states = [_known_state(wanted.state)] if wanted.state else [state.value for state in DeadLetterState]
    fingerprints = None if wanted.failure_group is None else list_fingerprints(wanted.failure_group)
    where, values = _conditions(wanted)
    order = _ORDERS[sort]
    if place is not None:
        where.append(order.beyond_sql(back=place.back))
        values += place.values
    ordered = f"ORDER BY {order.sort_sql(back=place is not None and place.back)} LIMIT %s"
    # Only fixed fragments are put together here; every value is bound.
    if len(states) == 1 and (fingerprints is None or len(fingerprints) == 1):
        where.insert(0, f"state = '{states[0]}'")
        if fingerprints:
            where.insert(0, "fingerprint = %s")
        condition = " AND ".join(where)
        return f"SELECT {ROW} FROM dlq_dead_letter WHERE {condition} {ordered}", [  # noqa: S608
            *(fingerprints or ()),
            *values,
            limit,
        ]
    lists, picked = "unnest(%s::text[]) AS of_state", "state = of_state"
    if fingerprints is not None:
        lists += " CROSS JOIN unnest(%s::text[]) AS of_fingerprint"
        picked += " AND fingerprint = of_fingerprint"
    condition = " AND ".join([picked, *where])
    return (
        f"SELECT {ROW} FROM (SELECT letter.* FROM {lists} CROSS JOIN LATERAL ("  # noqa: S608
        f"SELECT {ROW} FROM dlq_dead_letter WHERE {condition} {ordered}) letter) letters {ordered}"
    ), [states, *([] if fingerprints is None else [fingerprints]), *values, limit, limit]


def read_rows(ids: Sequence[UUID]) -> Mapping[UUID, DeadLetterRow]:
    """Return the lines of these dead letters, by id; the caller bounds how many."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {ROW} FROM dlq_dead_letter WHERE id = ANY(%s)", [list(ids)])  # noqa: S608 - a constant
        return {row.id: row for row in map(make_row, cursor.fetchall())}


def _conditions(wanted: DeadLetterFilter) -> tuple[list[str], list[Any]]:
    """All of a filter but its state and failure group, which choose the index."""
    where: list[str] = []
    values: list[Any] = []
    texts: Mapping[str, str] = {
        "group_name": wanted.group,
        "topic": wanted.topic,
        "event_type": wanted.event_type,
        "error_class": wanted.error_class,
        "fingerprint": wanted.fingerprint,
        "key_label": wanted.key_label,
    }
    for column, text in texts.items():
        if "\0" in text:
            raise BadFilter(f"the filter on {column.removesuffix('_name')} holds a NUL character")
        if text:
            where.append(f"{column} = %s")
            values.append(text)
    for condition, moment in (("parked_at >= %s", wanted.since), ("parked_at < %s", wanted.until)):
        if moment is not None:
            where.append(condition)
            values.append(moment)
    if wanted.replays:
        where.append("replays > 0 AND replays >= %s")  # the first part names the partial index
        values.append(wanted.replays)
    if wanted.needs_human:
        where.append("needs_human")
    return where, values


def _known_state(state: str) -> str:
    try:
        return DeadLetterState(state).value
    except ValueError:
        known = ", ".join(s.value for s in DeadLetterState)
        raise BadFilter(f'there is no state "{state}"; states are {known}') from None


def _write_cursor(row: DeadLetterRow, sort: LetterSort, *, back: bool) -> str:
    fields = {"log_offset": "offset"}
    values = [str(getattr(row, fields.get(name, name))) for name, _ in _ORDERS[sort].columns]
    text = json.dumps(["back" if back else "on", sort.value, *values])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(text: str, sort: LetterSort) -> _Cursor:
    try:
        raw = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        direction, of, *values = json.loads(raw)
        back = {"back": True, "on": False}[direction]
        columns = _ORDERS[LetterSort(of)].columns
        place = tuple(_READ[kind](value) for (_, kind), value in zip(columns, values, strict=True))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, binascii.Error) as error:
        raise BadCursor("this page link is damaged or from another version; start at the first page") from error
    if of != sort.value:
        raise BadCursor("this page link is of another order of the list; start at the first page")
    return _Cursor(sort, back, place)


def _bounded(bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise ValueError(text)
        return number

    return read


def _text(text: str) -> str:
    if not isinstance(text, str) or "\0" in text:
        raise ValueError("not a text that a row can hold")
    return text


_READ: Mapping[str, Callable[[str], Any]] = {
    "timestamptz": lambda text: datetime.fromisoformat(text).astimezone(UTC),
    "uuid": UUID,
    "integer": _bounded(32),
    "bigint": _bounded(64),
    "text": _text,
}


def make_row(values: Sequence[Any]) -> DeadLetterRow:
    """A line of the list from the columns of `ROW`."""
    (row_id, state, topic, partition, offset, group, handler, event_id, event_type, key_label, *rest) = values
    failure_class, error_class, error_message, fingerprint, attempts, parked_at, origin, *queue = rest
    replays, needs_human, queue_number = queue
    return DeadLetterRow(
        id=row_id,
        state=DeadLetterState(state),
        topic=topic,
        partition=partition,
        offset=offset,
        group=group,
        handler=handler,
        event_id=event_id,
        event_type=event_type,
        key_label=key_label,
        failure_class=FailureClass(failure_class),
        error_class=error_class,
        error_message=error_message,
        fingerprint=fingerprint,
        attempts=attempts,
        parked_at=parked_at,
        origin=Origin(origin),
        replays=replays,
        needs_human=needs_human,
        is_behind=queue_number is not None and attempts == 0,
    )
