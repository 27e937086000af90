"""Rows per second: producing alone, one relay process, two; with old rows, with deferred keys, with a held snapshot.

A relay's rate: it is warm and sleeps, all rows become visible by one commit, and the clock runs until the broker has
them all. Producing alone is measured in turns with it, in the same run, on the same broker, with the same payloads.
"""

import subprocess
from contextlib import contextmanager
from statistics import median
from time import monotonic

from bench.parts.plan import Plan
from bench.parts.report import Report, spread
from bench.parts.services import BenchError, World, python, script

WARM_ROWS = 5_000
DRAIN_WITHIN_S = 300
SETTLE_WITHIN_S = 300
INSERT_CHUNK_ROWS = 500_000
_SOURCE = """
CREATE TABLE bench_source AS
SELECT n, convert_to('key-' || n %% 10000, 'UTF8') AS key,
       convert_to('{"n":' || n || ',"text":"' || repeat(md5(n::text), 15) || '"}', 'UTF8') AS payload
FROM generate_series(1, %s) n
"""
_INSERT = """
INSERT INTO relay_outbox (topic, key, type, payload)
SELECT %s, key, 'bench.row', payload FROM bench_source WHERE n <= %s ORDER BY n
"""
# The first row of each key has headers that no record can have: it fails for good, and its key waits behind it.
_BLOCKED = """
INSERT INTO relay_outbox (topic, key, type, payload, headers)
SELECT %(topic)s, convert_to('blocked-' || k, 'UTF8'), 'bench.row', payload,
       CASE WHEN r = 1 THEN '[1]'::jsonb ELSE '[]' END
FROM generate_series(1, %(rows)s) r, generate_series(1, %(keys)s) k JOIN bench_source ON n = k ORDER BY r, k
"""
_OLD = """
INSERT INTO relay_outbox (topic, key, type, payload)
SELECT %s, convert_to('key-' || n %% 10000, 'UTF8'), 'bench.row', convert_to(repeat(md5(n::text), 15), 'UTF8')
FROM generate_series(1, %s) n
"""
_SKIP = """
UPDATE relay_checkpoint SET hw = (SELECT last_value FROM relay_outbox_position), snapshot = pg_current_snapshot(),
    late_cursor = 0, late_snapshot = NULL, epoch = epoch + 1, holder = NULL
"""
_HELD = "SELECT pg_current_xact_id(), pg_current_snapshot()"


def make_source(world: World, rows: int) -> None:
    """The payloads of the run: about 500 bytes, 10,000 keys; everybody who is measured sends these."""
    world.sql(_SOURCE, [rows])
    world.sql("ALTER TABLE bench_source ADD PRIMARY KEY (n)")
    world.sql("ANALYZE bench_source")


def produce_alone(world: World, rows: int, *, headers: bool = False) -> float:
    """Rows per second of producing alone."""
    topic = world.make_topic("alone")
    command = [python(), script("alone.py"), world.url, world.bootstrap, topic, str(rows), "yes" if headers else "no"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DRAIN_WITHIN_S)
    if done.returncode:
        raise BenchError(f"producing alone: {done.stderr[-1000:]}")
    return rows / float(done.stdout)


def drain(world: World, rows: int) -> float:
    """Rows per second of the relays that run: from the commit of all rows until the broker has them."""
    topic = world.make_topic("relay")
    world.sql(_INSERT, [topic, rows])
    began = monotonic()
    return rows / (world.wait_for_records(topic, rows, DRAIN_WITHIN_S) - began)


def measure_rates(world: World, plan: Plan, report: Report) -> None:
    """One relay and two: producing alone."""
    with_headers = produce_alone(world, plan.rows, headers=True)
    for count, words, bar in ((1, "one relay process", 0.35), (2, "two relay processes", 0.6)):
        alone, relayed = [], []
        with world.relays(count):
            drain(world, WARM_ROWS)
            for _ in range(plan.repeats):
                alone.append(produce_alone(world, plan.rows))
                relayed.append(drain(world, plan.rows))
        report.at_least(
            f"{words} : producing the same payloads alone, {plan.rows:,} rows",
            median(relayed) / median(alone),
            bar,
            detail=f"relay {spread(relayed)}, alone {spread(alone)} rows/s; with the relay's four headers alone makes"
            f" {with_headers:,.0f} rows/s ({median(relayed) / with_headers:.2f})",
        )


def measure_burdens(world: World, plan: Plan, report: Report) -> None:
    """One relay with a burden : the same relay without, in turns."""
    _compare(world, plan, report, "with a snapshot held by an idle transaction", bar=0.5, burden=_held_snapshot)
    words = f"with {plan.blocked_keys:,} keys deferred of {plan.rows_a_blocked_key} rows each"
    _compare(world, plan, report, words, bar=0.75, burden=lambda w: _blocked_keys(w, plan))
    # The old rows stay: so the rates without them come first.
    with world.relays(1):
        drain(world, WARM_ROWS)
        without = [drain(world, plan.rows) for _ in range(plan.repeats)]
    _make_old_rows(world, plan.old_rows)
    with world.relays(1):
        drain(world, WARM_ROWS)
        burdened = [drain(world, plan.rows) for _ in range(plan.repeats)]
    _tell(report, plan, f"with {plan.old_rows:,} old rows", bar=0.75, burdened=burdened, without=without)


def _compare(world, plan, report, words, *, bar, burden) -> None:
    burdened, without = [], []
    for _ in range(plan.repeats if not plan.is_quick else 1):
        with world.relays(1):
            drain(world, WARM_ROWS)
            without += [drain(world, plan.rows) for _ in range(2)]
            with burden(world):
                drain(world, WARM_ROWS)
                burdened += [drain(world, plan.rows) for _ in range(2)]
    _tell(report, plan, words, bar=bar, burdened=burdened, without=without)


def _tell(report, plan, words, *, bar, burdened, without) -> None:
    report.at_least(
        f"one relay process {words} : without, {plan.rows:,} rows",
        median(burdened) / median(without),
        bar,
        detail=f"with {spread(burdened)}, without {spread(without)} rows/s",
    )


@contextmanager
def _held_snapshot(world: World):
    with world.connect() as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute(_HELD)
        yield
        conn.rollback()


@contextmanager
def _blocked_keys(world: World, plan: Plan):
    topic = world.make_topic("blocked")
    count = plan.blocked_keys * plan.rows_a_blocked_key
    world.sql(_BLOCKED, {"topic": topic, "rows": plan.rows_a_blocked_key, "keys": plan.blocked_keys})
    deferred = "SELECT count(*) FROM relay_deferred WHERE topic = %s"
    world.wait_until(lambda: world.one(deferred, [topic]) == count, f"{count:,} rows are deferred", SETTLE_WITHIN_S)
    yield
    world.sql("DELETE FROM relay_deferred WHERE topic = %s", [topic])


def _make_old_rows(world: World, count: int) -> None:
    """Rows that were published long ago, by a relay that is not measured: the places are moved past them."""
    topic = world.make_topic("old")
    for start in range(0, count, INSERT_CHUNK_ROWS):
        world.sql("SELECT relay_outbox_ensure_partitions(1000000, 8)")
        world.sql(_OLD, [topic, min(INSERT_CHUNK_ROWS, count - start)])
    world.sql(_SKIP)
    world.sql("ANALYZE relay_outbox")
