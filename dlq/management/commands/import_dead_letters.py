"""`manage.py import_dead_letters TOPIC`: make dead letters of what a foreign dead-letter topic holds."""

import json
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from dlq.facade import ForeignImportError, ImportReport, import_dead_letters
from dlq.types import FAMILY_NAMES
from relay.facade import TopicNotRead

PROGRESS_EVERY_S = 2
EXIT_STOPPED = 130
GO_ON = "What was imported before stays; run the same command to go on."


class Command(BaseCommand):
    """Exit 0 when the topic was read to the end that it had at the start."""

    help = __doc__ or ""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("topic", help="the dead-letter topic, as Kafka names it")
        parser.add_argument("--group", default="", help="the consumer group where a record names none (foreign)")
        parser.add_argument("--from-start", action="store_true", help="read all of it again; nothing becomes two")
        parser.add_argument("--dry-run", action="store_true", help="read and say what would be imported; write nothing")
        parser.add_argument("--json", action="store_true", help="print the result as one JSON line")

    def handle(self, **options: Any) -> None:
        self._told_at = time.monotonic()
        try:
            report = import_dead_letters(
                options["topic"],
                group=options["group"],
                from_start=options["from_start"],
                dry_run=options["dry_run"],
                on_progress=self._tell,
            )
        except ForeignImportError as error:
            raise CommandError(f"{error}. Nothing was read.", returncode=2) from error
        except TopicNotRead as error:
            raise CommandError(f"{error}. {GO_ON}") from error
        except Error as error:
            raise CommandError(f"The database refused a batch: {type(error).__name__}. {GO_ON}") from error
        except KeyboardInterrupt:
            raise CommandError(f"Stopped. {GO_ON}", returncode=EXIT_STOPPED) from None
        self.stdout.write(_as_json(report) if options["json"] else _in_words(report))

    def _tell(self, report: ImportReport) -> None:
        if time.monotonic() - self._told_at < PROGRESS_EVERY_S:
            return
        self._told_at = time.monotonic()
        self.stderr.write(f"{report.read:,} of at most {report.to_read:,} read, {report.imported:,} new")
        self.stderr.flush()


def _in_words(report: ImportReport) -> str:
    done = "would be imported" if report.dry_run else "imported"
    lines = [f"{report.topic}: {report.read:,} read, {report.imported:,} {done}, {report.already_here:,} already here"]
    lines += [f"- {number:,} by {FAMILY_NAMES[family]}" for family, number in report.families.most_common()]
    if report.origin_unknown:
        lines.append(f"- {report.origin_unknown:,} with an origin that cannot be read in full; each says why")
    return "\n".join([*lines, *(f"Note: {remark}" for remark in report.remarks)])


def _as_json(report: ImportReport) -> str:
    said = {name: getattr(report, name) for name in ("topic", "dry_run", "read", "imported", "already_here")}
    families = {family.value: number for family, number in report.families.items()}
    more = {"origin_unknown": report.origin_unknown, "families": families, "remarks": report.remarks}
    return json.dumps({**said, **more})
