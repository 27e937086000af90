"""`manage.py setup`: bring database, roles and topics up to this version; safe to repeat, run before each start."""

import json
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from console.stack.private import write_private
from dlq.facade import list_groups
from relay.errors import TopicSetupError
from relay.facade import ensure_topics

BROKER_WITHIN_S = 90
TRY_AGAIN_AFTER_S = 0.5


class Command(BaseCommand):
    """Migrations, then groups and permissions, then topics (waiting for the broker)."""

    help = "Bring database, roles and topics up to this version: safe to repeat, run before each start."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--demo-users", action="store_true", help="make one user a role, passwords in logins.json")
        parser.add_argument("--groups-to", type=Path, help="write the consumer groups of this installation as JSON")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["groups_to"]:
            write_private(options["groups_to"], json.dumps([group.name for group in list_groups()]))
        call_command("migrate", interactive=False, verbosity=1)
        call_command("sync_roles")
        if options["demo_users"]:
            call_command("demo_users", quiet=True)
        made = self._ensure_topics()
        self.stdout.write(f"topics made: {', '.join(made) or 'none, all there'}")

    def _ensure_topics(self) -> list[str]:
        deadline = time.monotonic() + BROKER_WITHIN_S
        while True:
            try:
                return ensure_topics()
            except TopicSetupError as error:
                if time.monotonic() > deadline:
                    raise CommandError(f"Topics could not be made within {BROKER_WITHIN_S} s: {error}") from error
                self.stdout.write(f"waiting for the broker: {error}")
                time.sleep(TRY_AGAIN_AFTER_S)
