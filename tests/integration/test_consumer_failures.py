"""Crashes, rebalances, slow handlers and lost offsets: nothing lost, nothing twice, nothing skipped unseen."""

import threading
import time
from collections import Counter

import pytest
from django.db import connection

from dlq.clerk import Clerk
from dlq.models import Applied, DeadLetter, Position
from dlq.services import remember_position
from relay.facade import list_open_incidents, list_processes
from relay.types import CommitPoint, IncidentKind, OffsetMissing, PartitionRef
from tests.consumers import Child, effects, running, until, write_effect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def make_line(make_line, settings):
    settings.CONSUMER_SESSION_TIMEOUT_MS = 6_000
    return make_line


@pytest.mark.parametrize("mode", ["before-commit", "after-commit"])
def test_a_consumer_killed_around_its_commit_loses_nothing_and_does_nothing_twice(make_line, mode):
    line = make_line()
    for number in range(20):
        line.put(number, key=f"k{number % 3}")
    child = Child(line, mode, concurrency=2, KILL_AT=10)
    child.process.wait(40)
    assert child.process.returncode == -9
    before = len(effects(line))
    assert line.committed() <= before < 20
    successor = Child(line, "never")
    until(lambda: line.committed() == 20)
    code, output = successor.end()
    assert (code, "stopped: " in output) == (0, True), output
    by_key = {}
    for key, n in effects(line):
        by_key.setdefault(key, []).append(n)
    assert by_key == {f"k{k}": list(range(k, 20, 3)) for k in range(3)}


def test_members_that_join_and_leave_keep_order_per_key_and_apply_each_record_once(make_line):
    line = make_line(partitions=4)
    total = 400
    above = []

    def work(event, tx):
        time.sleep(0.005)
        write_effect(event, tx)

    def watch(partition):
        committed = line.committed(partition)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM dlq_applied WHERE group_name = %s AND partition = %s AND log_offset < %s",
                [line.group, partition, committed],
            )
            if cursor.fetchone()[0] != committed:
                above.append((partition, committed))

    line.put_many((n, f"k{n % 16}", (n % 16) % 4) for n in range(total))
    with running(line, work, concurrency=3):
        until(lambda: len(effects(line)) > 40)
        with running(line, work, concurrency=3) as second:
            until(lambda: partitions_of(second) == "2")
            watch(0)
            watch(3)
        watch(1)
        until(lambda: sum(line.committed(p) for p in range(4)) == total)
    assert above == []
    by_key = {}
    for key, n in effects(line):
        by_key.setdefault(key, []).append(n)
    assert by_key == {f"k{k}": list(range(k, total, 16)) for k in range(16)}


def partitions_of(member):
    return next((p.facts.get("partitions") for p in list_processes() if p.name == member.name), None)


def test_a_record_that_finishes_after_its_partition_was_revoked_is_applied_once(make_line, settings):
    settings.CONSUMER_REVOKE_WAIT_S = 0.2
    line = make_line(partitions=2)
    started, release = Counter(), threading.Event()

    def slow(event, tx):
        started[event.partition] += 1
        if sum(started.values()) <= 2:
            assert release.wait(40)
        write_effect(event, tx)

    line.put(0, key="a", partition=0)
    line.put(1, key="b", partition=1)
    with running(line, slow, concurrency=2):
        until(lambda: sum(started.values()) == 2)
        with running(line, slow, concurrency=2) as second:
            until(lambda: partitions_of(second) == "1")
            release.set()
            until(lambda: [line.committed(0), line.committed(1)] == [1, 1])
    assert sorted(effects(line)) == [("a", 0), ("b", 1)]


def test_a_handler_slower_than_the_poll_interval_does_not_expel_its_consumer(make_line, settings):
    settings.CONSUMER_MAX_POLL_INTERVAL_MS = 6_000
    line = make_line()
    attempts = []

    def slow(event, tx):
        attempts.append(tx.attempt)
        time.sleep(8)
        write_effect(event, tx)

    line.put(1)
    with running(line, slow) as member:
        until(lambda: line.committed() == 1)
        assert partitions_of(member) == "1"
    assert (attempts, effects(line)) == ([1], [("k", 1)])
    assert member.tally == {"applied": 1}


def test_a_group_whose_offset_is_gone_stops_that_partition_only_and_says_what_is_lost(make_line):
    line = make_line(partitions=2)
    for number in range(10):
        line.put(number, partition=0)
    line.put(100, key="other", partition=1)
    with running(line, write_effect):
        until(lambda: [line.committed(0), line.committed(1)] == [10, 1])
    line.rewind(3)
    line.delete_before(7)
    line.put(101, key="other", partition=1)
    line.put(10, partition=0)
    with running(line, write_effect) as member:
        (incident,) = until(lambda: losses(line))
        until(lambda: line.committed(1) == 2)
        until(lambda: "stopped on" in doing_of(member))
        assert line.committed(0) == 3
    assert incident.cause == f"{line.group}/{line.topic}/0"
    assert "4 offsets are gone: 3 to 6" in incident.title
    assert ("k", 10) not in effects(line)
    line.rewind(7)
    with running(line, write_effect):
        until(lambda: line.committed(0) == 11)
        until(lambda: not losses(line))
    assert effects(line).count(("k", 10)) == 1


def test_a_group_whose_offset_expired_goes_on_where_it_was_or_says_what_is_lost(make_line):
    line = make_line(partitions=2)
    for number in range(6):
        line.put(number, key="a", partition=0)
        line.put(number, key="b", partition=1)
    line.delete_before(2, partition=0)
    place = PartitionRef(line.topic, 0)
    other = PartitionRef(line.topic, 1)
    remember(line, place, 1)
    remember(line, other, 4)
    with running(line, write_effect):
        (incident,) = until(lambda: losses(line))
        until(lambda: line.committed(1) == 6)
    assert "1 offsets are gone: 1 to 1" in incident.title
    assert effects(line) == [("b", 4), ("b", 5)]


@pytest.mark.parametrize(("protocol", "strategy"), [("classic", "range"), ("consumer", "cooperative-sticky")])
def test_the_other_ways_to_join_a_group_start_share_and_stop_the_same(make_line, settings, protocol, strategy):
    settings.CONSUMER_GROUP_PROTOCOL, settings.CONSUMER_ASSIGNMENT_STRATEGY = protocol, strategy
    line = make_line(partitions=2)
    line.put_many((n, f"k{n % 4}", n % 2) for n in range(40))
    with running(line, write_effect):
        until(lambda: line.committed(0) + line.committed(1) == 40)
        with running(line, write_effect) as second:
            until(lambda: partitions_of(second) == "1")
            line.put_many((n, f"k{n % 4}", n % 2) for n in range(40, 80))
            until(lambda: line.committed(0) + line.committed(1) == 80)
        until(lambda: second.tally["applied"] > 0)
    by_key = {}
    for key, n in effects(line):
        by_key.setdefault(key, []).append(n)
    assert by_key == {f"k{k}": list(range(k, 80, 4)) for k in range(4)}
    line.rewind(5)
    line.delete_before(9)
    line.put(80, key="k1", partition=1)
    with running(line, write_effect):
        (incident,) = until(lambda: losses(line))
        until(lambda: line.committed(1) == 41)
    assert "4 offsets are gone: 5 to 8" in incident.title


def remember(line, place, offset):
    from relay.facade import open_consumer

    class Deaf:
        def __getattr__(self, _):
            return lambda *_: None

    consumer = open_consumer(f"{line.group}-asks", [line.topic], Deaf(), client_id="test")
    remember_position(line.group, place, consumer.topic_id(line.topic), offset)
    consumer.close()


def losses(line):
    return [i for i in list_open_incidents() if i.kind is IncidentKind.DATA_LOSS and line.group in i.cause]


def doing_of(member):
    return next((p.doing for p in list_processes() if p.name == member.name), "")


def test_a_topic_made_anew_under_its_name_is_read_and_parked_as_another(make_line):
    from tests.consumers import admin, make_topic

    line = make_line()
    line.put_raw(b"first")
    with running(line, write_effect):
        until(lambda: line.committed() == 1)
    client = admin()
    client.delete_topics([line.topic])[line.topic].result(10)
    until(lambda: line.topic not in client.list_topics(timeout=5).topics)
    make_topic(name=line.topic)
    line.put_raw(b"second")
    with running(line, write_effect):
        until(lambda: DeadLetter.objects.filter(group=line.group).count() == 2)
    rows = DeadLetter.objects.filter(group=line.group)
    assert {row.offset for row in rows} == {0}
    assert len({row.topic_id for row in rows}) == 2


def test_positions_are_remembered_as_kafka_took_them(make_line):
    line = make_line()
    for number in range(3):
        line.put(number)
    with running(line, write_effect):
        until(lambda: line.committed() == 3)
        until(lambda: Position.objects.filter(group=line.group, next_offset=3).exists())
    assert Applied.objects.filter(group=line.group).count() == 3


class Broker:
    """What the clerk asks of a consumer."""

    def topic_id(self, topic):
        return "id"

    def first_offset(self, place):
        return 7


def test_work_that_was_delivered_before_the_loss_does_not_close_its_incident(make_line):
    line = make_line()
    place = PartitionRef(line.topic, 0)
    clerk = Clerk(line.group, "test", Broker())
    clerk._decide(OffsetMissing(place=place, offset=3))
    clerk.note_committed({place: CommitPoint(offset=3)})
    clerk._write_positions()
    assert len(losses(line)) == 1
    clerk.note_assigned([place])
    clerk.note_committed({place: CommitPoint(offset=8)})
    clerk._write_positions()
    assert losses(line) == []
    assert Position.objects.get(group=line.group).next_offset == 8
