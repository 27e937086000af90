"""Stress and crash: `manage.py check_relay`, whose verdict is two rows."""

import json
import subprocess

from bench.parts.plan import Plan
from bench.parts.report import Report
from bench.parts.services import BenchError, World
from console.stack.programs import BASE_DIR, manage

WITHIN_S = 900


def measure_check(world: World, plan: Plan, report: Report) -> None:
    """0 lost, 0 inversions of first occurrences; with concurrent writers, then (short: at once) with relays killed."""
    crash = ("stress and crash", plan.check_kills)
    for words, kills in (crash,) if plan.is_quick else (("stress", 0), crash):
        verdict = _check(world, plan.check_rows, kills)
        told = f"{verdict['committed']:,} rows, {verdict['kills']} kills, {verdict['total_s']} s"
        report.at_most(f"{words}: rows lost", verdict["lost"], 0, detail=told)
        report.at_most(f"{words}: inversions of first occurrences", verdict["inversions"], 0, detail=told)


def _check(world: World, rows: int, kills: int) -> dict:
    command = manage("check_relay", "--rows", str(rows), "--kills", str(kills), "--json")
    done = subprocess.run(
        command, cwd=BASE_DIR, env=world.env, capture_output=True, text=True, check=False, timeout=WITHIN_S
    )
    lines = done.stdout.splitlines()
    if not lines:
        raise BenchError(f"check_relay: {done.stderr[-1000:]}")
    return json.loads(lines[-1])
