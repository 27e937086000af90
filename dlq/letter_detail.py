"""One dead letter in full: where it came from, why it failed, and what happened to it since, in one timeline.

Nothing here returns a payload, key or header value: lengths and digests only.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from dlq.attempt_log import AttemptRow, list_attempts
from dlq.discarding import list_discards
from dlq.models import DeadLetter
from dlq.originals import decode_headers
from dlq.queries import ROW, make_row
from dlq.replay.reading import list_replays_of
from dlq.triage import find_group_of
from dlq.types import (
    AttemptOutcome,
    DeadLetterDetail,
    DeadLetterRow,
    DeadLetterState,
    Family,
    ForeignOrigin,
    Origin,
    PartDigest,
    ReplayItem,
    ReplayOutcome,
)
from relay.types import PartitionRef

_SIMILAR = """
SELECT count(*) FROM (SELECT FROM dlq_dead_letter
WHERE state = 'parked' AND fingerprint = %s AND id <> %s LIMIT %s) others
"""

# Imported ones whose first stop is that record, and the one that a group here parked there.
_LINKED = f"""
SELECT {ROW} FROM dlq_dead_letter WHERE id <> %(id)s AND id IN (
    SELECT dead_letter_id FROM dlq_foreign_stop
    WHERE topic = %(topic)s AND partition = %(partition)s AND log_offset = %(offset)s AND number = 0
    UNION ALL
    SELECT id FROM dlq_dead_letter
    WHERE group_name = %(group)s AND topic = %(topic)s AND partition = %(partition)s AND log_offset = %(offset)s
      AND origin = 'consumer')
ORDER BY parked_at DESC, id DESC LIMIT %(limit)s
"""  # noqa: S608 - a constant list of columns


_QUEUE = "SELECT id, head_id, letters FROM dlq_key WHERE lane = %s"


def get_dead_letter(dead_letter_id: UUID) -> DeadLetterDetail | None:
    """Return one dead letter with digests of its bytes; None when there is none."""
    found = DeadLetter.objects.filter(pk=dead_letter_id).first()
    if found is None:
        return None
    with connection.cursor() as cursor:
        cursor.execute(_SIMILAR, [found.fingerprint, found.pk, settings.DLQ_SIMILAR_COUNT_CAP])
        similar = cursor.fetchone()[0]
        key_id, head_id, letters = _queue(cursor, found)
    origins = _origins(found)
    return DeadLetterDetail(
        row=_as_row(found),
        published_at=found.published_at,
        record_timestamp=found.record_timestamp,
        topic_id=found.topic_id,
        leader_epoch=found.leader_epoch,
        stack=found.stack,
        key=_digest(found.original_key),
        value=_digest(found.original_value),
        headers=[(name, _digest(value)) for name, value in decode_headers(found.original_headers) or ()],
        timeline=_timeline(found, origins),
        similar=similar,
        origins=origins,
        linked=_linked(found, origins),
        failure_group=find_group_of(found.fingerprint),
        key_id=key_id,
        head_id=head_id,
        key_letters=letters,
    )


def _queue(cursor: Any, d: DeadLetter) -> tuple[UUID | None, UUID | None, int]:
    """The quarantined key that it stands in, with its head and how many it has."""
    if d.lane is None or d.queue_number is None or d.state != DeadLetterState.PARKED:
        return None, None, 0
    cursor.execute(_QUEUE, [d.lane])
    return cursor.fetchone() or (None, None, 0)


def _as_row(d: DeadLetter) -> DeadLetterRow:
    names = ("id", "state", "topic", "partition", "offset", "group", "handler", "event_id", "event_type", "key_label")
    failure = ("failure_class", "error_class", "error_message", "fingerprint", "attempts", "parked_at", "origin")
    queue = ("replays", "needs_human", "queue_number")
    return make_row([getattr(d, name) for name in names + failure + queue])


def _digest(part: bytes | memoryview | None) -> PartDigest:
    if part is None:
        return PartDigest(length=None, sha256=None)
    raw = bytes(part)
    return PartDigest(length=len(raw), sha256=hashlib.sha256(raw).hexdigest())


def _origins(d: DeadLetter) -> list[ForeignOrigin]:
    if d.origin != Origin.FOREIGN:
        return []
    return [
        ForeignOrigin(
            family=Family(stop.family),
            topic=stop.topic,
            partition=stop.partition,
            offset=stop.offset,
            timestamp=stop.timestamp,
            group=stop.group,
            details=[(label, said) for label, said in stop.details],
            complaints=stop.complaints,
        )
        for stop in d.stops.order_by("number")
    ]


def _linked(d: DeadLetter, origins: Sequence[ForeignOrigin]) -> list[DeadLetterRow]:
    """Other dead letters of the same original record, as far as its place is known."""
    place: ForeignOrigin | DeadLetter = origins[0] if origins else d
    if d.origin == Origin.RELAY or place.topic is None or place.partition is None or place.offset is None:
        return []
    values: dict[str, Any] = {"id": d.pk, "group": place.group, "limit": settings.DLQ_LINKED_ROWS}
    values |= {"topic": place.topic, "partition": place.partition, "offset": place.offset}
    with connection.cursor() as cursor:
        cursor.execute(_LINKED, values)
        return [make_row(r) for r in cursor.fetchall()]


def _timeline(d: DeadLetter, origins: Sequence[ForeignOrigin]) -> list[tuple[datetime, str]]:
    """What happened to the record, oldest first. What a query adds (tries, replays, discards) is bounded by it."""
    place = f"{d.topic}/{d.partition} at offset {d.offset}"
    steps: list[tuple[datetime | None, str]]
    if origins:
        steps = [(o.timestamp, f"time of the record {_place(o)}, as {o.family_name} tells") for o in origins]
        steps += [(d.record_timestamp, f"time of the record {place}"), (d.parked_at, f"imported from {d.topic}")]
    else:
        steps = [(d.published_at, "published"), (d.record_timestamp, f"written to {place}"), (d.parked_at, _parked(d))]
    steps += [*_tries(d), *_replays(d), *_discards(d)]
    return sorted(((at, words) for at, words in steps if at is not None), key=lambda step: step[0])


def _parked(d: DeadLetter) -> str:
    if not d.attempts and d.queue_number is not None:
        return f"parked for {d.group} behind the head of its key, without a try"
    return f"parked by {d.group} after {d.attempts} {'try' if d.attempts == 1 else 'tries'}"


def _tries(d: DeadLetter) -> list[tuple[datetime, str]]:
    place = PartitionRef(d.topic, d.partition)
    return [(row.at, _try_words(row)) for row in list_attempts(d.group, place, d.offset, d.topic_id)]


def _try_words(row: AttemptRow) -> str:
    if row.outcome is AttemptOutcome.APPLIED:
        return f"try {row.number}: applied"
    after = f"; tried again after {row.wait_s:,.1f} s" if row.wait_s is not None else ""
    return f"try {row.number} failed: {row.error_class} ({row.failure_class}){after}"


def _replays(d: DeadLetter) -> list[tuple[datetime | None, str]]:
    return [(item.settled_at, _replay_words(item)) for item in list_replays_of(d.pk)]


def _replay_words(item: ReplayItem) -> str:
    words = f"replay {str(item.job_id)[-8:]}: {item.outcome.value}"
    if item.outcome is not ReplayOutcome.FAILED:
        return f"{words}, {item.why}" if item.why else words
    same = "" if item.same_error is None else ", the same error" if item.same_error else ", another error"
    return f"{words} again: {item.error_class}{same}"


def _discards(d: DeadLetter) -> list[tuple[datetime | None, str]]:
    steps: list[tuple[datetime | None, str]] = []
    for found in list_discards(d.pk):
        others = f", with {found.letters - 1:,} others" if found.letters > 1 else ""
        second = f", confirmed by {found.second}" if found.second else ""
        steps.append((found.discarded_at, f"discarded by {found.actor}{second}{others}: {found.reason}"))
        steps.append((found.restored_at, f"restored by {found.restored_by}: {found.restore_reason}"))
    return steps


def _place(o: ForeignOrigin) -> str:
    return f"{o.topic}/{o.partition} at offset {o.offset}" if o.is_known else "at a place that is not known"
