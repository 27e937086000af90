"""Writers: pgbench, one event a commit; and what the doorbell costs them."""

import re
import subprocess
from contextlib import contextmanager
from statistics import median

from bench.parts.plan import Plan
from bench.parts.report import Report, spread
from bench.parts.services import BenchError, World
from console.stack import postgres

CLIENTS = 16
PACED_CLIENTS = 8
GRACE_S = 60
SCRIPT = r"""
\set k random(1, 10000)
INSERT INTO relay_outbox (topic, key, type, payload)
VALUES ('{topic}', convert_to('key-' || :k, 'UTF8'), 'bench.row', decode(repeat('7b', 500), 'hex'));
"""


def write(world: World, topic: str, *, seconds: int, commits_a_second: int | None = None) -> float:
    """Insert for a while; the commits a second that there were. Without a pace, 16 clients go as fast as they can."""
    file = world.folder / "insert.sql"
    file.write_text(SCRIPT.format(topic=topic))
    clients = CLIENTS if commits_a_second is None else PACED_CLIENTS
    command = [str(postgres.binary("pgbench")), "-n", "-M", "prepared", "-f", str(file), "-T", str(seconds)]
    command += ["-c", str(clients), "-j", "1"]
    command += [] if commits_a_second is None else ["-R", str(commits_a_second)]
    done = subprocess.run(
        [*command, world.url], capture_output=True, text=True, check=False, timeout=seconds + GRACE_S, cwd="/"
    )
    found = re.search(r"number of transactions actually processed: (\d+)", done.stdout)
    if done.returncode or not found:
        raise BenchError(f"pgbench: {(done.stdout + done.stderr)[-1000:]}")
    rate = re.search(r"tps = ([\d.]+)", done.stdout)  # not told when nothing was committed
    return float(rate[1]) if rate else 0.0


def measure_doorbell(world: World, plan: Plan, report: Report) -> None:
    """Commits a second with the doorbell's trigger : without it and with a relay that polls."""
    _measure(world, plan, report, "", 0.15)
    with _old_snapshot(world, plan):
        _measure(world, plan, report, f" with a snapshot held that is {plan.snapshot_age_s} s old", 0.20)


def _measure(world: World, plan: Plan, report: Report, words: str, bar: float) -> None:
    topic = world.make_topic("doorbell")
    rung, polled = [], []
    for _ in range(plan.doorbell_pairs):
        with world.relays(1):
            rung.append(write(world, topic, seconds=plan.doorbell_s))
        with _without_doorbell(world), world.relays(1, DATABASE_DIRECT_URL=""):
            polled.append(write(world, topic, seconds=plan.doorbell_s))
    if not median(polled):
        raise BenchError("no writer committed anything: the machine is too busy to measure")
    report.at_most(
        f"writer cost of the doorbell{words}, {CLIENTS} writers",
        1 - median(rung) / median(polled),
        bar,
        detail=f"with it {spread(rung)}, without {spread(polled)} commits/s, a relay running both times",
    )


@contextmanager
def _without_doorbell(world: World):
    world.sql("ALTER TABLE relay_outbox DISABLE TRIGGER relay_outbox_ring")
    try:
        yield
    finally:
        world.sql("ALTER TABLE relay_outbox ENABLE TRIGGER relay_outbox_ring")


@contextmanager
def _old_snapshot(world: World, plan: Plan):
    """A transaction that idles while events go through: what a backup does to a busy table."""
    topic = world.make_topic("aged")
    with world.connect() as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute("SELECT pg_current_snapshot()")
        with world.relays(1):
            write(world, topic, seconds=plan.snapshot_age_s, commits_a_second=100)
        yield
        conn.rollback()
