"""`manage.py outbox_connector`: print the Debezium connector that publishes the outbox by log tailing.

The configuration goes to stdout as JSON, what it needs goes to stderr. With --follow it moves the relay's places
behind the slot instead. When and how to switch: docs/log-tailing.md.
"""

import json
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from relay.connector import (
    ConnectorError,
    build_connector,
    build_statements,
    follow_slot,
    note_place,
    slot_behind_bytes,
)

LOOK_EVERY_S = 0.5
NEEDS = """It needs:
- wal_level=logical on the server (a restart), and a free slot and sender (max_replication_slots, max_wal_senders);
- a role with LOGIN, REPLICATION and SELECT on relay_outbox and its partitions; its password in the environment of
  Kafka Connect, with EnvVarConfigProvider switched on there;
- Debezium 2.7 or later; and these statements, once, at the moment that docs/log-tailing.md says:
"""


class Command(BaseCommand):
    """Print the connector's configuration, or follow its slot."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--name", default="signalbox-outbox", help="of the connector; names the slot, too")
        parser.add_argument(
            "--database-url", default="", help="as Kafka Connect reaches it; default: DATABASE_DIRECT_URL"
        )
        parser.add_argument("--follow", action="store_true", help="move the relay's places to what the slot confirmed")
        parser.add_argument("--timeout", type=float, default=60, help="seconds that --follow waits for the slot (60)")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - Django's signature
        try:
            if options["follow"]:
                self._follow(options["name"], options["timeout"])
            else:
                self._print(options["name"], options["database_url"] or settings.DATABASE_DIRECT_URL)
        except ConnectorError as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(f"The database refused: {str(error).strip()}") from error

    def _print(self, name: str, database_url: str) -> None:
        self.stdout.write(json.dumps(build_connector(name, database_url), indent=2))
        self.stderr.write(NEEDS + "".join(f"    {statement};\n" for statement in build_statements(name)))

    def _follow(self, name: str, timeout_s: float) -> None:
        place = note_place()
        deadline = time.monotonic() + timeout_s
        while slot_behind_bytes(name, place) > 0 and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
        follow_slot(name, place)
        self.stdout.write(f"the relay's places are at position {place.position:,} now")
