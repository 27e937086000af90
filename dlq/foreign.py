"""Import of foreign dead-letter topics: each record becomes one dead letter here, however often it is read.

    records -> batch -> ONE transaction: dead letters with their stops, the counters, how far each partition is

A kill between any two lines leaves whole batches; the next run goes on behind the last of them. Reading a record again
changes nothing: (topic, topic id, partition, offset) is unique among imported ones.

Errors: ForeignImportError <- BadImport; what Kafka refuses is `relay.facade.TopicNotRead`.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from dlq.domain.failure import Failure
from dlq.domain.fingerprint import fingerprint
from dlq.domain.foreign import PAYLOAD_LABEL, ForeignLetter, read_foreign_letter
from dlq.models import GROUP_LIMIT
from dlq.services import count, keep_stops, park_foreign, remember_position, remembered_position
from dlq.signals import dead_letters_changed
from dlq.types import CopiedPayload, Family, ForeignOrigin
from relay.facade import Backlog, open_backlog
from relay.types import ConsumerRecord, PartitionRef

FOREIGN_GROUP = "foreign"
"""What stands for the group where the headers name none."""
IMPORT_POSITION = "(import)"
"""Whose positions the import's own are, in the table of the groups' positions."""

_HERE = """
SELECT count(*) FROM unnest(%s::int[], %s::bigint[]) AS wanted (partition, log_offset)
WHERE EXISTS (
    SELECT FROM dlq_dead_letter d
    WHERE d.origin = 'foreign' AND d.topic = %s AND d.topic_id IS NOT DISTINCT FROM %s
      AND d.partition = wanted.partition AND d.log_offset = wanted.log_offset)
"""


# A share group copies no key and no value unless told to; a copy of ours says what it has of the payload.
_BARE = """
SELECT d.id FROM dlq_dead_letter d
WHERE d.id = ANY(%s) AND d.origin = 'foreign' AND d.original_value IS NULL AND EXISTS (
    SELECT FROM dlq_foreign_stop s
    WHERE s.dead_letter_id = d.id AND (
        (s.family = 'share-group' AND d.original_key IS NULL)
        OR (s.family = 'signalbox' AND s.details @> ANY(%s::jsonb[]))))
"""


class ForeignImportError(Exception):
    """Root of what an import may refuse."""


class BadImport(ForeignImportError):
    """The import was asked for wrongly; nothing was read."""


@dataclass(slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do (`dry_run`). `remarks` are sentences about what is missing or odd."""

    topic: str
    dry_run: bool
    to_read: int
    read: int = 0
    imported: int = 0
    already_here: int = 0
    origin_unknown: int = 0
    families: Counter[Family] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)


Letters = Sequence[tuple[ConsumerRecord, ForeignLetter]]
OnProgress = Callable[[ImportReport], None]


def import_dead_letters(
    topic: str,
    *,
    group: str = "",
    from_start: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> ImportReport:
    """Import what a foreign dead-letter topic holds now, from behind the last import, or from its start.

    `group` stands where the headers name none. Several imports at once do no harm. `on_progress` is called after each
    batch (`DLQ_IMPORT_BATCH_RECORDS`, `DLQ_IMPORT_BATCH_BYTES`), with the report so far.

    Raises:
        BadImport: the group cannot be a group's name.
        TopicNotRead: the topic cannot be read (on); what was imported before stays.
    """
    fallback = _check_group(group) or FOREIGN_GROUP
    with open_backlog(topic) as backlog:
        remarks: list[str] = []
        starts = {partition: _start(backlog, partition, remarks, from_start) for partition in sorted(backlog.spans)}
        to_read = sum(max(0, backlog.spans[partition].end - start) for partition, start in starts.items())
        report = ImportReport(topic=topic, dry_run=dry_run, to_read=to_read, remarks=remarks)
        for batch in _batches(backlog.read(starts)):
            letters = [(record, _read_letter(record)) for record in batch]
            new = _count_new(backlog, batch) if dry_run else _keep(backlog, letters, fallback)
            _add_up(report, letters, new)
            if on_progress is not None:
                on_progress(report)
        if not dry_run:
            _remember(
                backlog, {partition: max(start, backlog.spans[partition].end) for partition, start in starts.items()}
            )
    return report


def find_without_payload(ids: Collection[UUID]) -> set[UUID]:
    """Return those of these dead letters whose payload is unavailable: their dead-letter topic never had it."""
    missing = [json.dumps([[PAYLOAD_LABEL, word.value]]) for word in (CopiedPayload.WITHHELD, CopiedPayload.SHED)]
    with connection.cursor() as cursor:
        cursor.execute(_BARE, [list(ids), missing])
        return {letter for (letter,) in cursor.fetchall()}


def _check_group(group: str) -> str:
    if len(group) > GROUP_LIMIT or not group.isprintable():
        raise BadImport(f"the group's name must be at most {GROUP_LIMIT} printable characters")
    return group


def _start(backlog: Backlog, partition: int, remarks: list[str], from_start: bool) -> int:
    """Where reading starts; what was deleted or cut off since the last import is said."""
    first, end = backlog.spans[partition]
    place = PartitionRef(backlog.topic, partition)
    wanted = None if from_start else remembered_position(IMPORT_POSITION, place, backlog.topic_id)
    if wanted is None:
        return first
    if wanted < first:
        remarks.append(f"partition {partition}: offsets {wanted} to {first - 1} were deleted before they were imported")
        return first
    if wanted > end:
        remarks.append(
            f"partition {partition}: the last import ended at offset {wanted}, but the partition ends at {end}; "
            "use --from-start if it was written anew"
        )
    return wanted


def _batches(records: Iterable[ConsumerRecord]) -> Iterator[list[ConsumerRecord]]:
    batch: list[ConsumerRecord] = []
    size_bytes = 0
    for record in records:
        batch.append(record)
        size_bytes += record.size_bytes
        if len(batch) >= settings.DLQ_IMPORT_BATCH_RECORDS or size_bytes >= settings.DLQ_IMPORT_BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _read_letter(record: ConsumerRecord) -> ForeignLetter:
    return read_foreign_letter(record.headers, topic=record.place.topic, frames_limit=settings.DLQ_STACK_FRAMES)


def _keep(backlog: Backlog, letters: Letters, fallback: str) -> int:
    """Write a batch in one transaction; return how many of it are new.

    In the order of places, so that two imports of one topic never wait for each other at once.
    """
    opened: Counter[str] = Counter()
    stops: dict[UUID, Sequence[ForeignOrigin]] = {}
    with transaction.atomic():
        for record, letter in sorted(letters, key=lambda one: (one[0].place, one[0].offset)):
            group = letter.group or fallback
            new = park_foreign(group, letter.handler, record, _describe(letter), topic_id=backlog.topic_id)
            if new is not None:
                stops[new] = letter.origins
                opened[group] += 1
        keep_stops(stops)
        _remember(backlog, {record.place.partition: record.offset + 1 for record, _ in letters})
        for group in sorted(opened):
            count(group, backlog.topic, 0, opened=opened[group], parked=opened[group])
        transaction.on_commit(lambda: dead_letters_changed.send_robust(sender=ImportReport))
    return opened.total()


def _count_new(backlog: Backlog, batch: Sequence[ConsumerRecord]) -> int:
    partitions, offsets = [r.place.partition for r in batch], [r.offset for r in batch]
    with connection.cursor() as cursor:
        cursor.execute(_HERE, [partitions, offsets, backlog.topic, backlog.topic_id])
        return len(batch) - int(cursor.fetchone()[0])


def _remember(backlog: Backlog, next_offsets: dict[int, int]) -> None:
    for partition, next_offset in sorted(next_offsets.items()):
        remember_position(IMPORT_POSITION, PartitionRef(backlog.topic, partition), backlog.topic_id, next_offset)


def _describe(letter: ForeignLetter) -> Failure:
    return Failure(
        failure_class=letter.failure_class,
        error_class=letter.error_class,
        message=letter.message,
        stack="\n".join(letter.frames),
        fingerprint=fingerprint(
            handler=letter.handler,
            error_class=letter.error_class,
            message=letter.text,
            frame=letter.frames[-1] if letter.frames else "",
            secret=settings.SIGNALBOX_KEY_LABEL_SECRET,
        ),
        attempts=letter.attempts,
    )


def _add_up(report: ImportReport, letters: Letters, new: int) -> None:
    report.read += len(letters)
    report.imported += new
    report.already_here += len(letters) - new
    report.origin_unknown += sum(not letter.origins[0].is_known for _, letter in letters)
    report.families.update(letter.origins[0].family for _, letter in letters)
