import threading
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction

from relay.facade import get_relay_status, publish
from relay.housekeeping import find_duplicate_ids, purge_outbox
from relay.types import IncidentKind
from tests.relay_helpers import (
    count_unsent,
    has_incident,
    make_topic,
    open_connection,
    publish_keys,
    run_relay_until_drained,
    skip_to_now,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh(settings):
    settings.RELAY_PURGE_TRIES, settings.RELAY_PURGE_PAUSE_MS = 3, 10
    skip_to_now()
    keep_only_empty_partitions_behind(settings)
    yield
    skip_to_now()


def keep_only_empty_partitions_behind(settings):
    """Drop what earlier tests left, so that the oldest partition is this test's own."""
    start_partition()
    retention, settings.RELAY_OUTBOX_RETENTION = settings.RELAY_OUTBOX_RETENTION, -settings.RELAY_OUTBOX_RETENTION
    with connection.cursor() as cursor:
        cursor.execute("UPDATE relay_checkpoint SET late_floor = (SELECT last_value FROM relay_outbox_position)")
    while purge_outbox():
        pass
    settings.RELAY_OUTBOX_RETENTION = retention


def partitions():
    with connection.cursor() as cursor:
        cursor.execute("SELECT from_position, to_position FROM relay_outbox_partition ORDER BY 1")
        return cursor.fetchall()


def start_partition():
    """Let the next row be the first of a fresh partition, with every place before it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM relay_outbox_position")
        (last,) = cursor.fetchone()
        first = min(f for f, _ in partitions() if f > last)
        cursor.execute("SELECT setval('relay_outbox_position', %s, false)", [first])
        cursor.execute("SELECT relay_outbox_ensure_partitions(1000000, 8)")
        cursor.execute("UPDATE relay_checkpoint SET hw = %s, snapshot = pg_current_snapshot()", [first - 1])
    return first


def age_rows(first):
    """Make the rows of a partition old; the append-only trigger is off for this."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name::text FROM relay_outbox_partition WHERE from_position = %s", [first])
        (name,) = cursor.fetchone()
        cursor.execute(f"ALTER TABLE {name} DISABLE TRIGGER relay_outbox_append_only")
        cursor.execute(f"UPDATE {name} SET created_at = created_at - interval '8 days'")


def pass_everywhere():
    """A fresh partition begins, and the relay has passed the one before."""
    first = start_partition()
    topic = make_topic()
    publish_keys(topic, keys=1, rows=1)
    run_relay_until_drained()
    wait_until(lambda: lowest_place() >= first - 1)
    return first


def lowest_place():
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(hw) FROM relay_checkpoint")
        return cursor.fetchone()[0]


def an_old_partition():
    first = start_partition()
    topic = make_topic()
    publish_keys(topic, keys=3, rows=20)
    run_relay_until_drained()
    pass_everywhere()
    age_rows(first)
    return first, topic


def exists(first):
    return first in {f for f, _ in partitions()}


def test_a_partition_that_everybody_passed_is_dropped_after_its_retention():
    first, _ = an_old_partition()
    assert purge_outbox() > 0
    assert not exists(first)
    assert count_unsent() == 0


def test_a_partition_within_its_retention_stays(settings):
    settings.RELAY_OUTBOX_RETENTION *= 2
    first, _ = an_old_partition()
    purge_outbox()
    assert exists(first)


@pytest.mark.parametrize(
    "obstacle",
    [
        "UPDATE relay_checkpoint SET hw = %(first)s WHERE shard = 7",
        "INSERT INTO relay_hold (shard, topic, hw, snapshot, reason) VALUES (7, 'x', %(first)s, '1:1:', 'x')",
        """INSERT INTO relay_deferred (shard, position, topic, event_id)
        SELECT shard, position, topic, id FROM relay_outbox WHERE position = %(first)s""",
        """UPDATE relay_checkpoint c SET late_floor = 0, snapshot =
        format('%%s:%%s:%%s', o.xid, pg_snapshot_xmax(c.snapshot), o.xid)::pg_snapshot
        FROM relay_outbox o WHERE o.position = %(first)s AND c.shard = o.shard""",
    ],
    ids=["a shard is behind", "a held topic is behind", "a row is deferred", "a row is late"],
)
def test_a_partition_with_something_to_publish_stays(obstacle):
    first, _ = an_old_partition()
    with connection.cursor() as cursor:
        cursor.execute(obstacle, {"first": first})
        assert cursor.rowcount == 1
    purge_outbox()
    assert exists(first)


def test_a_row_that_is_committed_while_the_purge_waits_for_its_lock_keeps_the_partition(settings):
    settings.RELAY_PURGE_TRIES, settings.RELAY_PURGE_LOCK_MS = 1, 60_000
    first, topic = an_old_partition()
    with open_connection() as slow:
        slow.execute(
            "INSERT INTO relay_outbox (position, topic, key, type, payload, created_at)"
            " VALUES (%s, %s, 'late', 't', '1', now() - interval '8 days')",
            [first + 500, topic],
        )
        pass_everywhere()  # every place passes the open row, which is late from now on
        purging = threading.Thread(target=lambda: (purge_outbox(), connections.close_all()))
        purging.start()
        wait_until(waits_for_the_outbox)
        slow.commit()
        purging.join(timeout=60)
    assert not purging.is_alive()
    assert exists(first)
    run_relay_until_drained()
    assert purge_outbox() > 0


def test_an_open_writer_only_puts_the_purge_off():
    first, topic = an_old_partition()
    with open_connection() as slow:
        slow.execute("INSERT INTO relay_outbox (topic, key, type, payload) VALUES (%s, 'k', 't', '1')", [topic])
        purge_outbox()
        assert exists(first)
        slow.rollback()
    assert purge_outbox() > 0


def waits_for_the_outbox():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'relay_outbox'::regclass"
            " AND mode = 'AccessExclusiveLock'"
        )
        return cursor.fetchone()[0]


# -- Repeated event ids ------------------------------------------------------------------------------------
def write(topic, event_id, payload, key="k"):
    with transaction.atomic():
        publish(topic, key=key, type="t", payload=payload, event_id=event_id)


def test_the_same_id_with_other_bytes_is_an_incident_and_found_once():
    topic, event_id = make_topic(create=False), uuid4()
    find_duplicate_ids()
    write(topic, event_id, 1)
    write(topic, event_id, 2)
    # any open transaction of the server puts the look off: other test runs share it
    assert wait_until(find_duplicate_ids) == 1
    assert has_incident(IncidentKind.RELAY_DUPLICATE_ID, topic)
    assert find_duplicate_ids() == 0


def test_an_identical_repeat_is_counted_and_is_no_incident():
    topic, event_id = make_topic(create=False), uuid4()
    find_duplicate_ids()
    before = get_relay_status().repeated_ids
    for _ in range(3):
        write(topic, event_id, 1)
    conflicts = []
    wait_until(lambda: conflicts.append(find_duplicate_ids()) or get_relay_status().repeated_ids != before)
    assert get_relay_status().repeated_ids == before + 3  # pairs: 1-2, 1-3, 2-3
    assert sum(conflicts) == 0
    assert not has_incident(IncidentKind.RELAY_DUPLICATE_ID, topic)


def test_a_row_that_commits_after_later_ones_were_looked_at_is_looked_at_too():
    topic, event_id = make_topic(create=False), uuid4()
    find_duplicate_ids()
    with open_connection() as slow:
        slow.execute(
            "INSERT INTO relay_outbox (id, topic, key, type, payload) VALUES (%s, %s, 'k', 't', '1')", [event_id, topic]
        )
        write(topic, event_id, 2)
        assert find_duplicate_ids() == 0
        slow.commit()
    assert wait_until(find_duplicate_ids) == 1


def test_many_rows_are_looked_through_slice_by_slice(settings):
    settings.RELAY_DUPLICATE_SCAN_ROWS = 7
    settings.RELAY_DUPLICATE_SCAN_S = 60
    topic, event_id = make_topic(create=False), uuid4()
    find_duplicate_ids()
    write(topic, event_id, 1)
    publish_keys(topic, keys=3, rows=30)
    write(topic, event_id, 1, key="other")
    assert wait_until(find_duplicate_ids) == 1
