"""From a record's bytes to an event. Pure.

Errors: Undecodable, whose text is fixed: it names the header and the rule, never a value.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

from dlq.types import Event
from relay.types import ConsumerRecord

EVENT_ID, EVENT_TYPE, PUBLISHED_AT, TRACEPARENT = "event-id", "event-type", "published-at", "traceparent"
TYPE_LIMIT = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Decode = Literal["json", "bytes"]


class Undecodable(Exception):
    """The record is not an event; its text says which rule it breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the headers say."""

    event_id: UUID
    event_type: str
    published_at: datetime | None
    traceparent: str | None


def read_envelope(record: ConsumerRecord) -> Envelope:
    """Read the headers of an event.

    Raises:
        Undecodable: a header is missing, twice there, null or malformed.
    """
    if record.headers is None:
        raise Undecodable("a header name is not UTF-8, so the headers cannot be read")
    return Envelope(
        event_id=_event_id(record),
        event_type=_event_type(record),
        published_at=_published_at(record),
        traceparent=_traceparent(record),
    )


def find_event_id(record: ConsumerRecord) -> UUID | None:
    """Return the event id of a record that may be broken in other ways."""
    try:
        return _event_id(record)
    except Undecodable:
        return None


def find_event_type(record: ConsumerRecord) -> str:
    """Return the event type of a record that may be broken in other ways, or ""."""
    try:
        return _event_type(record)
    except Undecodable:
        return ""


def read_event(record: ConsumerRecord, envelope: Envelope, decode: Decode) -> Event:
    """Build the event that a handler gets.

    Raises:
        Undecodable: the value is not JSON although the handler reads JSON.
    """
    return Event(
        id=envelope.event_id,
        type=envelope.event_type,
        topic=record.place.topic,
        partition=record.place.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        payload=_payload(record.value) if decode == "json" else None,
        headers=record.headers or (),
        published_at=envelope.published_at,
        traceparent=envelope.traceparent,
    )


def _payload(value: bytes | None) -> object:
    if value is None:
        return None
    if not value:
        raise Undecodable("the value is empty, which is not JSON (a tombstone has no value at all)")
    try:
        return json.loads(value.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise Undecodable("the value is not UTF-8") from None
    except RecursionError:
        raise Undecodable("the value is JSON nested too deeply") from None
    except ValueError:
        raise Undecodable("the value is not JSON") from None


def _refuse_constant(_: str) -> object:
    raise ValueError("NaN and Infinity are not JSON")


def _single(record: ConsumerRecord, name: str) -> bytes | None:
    """Return the value of the one header of that name; None when there is none."""
    found = [value for header, value in record.headers or () if header == name]
    if not found:
        return None
    if len(found) > 1:
        raise Undecodable(f"the header {name} is there {len(found)} times; which one counts is not defined")
    if found[0] is None:
        raise Undecodable(f"the header {name} is null")
    return found[0]


def _event_id(record: ConsumerRecord) -> UUID:
    raw = _single(record, EVENT_ID)
    if raw is None:
        raise Undecodable("the header event-id is missing, so a repeat could not be told from a new event")
    try:
        return UUID(raw.decode("ascii"))
    except ValueError:
        raise Undecodable("the header event-id is not a UUID") from None


def _event_type(record: ConsumerRecord) -> str:
    raw = _single(record, EVENT_TYPE)
    if raw is None:
        raise Undecodable("the header event-type is missing, so no handler can be chosen")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Undecodable("the header event-type is not UTF-8") from None
    if not text or len(text) > TYPE_LIMIT or not text.isprintable():
        raise Undecodable(f"the header event-type must be 1 to {TYPE_LIMIT} printable characters")
    return text


def _published_at(record: ConsumerRecord) -> datetime | None:
    raw = _single(record, PUBLISHED_AT)
    if raw is None:
        return None
    if not raw.isdigit() or len(raw) > 15:
        raise Undecodable("the header published-at is not a count of milliseconds since 1970")
    try:
        return _EPOCH + timedelta(milliseconds=int(raw))
    except OverflowError:
        raise Undecodable("the header published-at is beyond the calendar") from None


def _traceparent(record: ConsumerRecord) -> str | None:
    """Trace context is a courtesy: what cannot be read is left out."""
    found = [value for name, value in record.headers or () if name == TRACEPARENT and value]
    return found[0].decode("ascii", "ignore")[:55] if len(found) == 1 else None
