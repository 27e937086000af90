"""The collector against the real broker: its numbers are those that Kafka's own tool prints."""

import socket
import subprocess
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from django.conf import settings
from django.db import connection

from console.stack.kafka import tool_command
from relay.facade import (
    collect_lag,
    get_allowed_lag,
    get_lag_history,
    get_lag_overview,
    set_allowed_lag,
)
from relay.kafka.admin import read_cluster
from relay.lag_days import drop_old_days, make_days_ahead
from relay.models import LagGroup, LagLatest, LagPass
from relay.types import Aspect
from tests.topics import create_topic

pytestmark = pytest.mark.django_db

WITHIN_S = 20


def until(condition, within_s=WITHIN_S):
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def admin():
    return AdminClient({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})


@pytest.fixture(scope="module")
def make_topic(admin):
    made = []

    def make(partitions=3):
        name = f"lag-{uuid4().hex[:10]}"
        made.append(create_topic(name, partitions))
        return name

    yield make
    for future in admin.delete_topics(made).values():
        future.exception()


@pytest.fixture
def groups(admin):
    """Names of groups that are deleted again, so that a kept broker does not fill up with them."""
    names = []

    def name():
        names.append(f"lag-{uuid4().hex[:10]}")
        return names[-1]

    yield name
    for future in (admin.delete_consumer_groups(names) if names else {}).values():
        future.exception()


def produce(topic, counts):
    producer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "linger.ms": 0})
    for partition, count in enumerate(counts):
        for _ in range(count):
            producer.produce(topic, b"x", partition=partition)
    assert producer.flush(10) == 0


@contextmanager
def consumer(group, topic, protocol="classic"):
    own = {} if protocol == "consumer" else {"session.timeout.ms": 6000}
    client = Consumer(
        {
            "bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "lag-test",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **own,
        }
    )
    client.subscribe([topic])
    try:
        until(lambda: client.poll(0.05) is not None or client.assignment())
        yield client
    finally:
        client.close()


def commit(client, topic, offsets):
    places = [
        TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets) if offset is not None
    ]
    client.commit(offsets=places, asynchronous=False)


def ask_kafka(group):
    """What `kafka-consumer-groups --describe` prints: (topic, partition) -> (committed, end, lag)."""
    command = tool_command(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", settings.KAFKA_BOOTSTRAP_SERVERS, "--describe", "--offsets", "--group", group),
    )
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    header = next(line for line in lines if "CURRENT-OFFSET" in line)
    at = {name: header.index(name) for name in ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")}
    rows = [line for line in lines if line[0] == group]
    return {
        (row[at["TOPIC"]], int(row[at["PARTITION"]])): tuple(
            None if row[at[name]] == "-" else int(row[at[name]]) for name in ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
        )
        for row in rows
    }


def collect():
    """One pass now, however short ago the last one was."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE relay_sweep SET last_started_at = NULL WHERE name = 'lag'")
    assert collect_lag()


def collect_at(seconds_ago):
    """A pass that the stored times say was `seconds_ago`: everything that was stored moves back in time."""
    collect()
    move_back(seconds_ago)


def move_back(seconds):
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_lag_latest l SET at = at - d, first_seen_at = first_seen_at - d,"
            " committed_at = committed_at - d, appended_at = appended_at - d, waiting_since = waiting_since - d,"
            " rising_since = rising_since - d, recent = coalesce((SELECT jsonb_agg(jsonb_set(p, '{0}',"
            " to_jsonb((p->>0)::bigint - %s * 1000)) ORDER BY p->0) FROM jsonb_array_elements(recent) p), '[]')"
            " FROM make_interval(secs => %s) d",
            [seconds, seconds],
        )
        cursor.execute(
            "UPDATE relay_lag_group SET at = at - d, no_member_since = no_member_since - d"
            " FROM make_interval(secs => %s) d",
            [seconds],
        )


def shown(group):
    return next(g for g in get_lag_overview().groups if g.group == group)


def numbers(group):
    return numbers_of(shown(group))


def numbers_of(view):
    return {(p.topic, p.partition): (p.committed, p.end, p.lag) for p in view.partitions}


# -- Equal to Kafka's own tool -----------------------------------------------------------------------------
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_live_group_has_the_numbers_that_kafka_prints(make_topic, groups, protocol):
    topic, group = make_topic(), groups()
    produce(topic, [12, 7, 3])
    with consumer(group, topic, protocol) as client:
        commit(client, topic, [5, 7, None])
        collect()
        view = shown(group)  # before Kafka's own tool, which may take longer than a pass stays fresh
        assert numbers_of(view) == ask_kafka(group)
    assert numbers(group) == {(topic, 0): (5, 12, 7), (topic, 1): (7, 7, 0), (topic, 2): (None, 3, None)}
    assert (view.state, view.protocol, view.members, view.total_lag) == ("Stable", protocol, 1, 7)
    assert {p.owner for p in view.partitions} == {"lag-test"}


def test_a_stopped_group_has_the_numbers_that_kafka_prints_and_is_called_stopped(make_topic, groups):
    topic, group = make_topic(), groups()
    produce(topic, [12, 7, 3])
    with consumer(group, topic) as client:
        commit(client, topic, [5, 7, 3])
    collect()
    produce(topic, [300, 0, 0])
    move_back(settings.LAG_NO_MEMBER_AFTER_S)
    collect()
    view = shown(group)
    wanted = {(topic, 0): (5, 312, 307), (topic, 1): (7, 7, 0), (topic, 2): (3, 3, 0)}
    assert numbers_of(view) == ask_kafka(group) == wanted
    assert (view.state, view.members) == ("Empty", 0)
    assert str(view.partitions[0].verdict) == "stopped: no member, 307 waiting"
    assert str(view.verdict) == f"stopped: {topic} 0, no member, 307 waiting"


def test_an_empty_group_that_only_ever_committed_has_the_numbers_that_kafka_prints(make_topic, groups):
    topic, group = make_topic(2), groups()
    produce(topic, [4, 4])
    client = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": group})
    client.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 1)], asynchronous=False)
    client.close()
    collect()
    view = shown(group)
    assert numbers_of(view) == ask_kafka(group) == {(topic, 0): (4, 4, 0), (topic, 1): (1, 4, 3)}
    assert (view.state, view.members) == ("Empty", 0)


def test_a_group_with_no_commits_has_the_numbers_that_kafka_prints(make_topic, groups):
    topic, group = make_topic(2), groups()
    produce(topic, [4, 0])
    with consumer(group, topic):
        collect()
        view = shown(group)
        assert numbers_of(view) == ask_kafka(group) == {(topic, 0): (None, 4, None), (topic, 1): (None, 0, None)}
    assert str(view.partitions[0].verdict) == "unknown: nothing committed yet, 4 in the log"
    assert view.total_lag is None


def test_an_open_transaction_is_where_we_differ_from_kafka_on_purpose(make_topic, groups):
    """We count to what a reader of committed records can reach, the tool to the end of the log (ADR 0201)."""
    topic, group = make_topic(1), groups()
    produce(topic, [4])
    with consumer(group, topic) as client:
        commit(client, topic, [4])
        writer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "transactional.id": group})
        writer.init_transactions(10)
        writer.begin_transaction()
        writer.produce(topic, b"x", partition=0)
        writer.flush(10)
        collect()
        assert numbers(group) == {(topic, 0): (4, 4, 0)}
        assert ask_kafka(group) == {(topic, 0): (4, 5, 1)}
        writer.commit_transaction(10)
        until(lambda: (collect(), numbers(group))[1] == ask_kafka(group) == {(topic, 0): (4, 6, 2)})


# -- Time lag ----------------------------------------------------------------------------------------------
def test_time_lag_of_our_records_is_when_the_relay_had_them_acknowledged(make_topic, groups):
    topic, group = make_topic(1), groups()
    produce(topic, [10])
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_range (topic, partition, from_position, to_position, from_offset, to_offset, sent,"
            " first_acked_at, last_acked_at) SELECT %s, 0, 1, 10, o, o + 4, 5, now - age, now - age"
            " FROM clock_timestamp() now, (VALUES (0, interval '5 min'), (5, interval '2 min')) r (o, age)",
            [topic],
        )
    client = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": group})
    client.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
    client.close()
    collect()
    (partition,) = shown(group).partitions
    assert partition.time_lag_s == pytest.approx(120, abs=5)
    assert not partition.time_lag_estimated


def test_time_lag_of_foreign_records_is_an_estimate(make_topic, groups):
    topic, group = make_topic(1), groups()
    with consumer(group, topic) as client:
        commit(client, topic, [0])
        collect_at(8)
        produce(topic, [10])
        collect()
    (partition,) = shown(group).partitions
    assert 0 < partition.time_lag_s <= 9
    assert partition.time_lag_estimated


# -- What cannot be read -----------------------------------------------------------------------------------
def test_a_topic_deleted_under_a_group_hides_neither_its_other_topics_nor_other_groups(admin, make_topic, groups):
    kept, deleted, group, other = make_topic(1), make_topic(1), groups(), groups()
    produce(kept, [9])
    client = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": group})
    client.commit(offsets=[TopicPartition(kept, 0, 9), TopicPartition(deleted, 0, 0)], asynchronous=False)
    with consumer(other, kept) as live:
        commit(live, kept, [9])
        collect()
        before = LagLatest.objects.filter(group=group).count()
        admin.delete_topics([deleted])[deleted].result()
        until(lambda: deleted not in admin.list_topics(timeout=5).topics)
        collect()
    client.close()
    assert before == 2
    assert numbers(other) == {(kept, 0): (9, 9, 0)}
    of_group = {p.topic: p for p in shown(group).partitions}
    assert (of_group[kept].committed, of_group[kept].lag) == (9, 0)
    # Kafka forgets the commits of a deleted topic a little later; until then the place shows nothing but the reason.
    if deleted in of_group:
        assert (of_group[deleted].committed, of_group[deleted].end, of_group[deleted].lag) == (None, None, None)
        assert "the topic does not exist (any more)" in str(of_group[deleted].verdict)


def test_a_broker_that_is_away_gives_an_error_and_an_age_and_no_old_numbers(settings, make_topic, groups):
    topic, group = make_topic(1), groups()
    produce(topic, [5])
    with consumer(group, topic) as client:
        commit(client, topic, [5])
        collect()
        assert numbers(group) == {(topic, 0): (5, 5, 0)}
        settings.KAFKA_BOOTSTRAP_SERVERS, settings.LAG_REQUEST_TIMEOUT_S = "127.0.0.1:9", 0.5
        collect()
        overview, view = get_lag_overview(), shown(group)
    assert overview.errors
    assert overview.age_s is not None
    assert overview.age_s < 5
    assert (view.total_lag, view.members, view.verdict.aspect) == (None, 0, Aspect.UNKNOWN)
    assert "could not be read" in str(view.verdict)
    assert numbers(group) == {(topic, 0): (None, None, None)}
    assert view.partitions[0].drain_words == "unknown"


def test_a_broker_that_takes_connections_and_never_answers_holds_a_pass_for_its_timeouts_only(settings):
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.KAFKA_BOOTSTRAP_SERVERS = f"127.0.0.1:{server.getsockname()[1]}"
        settings.LAG_REQUEST_TIMEOUT_S = 0.5
        started = time.monotonic()
        reading = read_cluster()
        assert time.monotonic() - started < 10
    assert reading.errors
    assert not reading.complete
    assert not reading.groups


def test_numbers_that_no_pass_renewed_are_not_shown_as_new(make_topic, groups):
    topic, group = make_topic(1), groups()
    produce(topic, [5])
    with consumer(group, topic) as client:
        commit(client, topic, [5])
        collect()
    LagPass.objects.update(finished_at=datetime.now(UTC) - timedelta(seconds=90), interval_s=5)
    view = shown(group)
    assert numbers(group) == {(topic, 0): (None, None, None)}
    assert str(view.verdict) == "unknown: could not be read: no reading for 1 m 30 s"


def test_a_group_that_kafka_forgot_is_forgotten(admin, make_topic, groups):
    topic, group = make_topic(1), groups()
    client = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": group})
    client.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    client.close()
    collect()
    assert LagGroup.objects.filter(name=group).exists()
    admin.delete_consumer_groups([group])[group].result()
    collect()
    assert not LagGroup.objects.filter(name=group).exists()
    assert not LagLatest.objects.filter(group=group).exists()


def test_one_group_that_cannot_be_read_hides_no_other(make_topic, groups, monkeypatch):
    """The request for one group's commits goes out with a name that its coordinator refuses."""
    topic, good, bad = make_topic(1), groups(), groups()
    for group in (good, bad):
        client = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": group})
        client.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        client.close()
    from relay.kafka import admin as adapter

    real = adapter._Reader._ask_commits
    monkeypatch.setattr(adapter._Reader, "_ask_commits", lambda self, name: real(self, "" if name == bad else name))
    found = {g.group: g for g in read_cluster().groups}
    assert found[good].committed == {(topic, 0): 0}
    assert found[bad].error
    assert found[bad].committed == {}


# -- Passes, leases, samples -------------------------------------------------------------------------------
def test_a_pass_that_lost_its_lease_writes_nothing(make_topic, groups, monkeypatch):
    topic, group = make_topic(1), groups()
    client = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": group})
    client.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    client.close()
    from relay import lag

    def somebody_else_takes_over():
        LagPass.objects.update(epoch=999)
        return read_cluster()

    monkeypatch.setattr(lag, "_ask_cluster", somebody_else_takes_over)
    collect()
    assert not LagGroup.objects.exists()
    assert LagPass.objects.get().finished_at is None


def test_while_somebody_holds_the_lease_no_second_pass_reads(monkeypatch):
    LagPass.objects.create(id=1, interval_s=5, epoch=7, lease_until=datetime.now(UTC) + timedelta(seconds=30))
    from relay import lag

    monkeypatch.setattr(lag, "_ask_cluster", lambda: pytest.fail("a second pass read the cluster"))
    collect_lag()
    assert LagPass.objects.get().epoch == 7


def test_a_long_pass_makes_the_next_one_come_later(monkeypatch):
    from relay import lag

    monkeypatch.setattr(lag.time, "monotonic", iter([0.0, 12.0]).__next__)
    monkeypatch.setattr(lag, "_ask_cluster", lambda: lag.ClusterReading(groups=[], ends={}, errors=[], complete=True))
    collect()
    assert LagPass.objects.get().interval_s == 24.0


def test_history_keeps_the_peak_of_each_bucket_and_shows_gaps(make_topic, groups):
    topic, group = make_topic(1), groups()
    client = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": group})
    client.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    client.close()
    collect()
    series = LagLatest.objects.get(group=group).pk
    start = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=30)
    with connection.cursor() as cursor:
        for minute, lag in [(0, 3), (1, 70), (2, 5), (12, 1)]:
            at = start + timedelta(minutes=minute)
            make_days_ahead(at)
            cursor.execute("INSERT INTO relay_lag_minute VALUES (%s, %s, %s, 10, 0, %s)", [series, at, at, 10 + lag])
    found = get_lag_history(group, topic=topic, since=start, until=start + timedelta(minutes=20), max_points=5)
    assert [p.end and p.end - p.committed for p in found[0]] == [70, None, 1]


def test_old_days_are_dropped_and_kept_days_are_not(make_topic, groups):
    now = datetime.now(UTC)
    make_days_ahead(now - timedelta(days=5))
    make_days_ahead(now)
    dropped = drop_old_days(now)
    assert dropped == 3  # raw samples of five, four and three days ago; minutes and hours stay
    assert drop_old_days(now) == 0
    collect()


def test_allowed_lag_is_checked_and_used(make_topic, groups):
    group = groups()
    assert get_allowed_lag(group) == settings.LAG_ALLOWED_DEFAULT
    set_allowed_lag(group, 200, actor="ada")
    assert get_allowed_lag(group) == 200
    for bad in (-1, True, 1.5, settings.LAG_ALLOWED_MAX + 1):
        with pytest.raises(Exception, match="whole number"):
            set_allowed_lag(group, bad, actor="ada")
    assert get_allowed_lag(group) == 200


def test_the_overview_takes_a_handful_of_queries_however_many_groups(make_topic, groups, django_assert_max_num_queries):
    topic = make_topic(3)
    for _ in range(4):
        client = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": groups()})
        client.commit(offsets=[TopicPartition(topic, p, 0) for p in range(3)], asynchronous=False)
        client.close()
    collect()
    with django_assert_max_num_queries(5):
        overview = get_lag_overview()
    assert len(overview.groups) >= 4
    assert all(p.history for g in overview.groups for p in g.partitions if p.topic == topic)
