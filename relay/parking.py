"""Turn an outbox row that is given up into what the dead-letter queue takes (`relay.ports`)."""

import json
from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from relay.domain import envelope
from relay.errors import BadHeaders
from relay.ports import park_row
from relay.types import RowToPark

MALFORMED_HEADERS = "malformed-headers"
"""Own headers that cannot be read are kept under this name as they are stored."""


class GivenUp(Protocol):
    """Why a row is given up."""

    attempts: int
    error: str
    permanent: bool


def park(cursor: Any, given_up: GivenUp, columns: Sequence[Any]) -> None:
    """Park one row in the transaction of `cursor`; `columns` are those of the relay's reads."""
    position, shard, event_id, topic, key, _, event_type, headers, payload, content_type, published_ms = columns
    code, _, text = given_up.error.partition(": ")
    park_row(
        cursor,
        RowToPark(
            position=position,
            shard=shard,
            event_id=event_id,
            topic=topic,
            type=event_type,
            key=key,
            value=payload,
            headers=tuple(_headers(event_id, event_type, published_ms, content_type, headers)),
            published_ms=published_ms,
            attempts=given_up.attempts,
            code=code,
            error=text,
            permanent=given_up.permanent,
        ),
    )


def _headers(
    event_id: UUID, event_type: str, published_ms: int, content_type: str, stored: str | None
) -> list[envelope.Header]:
    try:
        own = envelope.load_headers(json.loads(stored or "[]"))
    except BadHeaders:
        own = [(MALFORMED_HEADERS, (stored or "").encode())]
    return envelope.build_headers(
        event_id=event_id, event_type=event_type, published_ms=published_ms, content_type=content_type, own=own
    )
