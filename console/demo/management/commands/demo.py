"""`manage.py demo`: show or change how the returns pipeline runs, or be its traffic (`--run`)."""

import signal
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.demo.rates import RatesError, bounds, change_rates, read_rates
from console.demo.traffic import Traffic
from relay.facade import HeartbeatThread, process_name
from relay.types import Role

HELP = {
    "rate": "claims a second",
    "poison": "share of claims that no handler can work with",
    "malformed": "share of records from a foreign producer that are no events",
    "duplicates": "share of claims whose event is published twice under one id",
    "slow": "share of claims whose triage takes longer",
    "rollbacks": "share of claims whose transaction rolls back",
    "triage_ms": "milliseconds of one simulated model call",
    "seed": "which invented world: customers and model answers",
}


class Command(BaseCommand):
    """Without options: print the rates. With rates: change them while the demo runs. `--run`: make the traffic."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--run", action="store_true", help="make traffic until stopped (SIGTERM or Ctrl-C)")
        for name, meaning in HELP.items():
            kind = int if name in {"triage_ms", "seed"} else float
            lowest, highest = bounds(name)
            parser.add_argument(
                f"--{name.replace('_', '-')}", type=kind, help=f"{meaning} ({lowest:g} to {highest:g})", metavar="N"
            )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - Django's signature
        changes = {name: options[name] for name in HELP if options[name] is not None}
        if changes:
            self._change(changes)
        elif not options["run"]:
            self.stdout.write(str(read_rates()))
        if options["run"]:
            run_traffic()

    def _change(self, changes: dict[str, float]) -> None:
        try:
            before, after = change_rates(changes)
        except RatesError as error:
            raise CommandError(f"Nothing was changed: {error}.") from error
        self.stdout.write(f"before  {before}\nafter   {after}")


def run_traffic() -> None:
    """Be the traffic process until SIGTERM or SIGINT; transactions that are open are finished."""
    traffic = Traffic()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: traffic.stop())
    heartbeat = HeartbeatThread(Role.DEMO, process_name(Role.DEMO), traffic.describe)
    heartbeat.start()
    try:
        traffic.run()
    finally:
        heartbeat.stop()
