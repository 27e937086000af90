"""Run the real relay in tests: a runner in a thread, or until the outbox is drained; read topics back."""

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from django.conf import settings
from django.db import connection, transaction

from relay.facade import declare_topic, list_open_incidents, publish
from relay.kafka.topics import create_missing_topics
from relay.runner import Runner
from relay.types import TopicSpec

ROOT = Path(__file__).resolve().parent.parent
WITHIN_S = 60


def wait_until(condition, within_s=WITHIN_S, every_s=0.01):
    """Poll until `condition()` is true and return its value; fail at the deadline."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {within_s} s: {condition}"
        time.sleep(every_s)


def make_topic(name="t", *, partitions=3, max_bytes=1_000_000, create=True, **more):
    """Declare a topic of a fresh name, and create it on the broker."""
    spec = declare_topic(
        TopicSpec(name=f"{name}-{uuid4().hex[:8]}", partitions=partitions, max_bytes=max_bytes, **more)
    )
    if create:
        create_missing_topics([spec])
    return spec.name


def skip_to_now():
    """Move every checkpoint to the present: rows of earlier tests are none of this test's business."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM relay_deferred")
        cursor.execute("DELETE FROM relay_hold")
        cursor.execute("DELETE FROM relay_control")
        cursor.execute("DELETE FROM relay_pause")
        cursor.execute("DELETE FROM relay_runner")
        cursor.execute("DELETE FROM relay_stat")
        cursor.execute(
            "UPDATE relay_checkpoint SET hw = (SELECT last_value FROM relay_outbox_position), holder = NULL,"
            " snapshot = pg_current_snapshot(), late_cursor = 0, late_snapshot = NULL, moved_at = NULL,"
            " epoch = epoch + 1"
        )


def count_unsent():
    """Rows that no settled checkpoint covers yet, deferred and held ones included."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM relay_outbox o JOIN relay_checkpoint c USING (shard)"
            "        WHERE o.position > c.hw"
            "           OR (o.position > c.late_floor AND NOT pg_visible_in_snapshot(o.xid, c.snapshot))),"
            "       (SELECT count(*) FROM relay_deferred), (SELECT count(*) FROM relay_hold)"
        )
        return sum(cursor.fetchone())


@contextmanager
def running_relay(name="test", kind="process", **options):
    """A runner in a thread; it is stopped and has released its shards at the end."""
    runner = Runner(name=f"{name}-{uuid4().hex[:4]}", kind=kind, **options)
    thread = threading.Thread(target=runner.run, name=runner.name, daemon=True)
    thread.start()
    try:
        yield runner
    finally:
        runner.stop()
        thread.join(timeout=settings.RELAY_STOP_WITHIN_S + 10)
        assert not thread.is_alive(), "the runner did not stop"


def run_relay_until_drained(within_s=WITHIN_S):
    """Run a relay until every committed row is acknowledged and settled. Needs transaction=True tests."""
    with running_relay():
        wait_until(lambda: count_unsent() == 0, within_s)


def read_topic(topic, within_s=WITHIN_S):
    """Every record of a topic, by partition and offset: lists of confluent_kafka.Message."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS,
            "group.id": f"read-{uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in partitions}
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        left = sum(ends.values())
        messages = []
        deadline = time.monotonic() + within_s
        while left > 0:
            assert time.monotonic() < deadline, f"{topic}: {left} records were not read within {within_s} s"
            for message in consumer.consume(1_000, timeout=0.5):
                assert message.error() is None, message.error()
                messages.append(message)
                left -= 1
        return sorted(messages, key=lambda m: (m.partition(), m.offset()))
    finally:
        consumer.close()


def event_id(message):
    """The `event-id` header as text."""
    return dict(message.headers())["event-id"].decode()


def first_occurrences(messages):
    """Event ids by key in the order in which they first appear; repeats are dropped."""
    seen, by_key = set(), {}
    for message in messages:
        if event_id(message) not in seen:
            seen.add(event_id(message))
            by_key.setdefault(message.key(), []).append(event_id(message))
    return by_key


def database_url():
    """The address of this test's database."""
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


def open_connection():
    """A connection of its own to this test's database, with a transaction that begins at the first statement."""
    return psycopg.connect(database_url())


@contextmanager
def relay_child(step="never", nth=1, **env):
    """`tests.relay_child` on this test's database; it is killed at the end if it is still there."""
    database = database_url()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.relay_child", step, str(nth)],
        env={**os.environ, "DATABASE_URL": database, "SIGNALBOX_PROCESS": "child", **env},
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=10)


def has_incident(kind, cause):
    """Tell whether an incident of (kind, cause) is open."""
    return any((i.kind, i.cause) == (kind, cause) for i in list_open_incidents())


def alter_topic(topic, name, value):
    """Set a topic's configuration on the broker."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = admin_client()  # kept: its answers end with it
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WITHIN_S)


def admin_client():
    """An admin client of the tests' broker."""
    return AdminClient({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})


def end_leases():
    """Let every lease end now, as if its time were over."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE relay_runner SET expires_at = clock_timestamp()")


def publish_keys(topic, *, keys, rows, start=0):
    """Publish `rows` events over `keys` keys, one transaction each; expected ids by key."""
    expected = {}
    for n in range(start, start + rows):
        with transaction.atomic():
            event = publish(topic, key=f"k{n % keys}", type="t", payload={"n": n})
        expected.setdefault(event.key, []).append(str(event.id))
    return expected
