"""The command line of the bench: which parts are measured, and what is printed."""

import argparse
import signal
import sys
import time

from bench.parts.check import measure_check
from bench.parts.latency import measure_celery, measure_drain_wal, measure_latency
from bench.parts.peers import measure_peers
from bench.parts.plan import FULL, QUICK, Plan
from bench.parts.publishing import measure_publish
from bench.parts.rates import make_source, measure_burdens, measure_rates
from bench.parts.report import Report, machine
from bench.parts.services import BenchError, World
from bench.parts.writers import measure_doorbell
from console.stack.errors import StackError

# In this order: what leaves many rows behind comes last.
SECTIONS = {
    "rates": measure_rates,
    "peers": measure_peers,
    "publish": measure_publish,
    "drain-wal": measure_drain_wal,
    "latency": measure_latency,
    "celery": measure_celery,
    "check": measure_check,
    "doorbell": measure_doorbell,
    "burdens": measure_burdens,
}


def main(arguments: list[str], about: str) -> int:
    """Measure, and return the exit status."""
    options = _parse(arguments, about)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    plan = QUICK if options.quick else FULL
    report = Report(as_json=options.json)
    report.note(f"{'Quick' if plan.is_quick else 'Full'} run on {machine()}")
    try:
        with World() as world:
            make_source(world, max(plan.rows, plan.peer_rows))
            for name in options.only:
                _measure(name, world, plan, report)
    except (StackError, BenchError) as error:
        report.missing("the services of the bench", None, str(error))
    return 1 if report.errors else 0


def _measure(name: str, world: World, plan: Plan, report: Report) -> None:
    began = time.monotonic()
    try:
        SECTIONS[name](world, plan, report)
    except Exception as error:  # noqa: BLE001 - one part that breaks must not hide the others
        report.missing(name, None, f"{type(error).__name__}: {str(error)[:1000]}")
    report.note(f"{name}: {time.monotonic() - began:.0f} s")


def _parse(arguments: list[str], about: str) -> argparse.Namespace:
    words, _, exit_words = about.partition("Exit status:")
    parser = argparse.ArgumentParser(
        prog="bench/relay.py", description=words, epilog=f"Exit status: {exit_words}", allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="smaller and shorter: under 90 s in all")
    parser.add_argument("--json", action="store_true", help="one object a line: what, value, bar, met, detail")
    parser.add_argument(
        "--only", type=_names, default=list(SECTIONS), metavar="NAME,...", help=f"of {', '.join(SECTIONS)}"
    )
    return parser.parse_args(arguments)


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in SECTIONS]:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return names
