"""Insert to acknowledgement at 500 commits a second, and what the relay writes to the WAL.

pgbench inserts one event a commit, at random moments. A consumer looks at each record's arrival minus its
`published-at`: later than the acknowledgement by a fetch, so the value is not flattered. What the relay itself counted
(time of the acknowledgement, in buckets) is in the detail.
"""

import threading
import time

from confluent_kafka import Consumer, TopicPartition

from bench.parts.plan import Plan
from bench.parts.rates import Drain
from bench.parts.report import Report, machine
from bench.parts.services import PARTITIONS, World, celery
from bench.parts.writers import write

COMMITS_A_SECOND = 500
BEAT_AFTER_S = 1.3
WAL = """
SELECT coalesce(sum(w.wal_bytes), 0)::float8, coalesce(sum(w.wal_fpi), 0)::float8
FROM pg_stat_activity a, pg_stat_get_backend_wal(a.pid) w
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.application_name LIKE 'relay%'
"""
_OWN = "SELECT sent, buckets FROM relay_stat WHERE at >= to_timestamp(%s)"


class Watcher(threading.Thread):
    """Reads a topic from its end and keeps the age of each record when it arrives, in ms."""

    def __init__(self, world: World, topic: str):
        super().__init__(daemon=True)
        self.ages_ms: list[float] = []
        self._ending = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": world.bootstrap,
                "group.id": f"watch-{topic}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])

    def run(self) -> None:
        while not self._ending.is_set():
            message = self._consumer.poll(0.1)  # one at a time: consume() waits for more to come
            if message is not None and message.error() is None:
                published = int(dict(message.headers())["published-at"])
                self.ages_ms.append(time.time() * 1000 - published)
        self._consumer.close()

    def stop(self) -> list[float]:
        self._ending.set()
        self.join()
        return self.ages_ms


def measure_latency(world: World, plan: Plan, report: Report) -> None:
    """Through `manage.py relay`, with the WAL of the relay."""
    with world.relays(1):
        _measure(world, report, "manage.py relay", plan.latency_s, with_wal=True)


def measure_celery(world: World, plan: Plan, report: Report) -> None:
    """Through Celery beat's runner."""
    words = "Celery beat's runner" + ("" if not plan.is_quick else " (quick: without a hand-over)")
    beat = celery("beat", "--schedule", str(world.folder / "beat-schedule"), "--pidfile=")
    worker = celery("worker", "-Q", "relay", "-P", "threads", "-c", "2", "--prefetch-multiplier", "1")
    with world.process("relay-worker", worker), world.process("beat", beat):
        world.wait_until(lambda: world.are_sharing(1, kind="celery"), "Celery's runner holds the shards")
        _measure(world, report, words, plan.celery_s, with_wal=False)


def measure_drain_wal(world: World, plan: Plan, report: Report) -> None:
    """WAL a row while a backlog is drained."""
    with world.relays(1):
        drain = Drain(world)
        before = _wal(world)
        drain.rate(plan.rows)
        _tell_wal(world, report, f"draining {plan.rows:,} rows", rows=plan.rows, before=before, bar=16)


def _measure(world: World, report: Report, through: str, seconds: int, *, with_wal: bool) -> None:
    topic = world.make_topic("latency")
    write(world, topic, seconds=1, commits_a_second=COMMITS_A_SECOND)  # warm: the topic is known, plans are made
    before = _wal(world) if with_wal else None
    began = time.time()
    watcher = Watcher(world, topic)
    had = world.count_records(topic)
    watcher.start()
    world.wait_until(lambda: len(watcher.ages_ms) >= had, "the watching consumer has seen what was there before")
    write(world, topic, seconds=seconds, commits_a_second=COMMITS_A_SECOND)
    sent = world.wait_for_quiet(topic)
    ages = sorted(watcher.stop()[had:])
    for q, bar in ((0.5, 10), (0.99, 50)):
        report.at_most(
            f"insert to acknowledgement, {COMMITS_A_SECOND} commits/s for {seconds} s, {through}, p{q * 100:g}",
            _quantile(ages, q),
            bar,
            unit="ms",
            detail=f"{len(ages):,} records seen by a consumer; the relay's own count: {_own(world, began, q)};"
            f" {machine()}",
        )
    if before is not None:
        _tell_wal(world, report, f"at {COMMITS_A_SECOND} commits/s", rows=sent - had, before=before, bar=400)


def _quantile(values: list[float], q: float) -> float | None:
    return values[min(len(values) - 1, int(len(values) * q))] if values else None


def _own(world: World, since: float, q: float) -> str:
    from relay.domain.histogram import SIZE, quantile_ms

    rows = world.sql(_OWN, [since])
    buckets = [sum(b[i] for _, b in rows) for i in range(SIZE)]
    upper = quantile_ms(buckets, q)
    return "nothing" if upper is None else f"at most {upper:g} ms"


def _wal(world: World) -> tuple[float, float]:
    time.sleep(BEAT_AFTER_S)  # a session tells its WAL when it next works, the relay's at each beat
    return world.sql(WAL)[0]


def _tell_wal(world: World, report: Report, words: str, *, rows: int, before: tuple[float, float], bar: float) -> None:
    after = _wal(world)
    images = after[1] - before[1]
    report.at_most(
        f"relay WAL a row, ranges and checkpoints included, {words}",
        (after[0] - before[0]) / rows,
        bar,
        unit="bytes",
        detail=f"{after[0] - before[0]:,.0f} bytes for {rows:,} rows, with {images:.0f} full-page images",
    )
