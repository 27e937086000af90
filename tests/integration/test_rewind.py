"""Rewinding real groups on a real broker: plans, what Kafka's own tool says afterwards, refusals, changes meanwhile."""

import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from django.conf import settings
from django.db import connection

from console.actions.base import BadInput, StaleAct
from console.actions.lag import rewind_group
from console.models import AuditAction, AuditEntry
from console.rewind_token import sign_rewind
from console.stack.kafka import tool_command
from dlq.facade import count_applied
from relay.facade import BadRewind, GroupActive, apply_rewind, preview_rewind
from relay.types import RewindStrategy, RewindWish
from tests.consumers import Line, admin, until

pytestmark = pytest.mark.django_db


@pytest.fixture
def line():
    """Two partitions: 10 records in 0, 6 in 1; the group stands at 7 and 6, and nobody reads."""
    line = Line(partitions=2)
    line.put_many([(n, "a", 0) for n in range(10)] + [(n, "b", 1) for n in range(6)])
    commit(line, {0: 7, 1: 6})
    return line


@pytest.fixture
def person(django_user_model):
    return django_user_model.objects.create_superuser("rewinder", password="only-for-tests-9")


def commit(line, offsets):
    places = [TopicPartition(line.topic, partition, offset) for partition, offset in offsets.items()]
    client = admin()  # kept: what it was asked for ends with it

    def is_taken():  # a coordinator that only just learned of the topic refuses for a moment, partition by partition
        wanted = [ConsumerGroupTopicPartitions(line.group, places)]
        taken = client.alter_consumer_group_offsets(wanted)[line.group].result(10)
        return not any(place.error for place in taken.topic_partitions)

    until(is_taken)
    until(lambda: {p: line.committed(p) for p in offsets} == dict(offsets))


def wish(line, strategy, **values):
    return RewindWish(group=line.group, topic=line.topic, strategy=strategy, **values)


def moves(plan):
    return {step.partition: (step.before, step.after) for step in plan.steps}


def told_by_kafka(line):
    """Partition -> committed offset as `kafka-consumer-groups --describe` prints it."""
    printed = subprocess.run(
        tool_command(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", settings.KAFKA_BOOTSTRAP_SERVERS, "--describe", "--offsets"),
            *("--group", line.group),
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    rows = [words.split() for words in printed.splitlines() if words.startswith(line.group)]
    return {int(row[2]): int(row[3]) for row in rows}


def member(line, protocol="classic"):
    """A live member of the group."""
    own = {} if protocol == "consumer" else {"session.timeout.ms": 6000}
    consumer = Consumer(
        {
            "bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS,
            "group.id": line.group,
            "group.protocol": protocol,
            "client.id": "somebody",
            "enable.auto.commit": False,
            **own,
        }
    )
    consumer.subscribe([line.topic])
    until(lambda: consumer.poll(0.1) or consumer.assignment(), what="it has partitions")
    return consumer


def test_each_strategy_plans_both_partitions_with_times(line):
    plan = preview_rewind(wish(line, RewindStrategy.EARLIEST))
    assert moves(plan) == {0: (7, 0), 1: (6, 0)}
    assert [step.again for step in plan.steps] == [7, 6]
    assert plan.who.members == []
    now = datetime.now(UTC)
    first = plan.steps[0]
    assert now - timedelta(minutes=1) < first.after_at <= first.before_at <= now + timedelta(seconds=5)
    assert plan.steps[1].before_at is None  # it stands at the end
    assert moves(preview_rewind(wish(line, RewindStrategy.LATEST))) == {0: (7, 10), 1: (6, 6)}
    assert moves(preview_rewind(wish(line, RewindStrategy.SHIFT, shift=-2, partitions=(0,)))) == {0: (7, 5)}
    long_ago = preview_rewind(wish(line, RewindStrategy.TIME, at=now - timedelta(hours=1)))
    assert moves(long_ago) == {0: (7, 0), 1: (6, 0)}
    later = preview_rewind(wish(line, RewindStrategy.TIME, at=now + timedelta(hours=1)))
    assert moves(later) == {0: (7, 10), 1: (6, 6)}
    assert "no record is as late" in later.steps[0].warnings[0]


def test_a_plan_to_a_log_that_was_cut_goes_to_its_new_start_and_says_so(line):
    line.delete_before(4)
    (step,) = preview_rewind(wish(line, RewindStrategy.OFFSET, offset=1, partitions=(0,))).steps
    assert (step.begin, step.after) == (4, 4)
    assert "before the log's start" in step.warnings[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topic": "no-such-topic"}, "no topic called no-such-topic"),
        ({"partitions": (9,)}, "has no partition 9"),
        ({"strategy": RewindStrategy.OFFSET}, "needs a value"),
        ({"strategy": RewindStrategy.OFFSET, "offset": -1}, "whole number from 0"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_in_words(line, changes, said):
    with pytest.raises(BadRewind, match=said):
        preview_rewind(replace(wish(line, RewindStrategy.EARLIEST), **changes))


def test_a_rewind_is_what_kafkas_own_tool_shows_and_is_audited_once(line, person):
    plan = preview_rewind(wish(line, RewindStrategy.SHIFT, shift=-3))
    outcomes = rewind_group(person, sign_rewind(plan, "q"), reason="a handler was wrong")
    assert [(o.partition, o.before, o.now, o.ok) for o in outcomes] == [(0, 7, 4, True), (1, 6, 3, True)]
    assert told_by_kafka(line) == {0: 4, 1: 3}
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.object_id, entry.reason) == (
        AuditAction.GROUP_REWOUND,
        line.group,
        "a handler was wrong",
    )
    assert entry.detail["moves"] == [[0, 7, 4], [1, 6, 3]]
    assert entry.detail["strategy"] == "3 offsets back"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_active_group_is_named_and_refused_and_moves_once_it_is_empty(line, person, protocol):
    consumer = member(line, protocol)
    plan = preview_rewind(wish(line, RewindStrategy.EARLIEST))
    assert [name for name, _ in plan.who.members] == ["somebody"]
    with pytest.raises(StaleAct, match="members again: somebody"):
        rewind_group(person, sign_rewind(plan, "q"), reason="r")
    with pytest.raises(GroupActive):
        apply_rewind(line.group, line.topic, {0: 0}, {0: 7})
    assert line.committed() == 7
    assert not AuditEntry.objects.exists()
    consumer.close()
    until(lambda: not preview_rewind(plan.wish).who.members, what="the group is empty")
    outcomes = rewind_group(person, sign_rewind(preview_rewind(plan.wish), "q"), reason="r")
    assert all(one.ok for one in outcomes)
    assert told_by_kafka(line) == {0: 0, 1: 0}


def test_a_group_that_moved_since_the_preview_is_refused_with_what_changed(line, person):
    token = sign_rewind(preview_rewind(wish(line, RewindStrategy.EARLIEST)), "q")
    commit(line, {1: 5})
    with pytest.raises(StaleAct, match="partition 1 stands at 5 now, not at 6"):
        rewind_group(person, token, reason="r")
    assert (line.committed(0), line.committed(1)) == (7, 5)
    assert not AuditEntry.objects.exists()


def test_a_log_that_was_cut_since_the_preview_is_refused(line, person):
    token = sign_rewind(preview_rewind(wish(line, RewindStrategy.EARLIEST)), "q")
    line.delete_before(2)
    with pytest.raises(StaleAct, match="partition 0 begins at 2 now, after 0"):
        rewind_group(person, token, reason="r")


def test_a_preview_is_good_once_and_only_as_it_was_signed(line, person, settings):
    token = sign_rewind(preview_rewind(wish(line, RewindStrategy.EARLIEST)), "q")
    with pytest.raises(BadInput, match="not made here"):
        rewind_group(person, token[:-2], reason="r")
    with pytest.raises(BadInput, match="Say why"):
        rewind_group(person, token, reason=" ")
    rewind_group(person, token, reason="r")
    with pytest.raises(StaleAct, match="stands at 0 now"):
        rewind_group(person, token, reason="r")
    settings.REWIND_PREVIEW_S = -1
    with pytest.raises(StaleAct, match="older than"):
        rewind_group(person, token, reason="r")


def test_a_partition_that_kafka_refuses_is_told_beside_those_that_moved(line, person):
    outcomes = apply_rewind(line.group, line.topic, {0: 3, 7: 1}, {0: 7})
    by_partition = {one.partition: one for one in outcomes}
    assert by_partition[0].ok
    assert by_partition[0].now == 3
    assert not by_partition[7].ok
    assert by_partition[7].error


def test_dedupe_rows_of_the_stretch_are_counted_and_a_bound_says_at_least(settings):
    group, topic = f"g-{uuid4().hex[:8]}", "counted"
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO dlq_applied (group_name, event_id, handler, topic, partition, log_offset)"
            " SELECT %s, gen_random_uuid(), 'h', %s, n %% 2, n FROM generate_series(0, 99) n",
            [group, topic],
        )
    found = count_applied(group, topic, {0: (10, 20), 1: (0, 4)})
    assert (found.by_partition, found.exact) == ({0: 5, 1: 2}, True)
    settings.APPLIED_COUNT_ROWS = 50
    capped = count_applied(group, topic, {0: (0, 100)})
    assert not capped.exact
    assert capped.total <= 50
    assert count_applied("another", topic, {0: (0, 100)}).total == 0
