"""One run of a group, or of a bare loop: consumer_child.py TOPIC GROUP MODE CONCURRENCY WARM RECORDS SLOW_MS.

GROUP "-" = one of its own. MODE: noop, sleep (SLOW_MS), refuse (park everything), bare (a loop without the runtime).
Prints a JSON object: seconds, cpu_s, disordered.
"""

import json
import os
import sys
import threading
import time
import uuid
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

import django  # noqa: E402 - the checkout must be on the path first

COMMIT_EVERY_S = 0.5


class Clock:
    """Counts records; runs from the end of the warm-up to the last one. `done` is set then."""

    def __init__(self, warm: int, records: int):
        self._warm, self._records = warm, records
        self._lock = threading.Lock()
        self._count = 0
        self._last: dict[bytes | None, int] = {}
        self._began = self._cpu = 0.0
        self.disordered = 0
        self.seconds = self.cpu_s = 0.0
        self.done = threading.Event()

    def tick(self, key: bytes | None, offset: int) -> None:
        with self._lock:
            self._count += 1
            self.disordered += self._last.get(key, -1) > offset
            self._last[key] = offset
            if self._count == self._warm:
                self._began, self._cpu = time.perf_counter(), cpu()
            if self._count == self._warm + self._records:
                self.seconds, self.cpu_s = time.perf_counter() - self._began, cpu() - self._cpu
                self.done.set()


def cpu() -> float:
    times = os.times()
    return times.user + times.system


def run_group(topic, group, clock, *, mode, concurrency, slow_ms):
    from dlq.facade import handler, run_group
    from dlq.types import Permanent

    @handler(topic=topic, group=group)
    def work(event, _tx):
        if mode == "sleep":
            time.sleep(slow_ms / 1000)
        clock.tick(event.key, event.offset)
        if mode == "refuse":
            raise Permanent("refused by the bench")

    run_group(group, stop=clock.done, concurrency=concurrency, name=f"bench-{group}")


def run_bare(topic, group, clock):
    """What somebody writes by hand: poll, check, lock the key, look it up, claim the event, handle, commit, in turn."""
    from confluent_kafka import Consumer
    from django.conf import settings
    from django.db import connection, transaction

    from dlq.domain.quarantine import lane_of

    consumer = Consumer(
        {
            "bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    commit_at = time.monotonic() + COMMIT_EVERY_S
    while not clock.done.is_set():
        message = consumer.poll(0.2)
        if message is None:
            continue
        headers = dict(message.headers())
        event_id, event_type = uuid.UUID(headers["event-id"].decode()), headers["event-type"].decode()
        published_ms = int(headers["published-at"])
        payload = json.loads(message.value())
        lane = lane_of(group, topic, message.key())
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [lane])
            cursor.execute(LOOK, [lane, group, topic, message.partition(), message.offset()])
            if cursor.fetchone() != (False, False):
                raise SystemExit("the bare loop parks nothing")
            cursor.execute(CLAIM, [group, event_id, "bare", topic, message.partition(), message.offset()])
            if cursor.rowcount == 1 and event_type and published_ms and payload:
                clock.tick(message.key(), message.offset())
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        consumer.store_offsets(message)
        if time.monotonic() > commit_at:
            consumer.commit(asynchronous=True)
            commit_at = time.monotonic() + COMMIT_EVERY_S
    consumer.close()


LOOK = """
SELECT EXISTS (SELECT FROM dlq_key WHERE lane = %s),
       EXISTS (SELECT FROM dlq_waiting WHERE group_name = %s AND topic = %s AND partition = %s AND log_offset = %s)
"""
CLAIM = """
INSERT INTO dlq_applied (group_name, event_id, handler, topic, partition, log_offset)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (group_name, event_id) DO NOTHING
"""


def main(arguments):
    topic, group, mode, concurrency, warm, records, slow_ms = arguments
    group = f"bench-{uuid.uuid4().hex[:8]}" if group == "-" else group
    clock = Clock(int(warm), int(records))
    if mode == "bare":
        run_bare(topic, group, clock)
    else:
        run_group(topic, group, clock, mode=mode, concurrency=int(concurrency), slow_ms=int(slow_ms))
    print(json.dumps({"seconds": clock.seconds, "cpu_s": clock.cpu_s, "disordered": clock.disordered}), flush=True)


if __name__ == "__main__":
    django.setup()
    main(sys.argv[1:])
