"""`manage.py export_dead_letter ID`: the headers that say where a dead letter failed, or the record into a topic."""

import json
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.facade import ExportedLetter, NotExportable, export_dead_letter
from dlq.types import Family
from relay.facade import ForeignRecordNotSent, produce_foreign_record


class Command(BaseCommand):
    """Without --to nothing is sent, and nothing of what the dead letter holds is printed."""

    help = __doc__ or ""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", type=UUID, help="the dead letter's id")
        parser.add_argument("--family", choices=["spring", "connect"], default="spring", help="whose headers (spring)")
        parser.add_argument("--with-stack", action="store_true", help="add the frames of the failure")
        parser.add_argument("--to", metavar="TOPIC", help="send the record, byte for byte, to this topic")

    def handle(self, **options: Any) -> None:
        try:
            letter = export_dead_letter(
                options["id"], Family(options["family"]), with_stack=options["with_stack"]
            )  # fmt: skip
        except NotExportable as why:
            raise CommandError(f"{why}. Nothing was sent.", returncode=2) from why
        if options["to"]:
            self._send(options["to"], letter)
        self.stdout.write("\n".join(f"{name}: {_printable(value)}" for name, value in letter.added))
        self.stdout.write(f"and {len(letter.own)} headers of its own, which stay hidden here")

    def _send(self, topic: str, letter: ExportedLetter) -> None:
        try:
            produce_foreign_record(topic, key=letter.key, value=letter.value, headers=[*letter.own, *letter.added])
        except ForeignRecordNotSent as error:
            raise CommandError(f"{error}. It may have been sent or not; the dead letter stays as it is.") from error
        self.stdout.write(f"sent to {topic}")


def _printable(value: bytes | None) -> str:
    raw = value or b""
    text = raw.decode("utf-8", "replace")
    return json.dumps(text) if text.isprintable() else f"hex {raw.hex()}"
