"""A restored database: old rows keep transaction ids that this server has not given out yet."""

import pytest
from django.db import connection, transaction

from relay.facade import get_relay_status, get_topic, publish
from relay.kafka.topics import create_missing_topics
from relay.types import IncidentKind
from tests.relay_helpers import (
    event_id,
    first_occurrences,
    has_incident,
    make_topic,
    open_connection,
    publish_keys,
    read_topic,
    running_relay,
    skip_to_now,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)

FAR = 1_000_000


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()
    yield
    skip_to_now()
    with connection.cursor() as cursor:  # rows above the next id must not reach other tests as late
        cursor.execute(
            "UPDATE relay_checkpoint SET late_floor = (SELECT last_value FROM relay_outbox_position),"
            " system_identifier = (SELECT system_identifier FROM pg_control_system())"
        )


def insert_restored(topic, rows, keys=5):
    """Rows as a dump brings them, one transaction each; their (event ids, positions, ids)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        base = cursor.fetchone()[0] + FAR
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type, payload, xid)"
            " SELECT %s, convert_to('k' || n %% %s, 'UTF8'), 't', '1', (%s + n)::text::xid8"
            " FROM generate_series(1, %s) n RETURNING id::text, position, key",
            [topic, keys, base, rows],
        )
        return base, cursor.fetchall()


def place_all_at(hw, snapshot, identifier):
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_checkpoint SET hw = %s, snapshot = %s::pg_snapshot,"
            " system_identifier = coalesce(%s, system_identifier)",
            [hw, snapshot, identifier],
        )


@pytest.mark.parametrize("identifier", [None, 1])
def test_a_restored_outbox_publishes_its_late_rows_once_and_nothing_twice_in_ten_rounds(identifier):
    topic = make_topic(partitions=2)
    base, rows = insert_restored(topic, 100)
    # 1 to 80 were read; the snapshot of that read had not seen the transactions of 71 to 80
    place_all_at(rows[79][1], f"{base + 71}:{base + 71}:", identifier)
    expected = {}
    for row_id, _, key in rows[70:]:
        expected.setdefault(bytes(key), []).append(row_id)
    with running_relay() as runner:
        wait_until(lambda: len(read_topic(topic)) >= 30)
        new = publish_keys(topic, keys=5, rows=10)
        wait_until(lambda: len(read_topic(topic)) >= 40)
        seen = runner.engine.rounds_read
        wait_until(lambda: runner.engine.rounds_read > seen + 10)
        wait_until(lambda: not get_relay_status().waiting)
        assert not get_relay_status().deferred
        assert has_incident(IncidentKind.RELAY_RESTORED, "database")
    messages = read_topic(topic)
    assert len(messages) == 40
    assert first_occurrences(messages) == {key: expected[key] + new[key] for key in expected}
    with running_relay() as runner:  # the places hold for the next runner too
        wait_until(lambda: runner.engine.rounds_read > 10)
    assert len(read_topic(topic)) == 40


def test_a_transaction_of_this_server_that_is_open_while_places_are_carried_over_is_not_lost():
    topic = make_topic(partitions=1)
    base, rows = insert_restored(topic, 20)
    place_all_at(rows[9][1], f"{base + 11}:{base + 11}:", 1)
    with open_connection() as slow:
        late = slow.execute(
            "INSERT INTO relay_outbox (topic, key, type, payload) VALUES (%s, 'slow', 't', '1') RETURNING id::text",
            [topic],
        ).fetchone()[0]
        with transaction.atomic():
            quick = publish(topic, key="quick", type="t", payload=2)  # a higher position, committed first
        with running_relay():
            wait_until(lambda: str(quick.id) in {event_id(m) for m in read_topic(topic)})
            slow.commit()
            wait_until(lambda: late in {event_id(m) for m in read_topic(topic)})
    assert len(read_topic(topic)) == 12


def test_a_held_topic_of_a_restored_database_publishes_its_rows_once():
    missing = make_topic("missing", create=False)
    base, rows = insert_restored(missing, 40)
    place_all_at(rows[39][1], f"{base + 41}:{base + 41}:", 1)
    with connection.cursor() as cursor:  # held since row 20, with rows 19 and 20 late for the hold
        cursor.execute(
            "INSERT INTO relay_hold (shard, topic, hw, snapshot, reason)"
            " SELECT shard, topic, %s, %s::pg_snapshot, 'x'"
            " FROM (SELECT DISTINCT shard, topic FROM relay_outbox WHERE topic = %s) held",
            [rows[19][1], f"{base + 19}:{base + 19}:", missing],
        )
    create_missing_topics([get_topic(missing)])
    with running_relay() as runner:
        wait_until(lambda: len(read_topic(missing)) >= 22)
        wait_until(lambda: count_holds() == 0)
        seen = runner.engine.rounds_read
        wait_until(lambda: runner.engine.rounds_read > seen + 10)
    assert sorted(event_id(m) for m in read_topic(missing)) == sorted(r[0] for r in rows[18:])


def count_holds():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM relay_hold")
        return cursor.fetchone()[0]
