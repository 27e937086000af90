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
PARTITION_ROWS = 1_000_000
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
_PASS = """
WITH last AS MATERIALIZED (SELECT last_value AS position FROM relay_outbox_position)
UPDATE relay_checkpoint SET hw = last.position, late_floor = last.position, late_cursor = 0, late_snapshot = NULL,
    snapshot = pg_current_snapshot(), epoch = epoch + 1, holder = NULL
FROM last
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


class Drain:
    """Lets the relays that run publish a backlog to one topic, which they know from its first, small round on."""

    def __init__(self, world: World):
        self._world = world
        self._topic = world.make_topic("relay")
        self._sent = 0
        self.rate(WARM_ROWS)

    def rate(self, rows: int) -> float:
        """Rows per second: from the commit of all rows at once until the broker has them."""
        self._world.sql(_INSERT, [self._topic, rows])
        began = monotonic()
        self._sent += rows
        return rows / (self._world.wait_for_records(self._topic, self._sent, DRAIN_WITHIN_S) - began)


def measure_rates(world: World, plan: Plan, report: Report) -> None:
    """One relay and two: producing alone."""
    produce_alone(world, WARM_ROWS)
    with_headers = median([produce_alone(world, plan.rows, headers=True) for _ in range(plan.repeats)])
    for count, words, bar in ((1, "one relay process", 0.35), (2, "two relay processes", 0.6)):
        alone, relayed = [], []
        with world.relays(count):
            drain = Drain(world)
            for _ in range(plan.repeats):
                alone.append(produce_alone(world, plan.rows))
                relayed.append(drain.rate(plan.rows))
        if count == 1:
            world.rate_of_one = median(relayed)
        report.at_least(
            f"{words} : producing the same payloads alone, {plan.rows:,} rows",
            median(relayed) / median(alone),
            bar,
            detail=f"relay {spread(relayed)}, alone {spread(alone)} rows/s; with the relay's four headers alone makes"
            f" {with_headers:,.0f} rows/s ({median(relayed) / with_headers:.2f})",
        )


def rate_of_one(world: World, plan: Plan) -> float:
    """Rows per second of one relay process, as measured in this run; measured now if it was not."""
    if world.rate_of_one is None:
        with world.relays(1):
            drain = Drain(world)
            world.rate_of_one = median([drain.rate(plan.rows) for _ in range(plan.repeats)])
    return world.rate_of_one


def measure_burdens(world: World, plan: Plan, report: Report) -> None:
    """One relay with a burden : the same relay just before. The old rows stay, so they are there with the deferred."""
    burdens = (
        ("with a snapshot held by an idle transaction", 0.5, _held_snapshot),
        (f"with {plan.old_rows:,} old rows", 0.75, _old_rows),
        (f"with {plan.blocked_keys:,} keys deferred of {plan.rows_a_blocked_key} rows each", 0.75, _blocked_keys),
    )
    with world.relays(1):
        drain = Drain(world)
        for words, bar, burden in burdens:
            without = [drain.rate(plan.rows) for _ in range(plan.repeats)]
            with burden(world, plan):
                drain.rate(WARM_ROWS)
                burdened = [drain.rate(plan.rows) for _ in range(plan.repeats)]
            report.at_least(
                f"one relay process {words} : without, {plan.rows:,} rows",
                median(burdened) / median(without),
                bar,
                detail=f"with {spread(burdened)}, without {spread(without)} rows/s",
            )


@contextmanager
def _held_snapshot(world: World, _plan: Plan):
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


@contextmanager
def _old_rows(world: World, plan: Plan):
    """Rows that count as published long ago: the places pass them in the transaction that inserts them.

    The relay that runs finds its shards lost, and claims them again behind the old rows.
    """
    topic = world.make_topic("old")
    ahead = plan.old_rows // PARTITION_ROWS + 8
    world.sql("SELECT relay_outbox_ensure_partitions(%s, %s)", [PARTITION_ROWS, ahead])
    with world.connect() as conn:
        conn.execute(_OLD, [topic, plan.old_rows])
        conn.execute(_PASS)
    world.sql("ANALYZE relay_outbox")
    world.wait_until(lambda: world.are_sharing(1), "the relay has its shards again")
    yield
