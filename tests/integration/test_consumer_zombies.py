"""Members that stop being members, and topics that stop being the same: one effect, in order, nothing unseen."""

import os
import signal
import time
from itertools import count

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from dlq.models import DeadLetter
from relay.facade import list_open_incidents, list_processes
from relay.types import IncidentKind
from tests.consumers import (
    Child,
    admin,
    effects,
    headers_of,
    make_topic,
    running,
    until,
    write_effect,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def make_line(make_line, settings):
    settings.CONSUMER_SESSION_TIMEOUT_MS = 6_000
    settings.CONSUMER_TOPIC_CHECK_EVERY_S = 0.5
    settings.CONSUMER_RETRY_BASE_S = 0.05
    return make_line


def in_flight_of(member):
    return next((p.facts.get("in flight") for p in list_processes() if p.name == member), None)


def by_key(line):
    found = {}
    for key, n in effects(line):
        found.setdefault(key, []).append(n)
    return found


def test_a_member_that_was_frozen_past_its_session_doubles_nothing_and_moves_no_offset_back(make_line):
    line = make_line()
    frozen = Child(line, "never", concurrency=3, WORK_MS=300)
    line.put_many((n, f"k{n % 3}", 0) for n in range(60))
    until(lambda: len(effects(line)) >= 3)
    os.kill(frozen.process.pid, signal.SIGSTOP)
    before = len(effects(line))
    assert before < 60
    try:
        with running(line, write_effect, concurrency=3, name="heir"):
            # Its open transactions (up to three) hold their events until the server ends them, or it comes back.
            until(lambda: in_flight_of("heir") in {"1", "2", "3"} or line.committed() == 60)
            os.kill(frozen.process.pid, signal.SIGCONT)
            until(lambda: line.committed() == 60, within_s=60)
            line.put_many((n, f"k{n % 3}", 0) for n in range(60, 90))
            until(lambda: line.committed() == 90, within_s=60)
    finally:
        os.kill(frozen.process.pid, signal.SIGCONT)
        frozen.end()
    assert line.committed() == 90
    assert by_key(line) == {f"k{k}": list(range(k, 90, 3)) for k in range(3)}


def test_order_holds_through_a_storm_of_rebalances_with_failures(make_line):
    line = make_line(partitions=6)
    tries, total = count(), 1_500

    def work(event, tx):
        time.sleep(0.002)
        if next(tries) % 17 == 0:
            raise TimeoutError
        write_effect(event, tx)

    line.put_many((n, f"k{n % 50}", (n % 50) % 6) for n in range(total))
    with running(line, work, concurrency=3):
        for _ in range(6):
            with running(line, work, concurrency=3):
                time.sleep(2)
        until(lambda: sum(line.committed(p) for p in range(6)) == total, within_s=90)
    assert by_key(line) == {f"k{k}": list(range(k, total, 50)) for k in range(50)}
    assert not DeadLetter.objects.filter(group=line.group).exists()


def test_a_topic_made_anew_while_it_is_consumed_loses_nothing_unseen(make_line):
    line = make_line()
    for number in range(5):
        line.put(number)
    with running(line, write_effect):
        until(lambda: line.committed() == 5)
        client = admin()
        client.delete_topics([line.topic])[line.topic].result(10)
        until(lambda: line.topic not in client.list_topics(timeout=5).topics)
        make_topic(name=line.topic)
        for number in range(100, 110):
            line.put(number)
        until(lambda: {n for _, n in effects(line) if n >= 100} == set(range(100, 110)))
        until(lambda: line.committed() == 10)
    assert len(effects(line)) == 15
    assert not is_loss_told(line)


def is_loss_told(line):
    return any(i.kind is IncidentKind.DATA_LOSS and line.group in i.cause for i in list_open_incidents())


def test_partitions_that_are_added_are_read_from_their_beginning(make_line, settings):
    settings.KAFKA_CLIENT_CONFIG = {"topic.metadata.refresh.interval.ms": 1_000}
    line, client = make_line(), admin()
    line.put(0)
    with running(line, write_effect):
        until(lambda: line.committed() == 1)
        client.create_partitions([NewPartitions(line.topic, 3)])[line.topic].result(10)
        until(lambda: len(client.list_topics(timeout=5).topics[line.topic].partitions) == 3)
        line._producer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})  # the old one knows one only
        line.put(1, partition=2)
        until(lambda: line.committed(2) == 1, within_s=60)
    assert effects(line) == [("k", 0), ("k", 1)]


def test_one_event_on_two_partitions_at_once_has_one_effect(make_line):
    line = make_line(partitions=2)
    ids = [line.put(n, key="a", partition=0) for n in range(30)]
    for n, event_id in enumerate(ids):
        line.put(n, key="a", event_id=event_id, partition=1)
    with running(line, write_effect) as member:
        until(lambda: [line.committed(0), line.committed(1)] == [30, 30])
    assert len(effects(line)) == 30
    assert member.tally["duplicate"] == 30


def test_large_records_are_read_in_bounded_memory(make_line, settings):
    line = make_line()
    value = b'{"key": "k", "n": 1, "x": "' + b"x" * 900_000 + b'"}'
    for n in range(200):
        line._producer.produce(line.topic, value=value, key=b"%d" % (n % 5), headers=headers_of(), partition=0)
        line._producer.poll(0.01)
    line._producer.flush(60)
    me, most = psutil.Process(), []
    before = me.memory_info().rss

    def slow(event, tx):
        most.append(me.memory_info().rss)
        time.sleep(0.02)

    with running(line, slow):
        until(lambda: line.committed() == 200, within_s=90)
    assert max(most) - before < 6 * settings.CONSUMER_BUFFER_BYTES
