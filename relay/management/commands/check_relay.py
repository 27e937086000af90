"""`manage.py check_relay`: prove on this database and broker that nothing is lost and no key's order is broken.

Writers publish in concurrent transactions (a row lock a key, random delays, 5 % rollbacks, savepoints, one of three
seconds) while relay processes are killed with SIGKILL at random. Then the topic is read from its begin. It leaves the
database as it found it, but for the rows in the append-only outbox, which its retention removes.
"""

import json
import signal
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from relay.check.relays import RelayDied
from relay.check.run import Plan, Report, run_check
from relay.errors import RelayError

MOST = {"rows": 10_000_000, "keys": 1_000_000, "writers": 64, "relays": 16, "kills": 10_000}
LEAST = {"rows": 1, "keys": 1, "writers": 1, "relays": 1, "kills": 0}


class Command(BaseCommand):
    """Exit 0 only if nothing was lost, out of order or unknown, and everything was drained in time."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--topic", help="publish to this existing topic; default: one of its own, deleted again")
        parser.add_argument("--rows", type=int, default=20_000, help="rows to commit, at least (20000)")
        parser.add_argument("--keys", type=int, default=500, help="keys they are spread over (500)")
        parser.add_argument("--writers", type=int, default=8, help="threads that write at once (8)")
        parser.add_argument("--relays", type=int, default=3, help="relay processes to start (3)")
        parser.add_argument("--kills", type=int, help="how often one is killed with SIGKILL (10; 0 with theirs)")
        parser.add_argument("--no-start-relays", action="store_true", help="use the relays that run already")
        parser.add_argument("--seed", type=int, default=1, help="which schedule of keys, delays, rollbacks and kills")
        parser.add_argument("--timeout", type=float, default=900, help="seconds for writing and draining (900)")
        parser.add_argument("--json", action="store_true", help="print the verdict as one JSON line")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - Django's signature
        plan = _plan(options)
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            report = run_check(plan, self._tell)
        except (RelayError, RelayDied) as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(f"The database refused the check: {str(error).strip()}") from error
        finally:
            signal.signal(signal.SIGTERM, before)
        self.stdout.write(json.dumps(report.as_dict()) if options["json"] else _in_words(report))
        if report.faults:
            sys.exit(1)

    def _tell(self, text: str) -> None:
        self.stderr.write(text)
        self.stderr.flush()


def _plan(options: dict[str, Any]) -> Plan:
    own = not options["no_start_relays"]
    kills = options["kills"] if options["kills"] is not None else 10 * own
    if kills and not own:
        raise CommandError("--kills needs relays of the check's own: leave --no-start-relays out, or say --kills 0.")
    counts = {name: options[name] for name in ("rows", "keys", "writers", "relays")} | {"kills": kills}
    for name, value in counts.items():
        if not LEAST[name] <= value <= MOST[name]:
            raise CommandError(f"--{name} must be from {LEAST[name]:,} to {MOST[name]:,}, not {value:,}.")
    if not options["timeout"] > 0:
        raise CommandError("--timeout must be more than 0 seconds.")
    return Plan(
        topic=options["topic"],
        rows=counts["rows"],
        keys=counts["keys"],
        writers=counts["writers"],
        relays=counts["relays"] if own else 0,
        kills=kills,
        seed=options["seed"],
        timeout_s=options["timeout"],
    )


def _in_words(report: Report) -> str:
    verdict, plan = report.verdict, report.plan
    relays = f"{plan.relays} relays killed {report.kills} times" if plan.relays else "the relays that run here"
    text = (
        f"{verdict.committed:,} rows of {plan.keys:,} keys by {plan.writers} writers through {relays}, "
        f"{report.total_s:.0f} s\n"
        f"lost {verdict.lost:,}, inversions {verdict.inversions:,}, unknown {verdict.unknown:,}, "
        f"repeats {verdict.repeats:,}\n"
        f"rolled back: {report.rolled_back:,} transactions, {report.savepoints_rolled_back:,} savepoints; "
        f"writer errors {report.writer_errors:,}\n"
    )
    if report.faults:
        return "\n".join([f"{text}FAILED", *(f"- {fault}" for fault in report.faults), f"Topic: {report.topic}"])
    return f"{text}ok: nothing lost, every key in order"
