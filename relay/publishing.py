"""`publish()`: write events into the outbox, in the caller's transaction."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from uuid import UUID

import uuid_utils.compat
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from relay.domain import envelope
from relay.errors import BadKey, BadPayload, NotInTransaction, PublishError, RecordTooLarge
from relay.topics import get_topic
from relay.types import EventDraft, PublishedEvent, TopicSpec

_TYPE_CHARS = 200
_INSERT = """
INSERT INTO relay_outbox (id, topic, key, partition, type, headers, payload, content_type)
VALUES (%s, %s, %s, %s, %s, %s::jsonb, %s, %s) RETURNING position
"""
_INSERT_MANY = """
INSERT INTO relay_outbox (id, topic, key, partition, type, headers, payload, content_type)
SELECT id, topic, key, partition, type, headers::jsonb, payload, content_type
FROM unnest(%s::uuid[], %s::text[], %s::bytea[], %s::int[], %s::text[], %s::text[], %s::bytea[], %s::text[])
     WITH ORDINALITY AS new (id, topic, key, partition, type, headers, payload, content_type, n)
ORDER BY n RETURNING position
"""
_LOCK_KEY = "SELECT pg_advisory_xact_lock(hashtextextended('relay.strict ' || %s || ' ' || encode(%s, 'hex'), 0))"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    id: UUID
    topic: str
    key: bytes | None
    partition: int | None
    type: str
    headers: str
    payload: bytes | None
    content_type: str

    def columns(self) -> tuple[UUID | str | bytes | int | None, ...]:
        return (
            self.id, self.topic, self.key, self.partition, self.type, self.headers, self.payload, self.content_type,
        )  # fmt: skip


def publish(
    topic: str,
    *,
    key: str | bytes | int | UUID | None,
    type: str,  # noqa: A002 - the word of the design
    payload: object,
    headers: Mapping[str, envelope.HeaderValue] | Sequence[tuple[str, envelope.HeaderValue]] | None = None,
    partition: int | None = None,
    event_id: UUID | None = None,
    strict: bool = False,
) -> PublishedEvent:
    """Write one event into the outbox; the relay publishes it once the caller's transaction has committed.

    Order: events of one (topic, key) are published in the order in which they were written, provided that writers
    of one key are serialised. The aggregate's row lock does that; `strict=True` takes a lock on topic + key instead,
    held until the transaction ends.

    Args:
        topic: A declared topic.
        key: str (UTF-8), bytes, int (decimal digits) or UUID (36 characters): what must stay in order has the same
            key. None on purpose = no order.
        type: The event type, such as `refund.proposed`.
        payload: JSON-able value; bytes go out as they are; None is a tombstone.
        headers: Own headers: str, bytes or None values; order and duplicates are kept.
        partition: An explicit partition instead of the key's.
        event_id: An id of your own; a new UUIDv7 otherwise.
        strict: Serialise writers of this key.

    Raises:
        NotInTransaction: no transaction is open.
        UnknownTopic, BadKey, BadHeaders, BadPayload, RecordTooLarge: nothing was written.
    """
    _require_transaction()
    row = _build_row(
        EventDraft(
            topic=topic, key=key, type=type, payload=payload, headers=headers, partition=partition, event_id=event_id
        )
    )
    with connection.cursor() as cursor:
        if strict:
            _lock_key(cursor, row)
        cursor.execute(_INSERT, row.columns())
        (position,) = cursor.fetchone()
    return _published(row, position)


def publish_many(events: Iterable[EventDraft], *, strict: bool = False) -> list[PublishedEvent]:
    """Write many events in their order, in chunks of `PUBLISH_CHUNK_ROWS`; the same rules as `publish()`.

    All or none: when one is refused, none is written, also when the caller goes on with its transaction. With
    `strict`, keys are locked in sorted order, chunk by chunk.
    """
    _require_transaction()
    waiting = iter(events)
    published: list[PublishedEvent] = []
    with transaction.atomic():
        while chunk := [_build_row(draft) for draft in islice(waiting, settings.PUBLISH_CHUNK_ROWS)]:
            published += _insert_chunk(chunk, strict=strict)
    return published


def _insert_chunk(rows: list[_Row], *, strict: bool) -> list[PublishedEvent]:
    with connection.cursor() as cursor:
        if strict:
            for row in sorted({(r.topic, r.key): r for r in rows if r.key is not None}.values(), key=_lock_order):
                _lock_key(cursor, row)
        cursor.execute(_INSERT_MANY, [list(column) for column in zip(*(r.columns() for r in rows), strict=True)])
        positions = [position for (position,) in cursor.fetchall()]
    return [_published(row, position) for row, position in zip(rows, positions, strict=True)]


def _lock_order(row: _Row) -> tuple[str, bytes]:
    return row.topic, row.key or b""


def _lock_key(cursor: CursorWrapper, row: _Row) -> None:
    if row.key is None:
        raise BadKey("strict=True keeps the order of one key, so it needs a key.")
    cursor.execute(_LOCK_KEY, [row.topic, row.key])


def _published(row: _Row, position: int) -> PublishedEvent:
    return PublishedEvent(id=row.id, topic=row.topic, key=row.key, type=row.type, position=position)


def _require_transaction() -> None:
    if not connection.in_atomic_block:
        raise NotInTransaction(
            "publish() was called outside a transaction, so the event could go out without the change it tells of (or "
            "the change without the event). Wrap both in `with transaction.atomic():`."
        )


def _build_row(draft: EventDraft) -> _Row:
    spec = get_topic(draft.topic)
    _check_type(draft.type)
    _check_partition(spec, draft.partition)
    _check_event_id(draft.event_id)
    key = envelope.encode_key(draft.key)
    headers = envelope.normalise_headers(draft.headers, settings.PUBLISH_MAX_HEADERS)
    payload, content_type = envelope.encode_payload(draft.payload, DjangoJSONEncoder().default)
    event_id = draft.event_id or uuid_utils.compat.uuid7()
    _check_schema(spec, draft.type, payload, content_type)
    sent = envelope.build_headers(
        event_id=event_id, event_type=draft.type, published_ms=10**12, content_type=content_type, own=headers
    )
    _check_size(spec, envelope.count_bytes(key, payload, sent))
    return _Row(
        id=event_id,
        topic=spec.name,
        key=key,
        partition=draft.partition,
        type=draft.type,
        headers=envelope.store_headers(headers),
        payload=payload,
        content_type=content_type,
    )


def _check_type(event_type: object) -> None:
    # As narrow as consumers read it (dlq.domain.envelope): what is published must not be poison.
    is_text = isinstance(event_type, str) and 0 < len(event_type) <= _TYPE_CHARS and event_type.isprintable()
    if not is_text:
        raise PublishError(
            f"The event type must be a str of 1 to {_TYPE_CHARS} printable characters, such as 'refund.proposed'."
        )


def _check_partition(spec: TopicSpec, partition: object) -> None:
    if partition is None:
        return
    if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < 2**31:
        raise PublishError("partition must be None (the key decides) or a partition number from 0.")
    if partition >= spec.partitions:
        raise PublishError(
            f"Partition {partition} is beyond the topic {spec.name!r}, which is declared with {spec.partitions} (0 to "
            f"{spec.partitions - 1}). If it has more by now, raise partitions in its TopicSpec."
        )


def _check_event_id(event_id: object) -> None:
    if event_id is not None and not isinstance(event_id, UUID):
        raise PublishError(f"event_id must be a UUID, not {event_id.__class__.__name__}.")


def _check_schema(spec: TopicSpec, event_type: str, payload: bytes | None, content_type: str) -> None:
    schema = spec.schemas.get(event_type)
    if schema is None or payload is None:
        return
    if content_type != envelope.JSON_TYPE:
        raise BadPayload(f"{event_type!r} has a JSON Schema, so its payload must be a JSON value, not bytes.")
    try:
        _validator(json.dumps(schema, sort_keys=True)).validate(json.loads(payload))
    except ValidationError as error:
        # The message of a ValidationError quotes the payload; the place and the rule say enough.
        raise BadPayload(
            f"The payload of {event_type!r} does not fit its JSON Schema at {error.json_path}: {error.validator!r} "
            f"({str(error.validator_value)[:120]})."
        ) from None


@lru_cache(maxsize=1_000)
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema))


def _check_size(spec: TopicSpec, size: int) -> None:
    if size > spec.max_bytes:
        raise RecordTooLarge(
            f"Key, value and headers are {size:,} bytes; the topic {spec.name!r} takes {spec.max_bytes:,}. Store the "
            "large part elsewhere and publish a reference, or raise max_bytes here and max.message.bytes on the topic."
        )
