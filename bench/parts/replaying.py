"""Replay of dead letters : producing the same records and applying them, with the same group's consumer process.

Both sides run the same handler at the same concurrency in a process of its own, and are counted from behind a warm-up
(of the replay: behind its first one and its first ten).
"""

import json
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager

from bench.parts.consumers import KEYS, RUN_WITHIN_S, SLOW_MS, WARM_RECORDS, run_child
from bench.parts.events import produce_events
from bench.parts.report import Report
from bench.parts.services import BenchError, World, python, script

CONCURRENCY = 8
PARK_BATCH = 200
LOOK_EVERY_S = 0.5
JOB_WITHIN_S = 1_800
BAR_CHARS = 40


def measure_replay(world: World, plan, report: Report) -> None:
    """Replay many dead letters while the job's own numbers are watched."""
    topic, group = world.make_topic("replayed"), f"replayed-{uuid.uuid4().hex[:8]}"
    count = plan.replayed
    produced_s = produce_events(world, topic, WARM_RECORDS + count, KEYS) * count / (WARM_RECORDS + count)
    applied = run_child(world, topic, "noop", concurrency=CONCURRENCY, records=count)
    baseline = count / (produced_s + count / applied.rate)
    empty = world.make_topic("empty")
    _register(empty, group)
    _park(empty, group, WARM_RECORDS + count)
    with _consumer(world, empty, group, count) as process:
        looks, total_s = _replay(group, WARM_RECORDS + count)
        told = _told(process)
    replayed = count / told["seconds"]
    report.at_least(
        f"replay of {count:,} dead letters : producing and applying the same records",
        replayed / baseline,
        0.5,
        detail=f"{replayed:,.0f} and {baseline:,.0f} records/s at concurrency {CONCURRENCY}; applying alone"
        f" {applied.rate:,.0f}; the job took {total_s:.0f} s from its start",
    )
    report.at_least("steps that the progress bar of that replay showed", looks, 3, unit="steps")
    report.at_most("replayed records that overtook an earlier one of their key", told["disordered"], 0)


def _register(topic: str, group: str) -> None:
    from dlq.facade import handler

    @handler(topic=topic, group=group)
    def work(_event, _tx):
        raise AssertionError("only the consumer process handles")


def _park(topic: str, group: str, count: int) -> None:
    """Make dead letters as a consumer does that refuses each record, without Kafka."""
    from django.db import connection, transaction

    for first in range(0, count, PARK_BATCH):
        with transaction.atomic():
            for n in range(first, min(first + PARK_BATCH, count)):
                _park_one(topic, group, n)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE dlq_dead_letter")


def _park_one(topic: str, group: str, n: int) -> None:
    from dlq import services
    from dlq.domain.failure import Failure
    from dlq.types import FailureClass
    from relay.types import ConsumerRecord, PartitionRef

    headers = (
        ("event-id", str(uuid.uuid4()).encode()),
        ("event-type", b"bench.done"),
        ("published-at", b"1700000000000"),
    )
    record = ConsumerRecord(
        place=PartitionRef(topic, n % 6),
        offset=n,
        leader_epoch=None,
        timestamp_ms=1_700_000_000_000,
        key=f"key-{n % KEYS}".encode(),
        value=f'{{"n":{n},"text":"{"x" * 400}"}}'.encode(),
        headers=headers,
    )
    failure = Failure(
        failure_class=FailureClass.PERMANENT,
        error_class="bench.Refused",
        message="",
        stack="",
        fingerprint="bench",
        attempts=1,
    )
    services.park_record(group, "bench", record, failure, topic_id="bench", slot=n, quarantines=False)


@contextmanager
def _consumer(world: World, topic: str, group: str, count: int):
    asked = [topic, group, "noop", str(CONCURRENCY), str(WARM_RECORDS), str(count), str(SLOW_MS)]
    with (world.folder / "replay.log").open("w") as log:
        process = subprocess.Popen(
            [python(), script("consumer_child.py"), *asked], env=world.env, stdout=log, stderr=subprocess.STDOUT
        )
    process.log = world.folder / "replay.log"
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _told(process) -> dict:
    process.wait(RUN_WITHIN_S)
    lines = [line for line in process.log.read_text().splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        raise BenchError(f"the consumer of the replay: {process.log.read_text()[-1500:]}")
    return json.loads(lines[-1])


def _replay(group: str, count: int) -> tuple[int, float]:
    """Start the replay and show its progress until all is done; (different numbers seen, seconds)."""
    from dlq.facade import get_replay, preview_replay, start_replay
    from dlq.types import DeadLetterFilter, Selection

    selection = Selection(filter=DeadLetterFilter(group=group))
    preview = preview_replay(selection, rate_per_s=None, actor="bench")
    job = start_replay(preview.id, rate_per_s=None, reason="bench", actor="bench")
    began, seen = time.monotonic(), set()
    while job.ended_at is None:
        if time.monotonic() - began > JOB_WITHIN_S:
            raise BenchError(f"the replay is at {job.applied:,} of {count:,} after {JOB_WITHIN_S} s: {job.waiting_for}")
        time.sleep(LOOK_EVERY_S)
        job = get_replay(job.id)
        seen.add(job.applied)
        _show(job)
    print(file=sys.stderr)
    if job.applied != count:
        raise BenchError(f"{job.applied:,} of {count:,} were applied, {job.failed:,} failed, {job.skipped:,} skipped")
    return len(seen), time.monotonic() - began


def _show(job) -> None:
    done = round(BAR_CHARS * job.applied / max(1, job.total))
    rate = f"{job.measured_per_s:,.0f}/s" if job.measured_per_s else "-"
    bar = "#" * done + "." * (BAR_CHARS - done)
    print(f"\r[{bar}] {job.applied:,} of {job.total:,}  {rate}  ", end="", file=sys.stderr, flush=True)
