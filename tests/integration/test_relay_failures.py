import pytest
from confluent_kafka.admin import AdminClient
from django.conf import settings
from django.db import connection, transaction

from relay.facade import (
    ensure_topics,
    get_relay_status,
    get_topic,
    list_open_incidents,
    pause_relay,
    publish,
    resume_relay,
)
from relay.kafka.topics import create_missing_topics
from relay.types import IncidentKind
from tests.relay_helpers import (
    count_unsent,
    event_id,
    first_occurrences,
    make_topic,
    publish_keys,
    read_topic,
    run_relay_until_drained,
    running_relay,
    skip_to_now,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()


def insert_bad_headers(topic, key):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type, headers, payload) VALUES (%s, %s, 't', '[[\"x\", 5]]', '1')"
            " RETURNING id",
            [topic, key.encode()],
        )
        return str(cursor.fetchone()[0])


def test_a_row_with_bad_headers_fails_at_once_and_only_its_key_waits():
    topic = make_topic(partitions=1)
    bad = insert_bad_headers(topic, "bad")
    with transaction.atomic():
        behind = publish(topic, key="bad", type="t", payload=1)
        other = publish(topic, key="good", type="t", payload=2)
    with running_relay():
        wait_until(lambda: [event_id(m) for m in read_topic(topic)] == [str(other.id)])
        wait_until(lambda: len(get_relay_status().waiting) == 2)
        wait_until(
            lambda: any(i.kind is IncidentKind.RELAY_ROW_FAILED and i.cause == topic for i in list_open_incidents())
        )
        status = get_relay_status()
        assert [(str(r.event_id), r.why.split(":")[0]) for r in status.waiting] == [
            (bad, "failed, a person must act"),
            (str(behind.id), "behind a failed row of its key"),
        ]
        assert status.verdict.word == "blocked"
        (key,) = status.deferred
        assert (key.rows, key.failed, key.attempts, key.topic) == (2, True, 1, topic)
        with transaction.atomic():
            later = publish(topic, key="bad", type="t", payload=3)
            publish(topic, key="good", type="t", payload=4)
        wait_until(lambda: len(read_topic(topic)) == 2)
        wait_until(lambda: any(d.rows == 3 for d in get_relay_status().deferred))
    assert str(later.id) not in {event_id(m) for m in read_topic(topic)}


def test_a_row_above_the_real_limit_of_its_topic_delays_nobody():
    topic = make_topic(partitions=1)
    _alter(topic, "max.message.bytes", "2000")
    with transaction.atomic():
        publish(topic, key="large", type="t", payload="x" * 5_000)
    expected = publish_keys(topic, keys=5, rows=200)
    with running_relay():
        wait_until(lambda: len(read_topic(topic)) == 200)
        wait_until(lambda: [d.failed for d in get_relay_status().deferred] == [True])
        assert "2,000" in get_relay_status().deferred[0].error
    assert first_occurrences(read_topic(topic)) == expected


def test_a_deferred_key_is_tried_again_in_order_and_rejoins_the_log():
    topic = make_topic(partitions=1)
    with transaction.atomic():
        events = [publish(topic, key="k", type="t", payload=n) for n in range(5)]
    with connection.cursor() as cursor:  # as a relay left it: two rows set aside, the head due
        cursor.execute(
            "INSERT INTO relay_deferred (shard, position, topic, key, event_id, attempts, due_at, error)"
            " SELECT shard, position, topic, key, id, 1, clock_timestamp(), 'x' FROM relay_outbox WHERE id = ANY(%s)",
            [[e.id for e in events[:2]]],
        )
        cursor.execute("UPDATE relay_checkpoint SET hw = %s, snapshot = pg_current_snapshot()", [events[1].position])
    run_relay_until_drained()
    assert [event_id(m) for m in read_topic(topic)] == [str(e.id) for e in events]


def test_a_topic_missing_on_the_broker_is_held_alone_and_resumes_in_order():
    missing, present = make_topic("missing", create=False), make_topic("present")
    held = publish_keys(missing, keys=10, rows=50)
    publish_keys(present, keys=10, rows=50)
    with running_relay():
        wait_until(lambda: len(read_topic(present)) == 50)
        wait_until(lambda: [h.topic for h in get_relay_status().holds] == [missing])
        wait_until(
            lambda: any(i.kind is IncidentKind.RELAY_TOPIC_FAILED and i.cause == missing for i in list_open_incidents())
        )
        assert get_relay_status().oldest.why.startswith("topic held: ")
        assert get_relay_status().unsent.value == 50
        more = publish_keys(missing, keys=10, rows=30, start=50)
        publish_keys(present, keys=10, rows=30, start=50)
        wait_until(lambda: len(read_topic(present)) == 80)
        create_missing_topics([get_topic(missing)])
        wait_until(lambda: count_unsent() == 0)
        last = publish_keys(missing, keys=10, rows=20, start=80)
        wait_until(lambda: count_unsent() == 0)
    messages = read_topic(missing)
    assert first_occurrences(messages) == {key: held[key] + more[key] + last[key] for key in held}
    assert (len(messages), len(read_topic(present))) == (100, 80)


def test_a_hold_outlives_the_runner_that_made_it():
    missing, present = make_topic("missing", create=False), make_topic("present")
    expected = publish_keys(missing, keys=10, rows=50)
    publish_keys(present, keys=10, rows=50)
    with running_relay():
        wait_until(lambda: len(read_topic(present)) == 50)
        wait_until(lambda: get_relay_status().holds)
    create_missing_topics([get_topic(missing)])
    run_relay_until_drained()
    assert first_occurrences(read_topic(missing)) == expected


def test_pausing_stops_publishing_and_resuming_goes_on():
    topic = make_topic()
    with running_relay() as runner:
        wait_until(lambda: len(runner.engine.shards) == 64)
        assert pause_relay(actor="ann", reason="maintenance")
        assert not pause_relay(actor="bob", reason="again")
        wait_until(lambda: runner.state == "paused by ann")
        publish_keys(topic, keys=1, rows=3)
        status = get_relay_status()
        assert (status.verdict.word, status.paused_by, status.paused_reason) == ("paused", "ann", "maintenance")
        assert status.oldest.why == "paused by ann"
        assert read_topic(topic) == []
        assert resume_relay(actor="ann")
        assert not resume_relay(actor="ann")
        wait_until(lambda: count_unsent() == 0)


def test_declared_topics_are_created_once_and_never_altered():
    topic = make_topic("declared", partitions=5, create=False)
    assert topic in ensure_topics()
    assert topic not in ensure_topics()
    admin = AdminClient({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5


def _alter(topic, name, value):
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
