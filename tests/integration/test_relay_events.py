"""Where an event went: waiting with the reason, skipped, or in Kafka at an offset that the topic itself confirms."""

import json
import re
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from django.db import connection, transaction

from relay.events import BY_ID, OUTBOX, RANGES, REF
from relay.facade import find_row, get_event_trace, pause_relay, pause_topic, publish, resume_relay, skip_row
from relay.kafka.locate import Stretch, find_event_offsets
from relay.queries import index_plans
from relay.types import EventState
from tests.relay_helpers import (
    admin_client,
    count_unsent,
    event_id,
    make_topic,
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
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM relay_pause")


def publish_one(topic, key="k", **more):
    with transaction.atomic():
        return publish(topic, key=key, type="order.paid", payload={"secret": "4471"}, **more)


def places_in(topic):
    """Event id -> (partition, offset) as the topic itself says."""
    return {event_id(m): (m.partition(), m.offset()) for m in read_topic(topic)}


def place_of(trace):
    return [(landing.partition, landing.offset) for landing in trace.landings]


def test_every_event_is_found_at_the_offset_that_the_topic_says():
    topic = make_topic(partitions=3)
    events = [publish_one(topic, key=f"k{n % 7}") for n in range(40)]
    run_relay_until_drained()
    found = places_in(topic)
    for event in events:
        trace = get_event_trace(event.id)
        assert (trace.state, trace.position, trace.landing_words) == (EventState.SENT, event.position, "")
        assert place_of(trace) == [found[str(event.id)]]


def test_a_trace_says_who_sent_it_and_when_and_shows_no_contents():
    topic = make_topic()
    event = publish_one(topic, headers={"tenant": "secret-tenant"})
    with running_relay(name="sender") as runner:
        wait_until(lambda: count_unsent() == 0)
    trace = get_event_trace(event.id)
    (landing,) = trace.landings
    assert landing.runner == runner.name
    assert landing.acked_at >= trace.created_at
    assert (trace.headers, trace.key_bytes, trace.payload_bytes) == (["tenant"], 1, 17)
    assert "secret" not in repr(trace)
    assert "4471" not in repr(trace)


def test_events_without_a_key_and_on_a_chosen_partition_are_found():
    topic = make_topic(partitions=3)
    events = [publish_one(topic, key=None), publish_one(topic, partition=2)]
    run_relay_until_drained()
    found = places_in(topic)
    assert [place_of(get_event_trace(e.id)) for e in events] == [[found[str(e.id)]] for e in events]
    assert found[str(events[1].id)][0] == 2


def test_an_event_that_lies_twice_is_found_twice_the_first_first():
    topic = make_topic(partitions=1)
    event = publish_one(topic)
    run_relay_until_drained()
    with connection.cursor() as cursor:  # as after a crash: the shard's place was not kept, and it is read again
        cursor.execute("UPDATE relay_checkpoint SET hw = least(hw, %s)", [event.position - 1])
    run_relay_until_drained()
    trace = get_event_trace(event.id)
    assert place_of(trace) == [(0, 0), (0, 1)]
    assert trace.repeats == 0


def test_a_waiting_event_says_why_it_waits():
    topic = make_topic(partitions=1)
    event = publish_one(topic)
    assert "none is alive" in get_event_trace(event.id).verdict.reason
    pause_relay(actor="ada", reason="a test")
    trace = get_event_trace(event.id)
    resume_relay(actor="ada")
    assert (trace.state, str(trace.verdict)) == (EventState.WAITING, "waiting: paused by ada")
    pause_topic(topic, actor="ada", reason="the consumers are away")
    assert get_event_trace(event.id).verdict.reason == "topic paused by ada: the consumers are away"


def test_a_failed_event_and_one_behind_it_say_so_and_a_skipped_one_names_who_and_why():
    topic = make_topic(partitions=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type, headers, payload) VALUES (%s, 'bad', 't', '[[\"x\", 5]]', '1')"
            " RETURNING id, position",
            [topic],
        )
        bad, position = cursor.fetchone()
    behind = publish_one(topic, key="bad")
    with running_relay():
        wait_until(lambda: "failed, a person must act" in get_event_trace(bad).verdict.reason)
        wait_until(lambda: get_event_trace(behind.id).verdict.reason == "behind a failed row of its key")
    assert get_event_trace(bad).headers == []
    skip_row(position, actor="ada", reason="the headers are broken")
    trace = get_event_trace(bad)
    assert (trace.state, str(trace.verdict)) == (EventState.SKIPPED, "skipped: by ada: the headers are broken")
    assert trace.landings == []


def test_an_unknown_id_and_a_rolled_back_event_are_not_found():
    topic = make_topic()
    assert get_event_trace(uuid4()) is None
    with transaction.atomic():
        event = publish(topic, key="k", type="t", payload=1)
        transaction.set_rollback(True)
    assert get_event_trace(event.id) is None
    assert find_row(event.position) is None


def test_a_row_is_named_by_its_position():
    topic = make_topic()
    event = publish_one(topic, key=b"\xff\x00")
    row = find_row(event.position)
    assert (row.event_id, row.topic, row.key) == (event.id, topic, b"\xff\x00")
    assert "xff" not in repr(row)


def test_what_is_no_longer_known_is_said(settings):
    topic = make_topic(partitions=1)
    event = publish_one(topic)
    run_relay_until_drained()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM relay_range WHERE topic = %s", [topic])
    trace = get_event_trace(event.id)
    assert (trace.state, trace.landings) == (EventState.SENT, [])
    assert "not noted any more: that is kept for 7 days" in trace.landing_words


def test_a_topic_that_is_gone_is_said_and_not_waited_for_longer_than_the_limit(settings):
    settings.RELAY_TRACE_WITHIN_S = 2
    topic = make_topic(partitions=1)
    event = publish_one(topic)
    run_relay_until_drained()
    admin = admin_client()  # kept: its answers end with it
    admin.delete_topics([topic])[topic].result()
    trace = wait_until(lambda: not (found := get_event_trace(event.id)).landings and found)
    assert trace.landing_words


def test_deleted_records_are_said_to_be_deleted():
    topic = make_topic(partitions=1)
    events = [publish_one(topic) for _ in range(3)]
    run_relay_until_drained()
    admin = admin_client()
    for future in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        future.result()
    assert "deleted the records of that time" in get_event_trace(events[0].id).landing_words


def test_no_more_records_are_read_than_the_bound(settings):
    settings.RELAY_TRACE_RECORDS = 2
    topic = make_topic(partitions=1)
    events = [publish_one(topic) for _ in range(5)]
    run_relay_until_drained()
    found = find_event_offsets(topic, events[4].id, [Stretch(0, 0, 4)])
    assert (found.places, found.why_not) == (
        [],
        "It lies among more than 2 records; not all were read.",
    )


def test_a_position_is_found_among_many_ranges_in_a_few_pages():
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_range (topic, partition, from_position, to_position, from_offset, to_offset, sent,"
            " first_acked_at, last_acked_at) SELECT 'plan', mod(n, 6), n * 10, n * 10 + 59, n, n, 1, now(), now()"
            " FROM generate_series(1, 200000) n"
        )
        cursor.execute("VACUUM ANALYZE relay_range")
        cursor.execute("SET enable_seqscan = off")
        asked = {"topic": "plan", "position": 1_000_000, "created_at": "2020-01-01", "most": 64}
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS) " + RANGES, asked)
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")
        cursor.execute("DELETE FROM relay_range WHERE topic = 'plan'")
    assert "relay_range_position" in plan
    first = next(line for line in plan.splitlines() if "Buffers: shared" in line)
    assert sum(int(n) for n in re.findall(r"(?:hit|read)=(\d+)", first)) < 200, plan


OLD_ROWS = 50_000


def explain(statement, params):
    """The nodes that read the outbox, and how many pages the statement touched."""
    with index_plans() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement, params)
        answer = cursor.fetchone()[0]
    plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
    found, left = [], [plan]
    while left:
        node = left.pop()
        left += node.get("Plans", [])
        if node.get("Relation Name", "").startswith("relay_outbox"):
            found.append(node["Node Type"])
    return set(found), plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def test_an_event_a_position_and_the_oldest_row_are_found_on_indexes_beside_many_old_rows():
    topic = make_topic(create=False)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type) SELECT 'old', convert_to('k' || mod(n, 1000), 'UTF8'), 't'"
            " FROM generate_series(1, %s) n",
            [OLD_ROWS],
        )
    event = publish_one(topic)
    shards = list(range(64))
    for statement, params, pages in (
        (BY_ID, [event.id, 5], 400),
        (REF, [shards, event.position], 600),
        (OUTBOX, [shards], 2_000),
    ):
        kinds, touched = explain(statement, params)
        assert kinds <= {"Index Scan", "Index Only Scan"}, statement
        assert touched < pages, statement
    skip_to_now()
