"""A dead letter as a record for a dead-letter topic: its exact bytes, with headers that say where it failed."""

from dataclasses import dataclass
from uuid import UUID

from django.conf import settings

from dlq.domain.export import EXPORT_FAMILIES, ExportFacts, Header, export_headers
from dlq.models import DeadLetter
from dlq.originals import decode_headers
from dlq.types import Family, Origin


class NotExportable(Exception):
    """This dead letter, or this family of headers, cannot be exported; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedLetter:
    """The record: key, value and its own headers byte for byte (all three are hidden content), and what was added."""

    key: bytes | None
    value: bytes | None
    own: list[Header]
    added: list[Header]


def export_dead_letter(dead_letter_id: UUID, family: Family, *, with_stack: bool = False) -> ExportedLetter:
    """Build the record of a dead letter; at most `DLQ_EXPORT_HEADER_BYTES` are added. Writes nothing.

    The place it tells is the first original one that is known in full, else where the record lies.

    Raises:
        NotExportable: there is no such dead letter, it never was a record of Kafka, or the family is only read.
    """
    if family not in EXPORT_FAMILIES:
        raise NotExportable(f"headers of {family.value} are read but not written; use spring or connect")
    found = DeadLetter.objects.filter(pk=dead_letter_id).first()
    if found is None:
        raise NotExportable(f"no dead letter has the id {dead_letter_id}")
    if found.origin == Origin.RELAY:
        raise NotExportable("the relay parked it before it was a record of Kafka, so it has no place to tell")
    facts = _facts(found, with_stack=with_stack)
    own, added = export_headers(
        decode_headers(found.original_headers) or (), facts, family, limit_bytes=settings.DLQ_EXPORT_HEADER_BYTES
    )
    return ExportedLetter(key=_bytes(found.original_key), value=_bytes(found.original_value), own=own, added=added)


def _facts(d: DeadLetter, *, with_stack: bool) -> ExportFacts:
    stop = d.stops.filter(topic__isnull=False, partition__isnull=False, offset__isnull=False).order_by("number").first()
    at = stop.timestamp if stop is not None else d.record_timestamp
    return ExportFacts(
        dead_letter=str(d.pk),
        topic=(stop.topic if stop else None) or d.topic,
        partition=d.partition if stop is None or stop.partition is None else stop.partition,
        offset=d.offset if stop is None or stop.offset is None else stop.offset,
        timestamp_ms=None if at is None else round(at.timestamp() * 1000),
        group=d.group,
        handler=d.handler,
        attempts=d.attempts,
        error_class=d.error_class,
        message=d.error_message,
        stack=d.stack if with_stack else "",
    )


def _bytes(stored: bytes | memoryview | None) -> bytes | None:
    return None if stored is None else bytes(stored)
