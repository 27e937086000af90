"""The inside of `manage.py smoke`: run against the stack of this data folder and print the JSON line."""

import json
import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.stack.data_dir import DataDir
from console.stack.supervisor import SupervisorClient


class Command(BaseCommand):
    """Exit 0 only if nothing was lost, doubled, inverted or seen though it was rolled back."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--seed", type=int, required=True)
        parser.add_argument("--began", type=float, required=True, help="when the stack began to start, in Unix seconds")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - Django's signature
        if not settings.DEMO_SMOKE:
            raise CommandError("`manage.py smoke_run` is the inside of `manage.py smoke`: call that one.")
        from console.demo.smoke.run import SmokeError, run_smoke

        supervisor = SupervisorClient(DataDir(settings.SIGNALBOX_DATA_DIR).socket)
        try:
            report = run_smoke(supervisor, seed=options["seed"], began=options["began"])
        except SmokeError as error:
            raise CommandError(f"The run stopped: {error}.") from error
        seconds = time.time() - options["began"]
        self.stdout.write(json.dumps(report.line(seconds)))
        for warning in report.warnings(seconds):
            self.stderr.write(warning)
        if faults := report.faults():
            self.stderr.write("\n".join(faults))
            sys.exit(1)
