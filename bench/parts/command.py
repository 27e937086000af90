"""The command line of a bench: which parts are measured, and what is printed."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.parts.report import Report, machine
from bench.parts.services import BenchError, World
from console.stack.errors import StackError

Section = Callable[[World, Any, Report], None]


def run(
    arguments: list[str],
    about: str,
    *,
    prog: str,
    sections: Mapping[str, Section],
    plans: tuple[Any, Any],
    prepare: Callable[[World, Any], None],
) -> int:
    """Measure, and return the exit status. `plans` are the quick one and the full one."""
    options = _parse(arguments, about, prog, sections)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    plan = plans[0] if options.quick else plans[1]
    report = Report(as_json=options.json)
    report.note(f"{'Quick' if plan.is_quick else 'Full'} run on {machine()}")
    try:
        with World() as world:
            prepare(world, plan)
            for name in options.only:
                _measure(name, sections[name], world, plan, report)
    except (StackError, BenchError) as error:
        report.missing("the services of the bench", None, str(error))
    return 1 if report.errors else 0


def _measure(name: str, section: Section, world: World, plan: Any, report: Report) -> None:
    began = time.monotonic()
    try:
        section(world, plan, report)
    except Exception as error:  # noqa: BLE001 - one part that breaks must not hide the others
        report.missing(name, None, f"{type(error).__name__}: {str(error)[:1000]}")
    report.note(f"{name}: {time.monotonic() - began:.0f} s")


def _parse(arguments: list[str], about: str, prog: str, sections: Mapping[str, Section]) -> argparse.Namespace:
    words, _, exit_words = about.partition("Exit status:")
    parser = argparse.ArgumentParser(
        prog=prog, description=words, epilog=f"Exit status: {exit_words}", allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="smaller and shorter: under 90 s in all")
    parser.add_argument("--json", action="store_true", help="one object a line: what, value, bar, met, detail")
    parser.add_argument(
        "--only",
        type=lambda text: _names(text, sections),
        default=list(sections),
        metavar="NAME,...",
        help=f"of {', '.join(sections)}",
    )
    return parser.parse_args(arguments)


def _names(text: str, sections: Mapping[str, Section]) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in sections]:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}; there are {', '.join(sections)}")
    return names
