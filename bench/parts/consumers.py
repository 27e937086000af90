"""The consumer runtime beside a bare loop that does the same checks, and keyed concurrency beside serial work.

Each run is a process of its own with a group of its own, on the same records (`consumer_child.py`). The clock runs from
the end of the warm-up to the last of the records that count: joining the group is not in it.
"""

import json
import subprocess
from dataclasses import dataclass
from statistics import median

from bench.parts import command
from bench.parts.events import produce_events
from bench.parts.report import Report, spread
from bench.parts.services import BenchError, World, python, script

RUN_WITHIN_S = 300
KEYS = 1_000
WARM_RECORDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Records are counts; a pair is one run of the subject and one of its baseline."""

    is_quick: bool
    records: int
    pairs: int
    serial_records: int
    slow_records: int


QUICK = Plan(is_quick=True, records=2_500, pairs=2, serial_records=60, slow_records=1_920)
FULL = Plan(is_quick=False, records=20_000, pairs=5, serial_records=200, slow_records=9_600)
SLOW_MS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one process did: records a second, CPU microseconds of it a record, records out of their key's order."""

    rate: float
    cpu_us: float
    disordered: int


def main(arguments: list[str], about: str) -> int:
    """Measure, and return the exit status."""
    sections = {"bare": measure_bare, "keyed": measure_keyed}
    return command.run(
        arguments, about, prog="bench/consumer.py", sections=sections, plans=(QUICK, FULL), prepare=lambda *_: None
    )


def measure_bare(world: World, plan: Plan, report: Report) -> None:
    """The runtime with a handler that does nothing : a bare loop with the same checks, in turns."""
    topic = world.make_topic("events")
    produce_events(world, topic, WARM_RECORDS + plan.records, KEYS)
    bare, runs = [], {1: [], 32: []}
    for _ in range(plan.pairs):
        bare.append(run_child(world, topic, "bare", concurrency=1, records=plan.records))
        for concurrency, seen in runs.items():
            seen.append(run_child(world, topic, "noop", concurrency=concurrency, records=plan.records))
    for concurrency, bar in ((1, 0.6), (32, 1.5)):
        what = f"runtime at concurrency {concurrency} : a bare loop with the same checks"
        _compare(report, what, bar, seen=runs[concurrency], bare=bare)


def _compare(report: Report, what: str, bar: float, *, seen: list[Ran], bare: list[Ran]) -> None:
    report.at_least(
        what,
        median(r.rate for r in seen) / median(r.rate for r in bare),
        bar,
        detail=f"{spread([r.rate for r in seen])} and {spread([r.rate for r in bare])} records/s;"
        f" CPU {median(r.cpu_us for r in seen):.0f} and {median(r.cpu_us for r in bare):.0f} microseconds a record",
    )


def measure_keyed(world: World, plan: Plan, report: Report) -> None:
    """32 keys at a time : one record at a time, with handlers that take 50 ms; and the order of each key."""
    topic = world.make_topic("slow")
    produce_events(world, topic, WARM_RECORDS + plan.slow_records, KEYS)
    serial = run_child(world, topic, "sleep", concurrency=1, records=plan.serial_records, warm=5)
    keyed = run_child(world, topic, "sleep", concurrency=32, records=plan.slow_records)
    report.at_least(
        f"32 keys at a time : serial, handlers of {SLOW_MS} ms",
        keyed.rate / serial.rate,
        20,
        unit="times",
        detail=f"{keyed.rate:,.0f} and {serial.rate:,.1f} records/s",
    )
    report.at_most("records that overtook an earlier one of their key", keyed.disordered + serial.disordered, 0)


def run_child(world: World, topic: str, mode: str, *, concurrency: int, records: int, warm: int = WARM_RECORDS) -> Ran:
    """Consume `records` after the warm-up in a process of its own."""
    asked = [topic, "-", mode, str(concurrency), str(warm), str(records), str(SLOW_MS)]
    done = subprocess.run(
        [python(), script("consumer_child.py"), *asked],
        env=world.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_WITHIN_S,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise BenchError(f"consumer_child {mode}: {(done.stdout + done.stderr)[-1500:]}")
    told = json.loads(lines[-1])
    return Ran(rate=records / told["seconds"], cpu_us=told["cpu_s"] / records * 1e6, disordered=told["disordered"])
