"""Tools of the consumer tests: topics, raw records, a group running in a thread or in a child process."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from django.conf import settings
from django.db import connection

from dlq.facade import handler, run_group
from dlq.handlers import unregister_group
from tests.topics import create_topic

ROOT = Path(__file__).resolve().parent.parent
WITHIN_S = 40


def until(condition, within_s=WITHIN_S, what="the condition"):
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {within_s} s"
        time.sleep(0.02)
    return found


def admin():
    return AdminClient({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})


def make_topic(partitions=1, name=None):
    name = name or f"dlq-{uuid4().hex[:12]}"
    return create_topic(name, partitions)


def headers_of(event_id=None, event_type="thing.done"):
    return [("event-id", str(event_id or uuid4()).encode()), ("event-type", event_type.encode())]


class Line:
    """A topic and a group of its own, with a producer."""

    def __init__(self, partitions=1):
        self.topic = make_topic(partitions)
        self.group = f"group-{uuid4().hex[:12]}"
        self._producer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "linger.ms": 1})

    def put_raw(self, value, *, key=b"k", headers=None, partition=0):
        """Produce one record as it is; returns its offset."""
        done = []
        self._producer.produce(
            self.topic, value=value, key=key, headers=headers, partition=partition,
            on_delivery=lambda error, message: done.append((error, message.offset())),
        )  # fmt: skip
        self._producer.flush(30)
        ((error, offset),) = done
        assert error is None, error
        return offset

    def put(self, number, *, key="k", event_id=None, event_type="thing.done", partition=0):
        """Produce an event whose payload is {"n": number}."""
        event_id = event_id or uuid4()
        self.put_raw(
            json.dumps({"n": number, "key": key}).encode(),
            key=None if key is None else key.encode(),
            headers=headers_of(event_id, event_type),
            partition=partition,
        )
        return event_id

    def put_many(self, events):
        """Produce (number, key, partition) quickly."""
        for number, key, partition in events:
            self._producer.produce(
                self.topic, value=json.dumps({"n": number, "key": key}).encode(), key=key.encode(),
                headers=headers_of(), partition=partition,
            )  # fmt: skip
        assert self._producer.flush(30) == 0

    def committed(self, partition=0):
        consumer = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": self.group})
        try:
            (found,) = consumer.committed([TopicPartition(self.topic, partition)], timeout=10)
            return max(found.offset, 0)
        finally:
            consumer.close()

    def end(self, partition=0):
        consumer = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": self.group})
        try:
            return consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=10)[1]
        finally:
            consumer.close()

    def rewind(self, offset, partition=0):
        """Move the group's committed offset, as an operator does while nothing consumes."""
        client = admin()
        wanted = ConsumerGroupTopicPartitions(self.group, [TopicPartition(self.topic, partition, offset)])

        def moved():
            (asked,) = client.alter_consumer_group_offsets([wanted]).values()
            return asked.exception(10) is None

        until(moved)

    def delete_before(self, offset, partition=0):
        """Let Kafka forget the partition's records below `offset`."""
        client = admin()
        (asked,) = client.delete_records([TopicPartition(self.topic, partition, offset)]).values()
        asked.result(10)

    def drop(self):
        unregister_group(self.group)
        client = admin()
        client.delete_topics([self.topic])[self.topic].exception(10)


@contextmanager
def running(line, *functions, concurrency=4, name=None, event_types=None, decode="json"):
    """Run the line's group in a thread with these handlers."""
    for function in functions:
        handler(topic=line.topic, group=line.group, event_types=event_types, decode=decode)(function)
    member = Member(line, concurrency=concurrency, name=name or f"test-{uuid4().hex[:8]}")
    try:
        yield member
    finally:
        member.end()


class Member:
    """A running member of a group in this process."""

    def __init__(self, line, *, concurrency, name):
        self.name = name
        self.stop = threading.Event()
        self.error = None
        self.tally = {}
        self._thread = threading.Thread(target=self._run, args=(line.group, concurrency), daemon=True)
        self._thread.start()

    def _run(self, group, concurrency):
        try:
            self.tally = run_group(group, stop=self.stop, concurrency=concurrency, name=self.name)
        except Exception as error:
            self.error = error
        finally:
            connection.close()

    def end(self, within_s=30):
        self.stop.set()
        self._thread.join(within_s)
        assert not self._thread.is_alive(), "the member did not stop in time"
        return self.tally

    def wait_dead(self, within_s=30):
        self._thread.join(within_s)
        assert not self._thread.is_alive(), "the member still runs"
        return self.error


class Child:
    """A member in a process of its own, which can be killed: `tests/consumer_child.py` has its handlers."""

    def __init__(self, line, mode="never", *, module="tests.consumer_child", concurrency=4, log=None, **env):
        database = connection.settings_dict
        url = (
            f"postgresql://{database['USER']}:{database['PASSWORD']}"
            f"@{database['HOST']}:{database['PORT']}/{database['NAME']}"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, line.topic, line.group, mode, str(concurrency)],
            cwd=ROOT,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "console.settings.run",
                "SIGNALBOX_DATA_DIR": os.devnull,
                "DATABASE_URL": url,
                "CONSUMER_SESSION_TIMEOUT_MS": "6000",
                **{name: str(value) for name, value in env.items()},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def end(self, within_s=30):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=within_s)
        return self.process.returncode, out.decode()


def make_effect_table():
    """A table that stands for a handler's own: one row an effect."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS test_effect")
        cursor.execute(
            "CREATE TABLE test_effect (id bigserial PRIMARY KEY, group_name text, event_id uuid, key text, n int,"
            " at timestamptz DEFAULT clock_timestamp())"
        )


def write_effect(event, tx):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO test_effect (group_name, event_id, key, n) VALUES (%s, %s, %s, %s)",
            [tx.group, event.id, event.payload["key"], event.payload["n"]],
        )


def effects(line):
    """Return (key, number) in the order of their insert."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT key, n FROM test_effect WHERE group_name = %s ORDER BY id", [line.group])
        return cursor.fetchall()
