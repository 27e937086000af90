import pytest
from confluent_kafka import Producer
from django.conf import settings
from django.db import connection, transaction

from relay.facade import (
    ensure_topics,
    get_relay_status,
    get_topic,
    pause_relay,
    publish,
    resume_relay,
)
from relay.kafka.topics import create_missing_topics
from relay.types import IncidentKind
from tests.relay_helpers import (
    admin_client,
    alter_topic,
    count_unsent,
    event_id,
    first_occurrences,
    has_incident,
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
        wait_until(lambda: has_incident(IncidentKind.RELAY_ROW_FAILED, topic))
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
    alter_topic(topic, "max.message.bytes", "2000")
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
        wait_until(lambda: has_incident(IncidentKind.RELAY_TOPIC_FAILED, missing))
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
    assert len(admin_client().list_topics(topic, timeout=10).topics[topic].partitions) == 5


def is_too_large(topic, size):
    """The broker obeys a new limit a moment after it took it."""
    told = []
    producer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "message.max.bytes": 2_000_000})
    producer.produce(topic, value=b"x" * size, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    return told[0] is not None


def test_a_row_refused_after_a_later_one_of_its_key_was_taken_is_marked_as_broken_order():
    topic = make_topic(partitions=1)
    with running_relay() as runner:
        publish_keys(topic, keys=1, rows=1)  # the relay knows the topic's limit from now on
        wait_until(lambda: count_unsent() == 0)
        alter_topic(topic, "max.message.bytes", "500000")
        wait_until(lambda: is_too_large(topic, 600_000))
        with transaction.atomic():  # too large for one batch together, so the broker judges each alone
            refused = publish(topic, key="k", type="t", payload="x" * 900_000)
            taken = publish(topic, key="k", type="t", payload="x" * 300_000)
        wait_until(lambda: has_incident(IncidentKind.RELAY_ORDER_BROKEN, topic))
        assert event_id(read_topic(topic)[-1]) == str(taken.id)
        (key,) = wait_until(lambda: get_relay_status().deferred)
        assert (key.topic, key.rows) == (topic, 1)
        assert is_marked_broken(refused)
        assert len(runner.engine.shards) == 64


def test_the_relay_asks_anew_about_a_limit_that_refused_a_row():
    topic = make_topic(partitions=1)
    with running_relay():
        publish_keys(topic, keys=1, rows=1)
        wait_until(lambda: count_unsent() == 0)
        alter_topic(topic, "max.message.bytes", "500000")
        with transaction.atomic():
            publish(topic, key="k", type="t", payload="x" * 900_000)
        wait_until(lambda: [d.failed for d in get_relay_status().deferred] == [True])
        assert "500,000" in get_relay_status().deferred[0].error


def test_a_topic_that_is_deleted_under_the_relay_is_held_and_resumes_in_order_when_it_is_back():
    gone, present = make_topic("gone", partitions=2), make_topic("present")
    with running_relay() as runner:
        publish_keys(gone, keys=5, rows=5)
        wait_until(lambda: count_unsent() == 0)
        admin = admin_client()
        for future in admin.delete_topics([gone]).values():
            future.result(60)
        held = publish_keys(gone, keys=5, rows=50)
        publish_keys(present, keys=5, rows=50)
        wait_until(lambda: len(read_topic(present)) == 50)
        wait_until(lambda: [h.topic for h in get_relay_status().holds] == [gone])
        wait_until(lambda: has_incident(IncidentKind.RELAY_TOPIC_FAILED, gone))
        assert not runner.circuit.is_open
        create_missing_topics([get_topic(gone)])
        wait_until(lambda: count_unsent() == 0)
        wait_until(lambda: has_incident(IncidentKind.RELAY_TOPIC_REMADE, gone))
        assert not has_incident(IncidentKind.RELAY_TOPIC_REMADE, present)
    assert first_occurrences(read_topic(gone)) == held
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM relay_deferred")
        assert cursor.fetchone() == (0,)


def is_marked_broken(event):
    with connection.cursor() as cursor:
        cursor.execute("SELECT order_broken FROM relay_deferred WHERE event_id = %s", [event.id])
        return cursor.fetchone() == (True,)
