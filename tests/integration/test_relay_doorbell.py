import os
import signal
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection, transaction

from relay.bell import CHANNEL, Bell, open_bell
from relay.facade import get_relay_status, publish, publish_many
from relay.store import connect
from relay.types import EventDraft
from tests.relay_helpers import (
    count_unsent,
    database_url,
    make_topic,
    publish_keys,
    read_topic,
    relay_child,
    running_relay,
    skip_to_now,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh(settings):
    settings.DATABASE_DIRECT_URL = database_url()
    skip_to_now()


@pytest.fixture
def listener():
    """Counts the rings of commits."""
    with psycopg.connect(database_url(), autocommit=True) as conn:
        conn.execute(f"LISTEN {CHANNEL}")

        def count():
            conn.execute("SELECT 1")
            return sum(1 for _ in conn.notifies(timeout=0))

        yield count


@pytest.fixture
def bell():
    with connect("test") as store, open_bell("test", store)._conn as conn:
        yield Bell(conn)


def write(rows=1):
    with transaction.atomic():
        publish_many(EventDraft(topic=unused_topic(), key=f"k{n}", type="t", payload=n) for n in range(rows))


def unused_topic():
    return make_topic("rung", create=False)


def test_a_commit_wakes_a_sleeping_relay_before_its_fallback(settings):
    settings.RELAY_IDLE_WAIT_MS = 600_000  # longer than the test: only a ring wakes it
    settings.RELAY_BELL_IDLE_S = 600
    settings.RELAY_LEASE_S = 600
    topic = make_topic()
    with running_relay() as runner:
        wait_until(lambda: runner._bell is not None and runner._bell.is_armed)
        for n in range(3):
            rung = runner.wakes["bell"]
            with transaction.atomic():
                publish(topic, key="k", type="t", payload=n)
            wait_until(lambda n=n: len(read_topic(topic)) == n + 1)
            assert runner.wakes["bell"] > rung
            wait_until(lambda: runner._bell.is_armed)
        assert runner.wakes["fallback"] == 0
        settings.RELAY_IDLE_WAIT_MS = 10
        runner.stop()
        publish_keys(topic, keys=1, rows=1)


def test_commits_are_silent_while_nobody_sleeps(listener):
    for _ in range(3):
        write()
    assert listener() == 0


def test_each_commit_rings_once_while_somebody_sleeps_however_many_rows_it_has(listener, bell):
    assert bell.arm()
    write(rows=500)
    write(rows=1)
    assert bell.wait(30)
    assert listener() == 2
    bell.disarm()
    write()
    assert listener() == 0


def test_a_rolled_back_transaction_does_not_ring(listener, bell):
    assert bell.arm()
    with transaction.atomic():
        publish(unused_topic(), key="k", type="t", payload=1)
        transaction.set_rollback(True)
    assert listener() == 0


def test_rows_in_a_partition_that_was_attached_later_ring_too(listener, bell):
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(from_position) FROM relay_outbox_partition")
        cursor.execute("SELECT setval('relay_outbox_position', %s)", [cursor.fetchone()[0]])
        cursor.execute("SELECT relay_outbox_ensure_partitions(1000000, 8)")
        cursor.execute("SELECT max(to_position) FROM relay_outbox_partition")
        cursor.execute("SELECT setval('relay_outbox_position', %s)", [cursor.fetchone()[0] - 1_000])
        cursor.execute("SELECT relay_outbox_ensure_partitions(1000000, 8)")
    assert bell.arm()
    write()
    assert listener() == 1


def test_a_killed_sleeper_rings_no_more(listener):
    with relay_child(DATABASE_DIRECT_URL=database_url()) as child:
        wait_until(lambda: rings(listener))
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: not rings(listener))


def test_a_sleeper_that_hangs_is_put_out_by_the_server(listener):
    with relay_child(DATABASE_DIRECT_URL=database_url()) as child:
        wait_until(lambda: rings(listener))
        os.kill(child.pid, signal.SIGSTOP)
        wait_until(lambda: not rings(listener))
        os.kill(child.pid, signal.SIGCONT)
        wait_until(lambda: rings(listener))


def test_without_a_direct_connection_the_relay_polls_and_the_status_says_so(settings):
    with running_relay() as runner:
        wait_until(lambda: [r.doorbell for r in get_relay_status().runners] == [True])
        wait_until(lambda: runner.wakes["bell"] + runner.wakes["fallback"])
    settings.DATABASE_DIRECT_URL = ""
    topic = make_topic()
    with running_relay() as runner:
        wait_until(lambda: len(runner.engine.shards) == 64)
        publish_keys(topic, keys=2, rows=5)
        wait_until(lambda: count_unsent() == 0)
        wait_until(lambda: [r.doorbell for r in get_relay_status().runners] == [False])
        assert (runner.wakes["bell"], runner.wakes["fallback"]) == (0, 0)
    assert len(read_topic(topic)) == 5


def test_a_direct_connection_to_another_database_is_not_used(settings):
    settings.DATABASE_DIRECT_URL = urlsplit(database_url())._replace(path="/postgres").geturl()
    with running_relay() as runner:
        wait_until(lambda: runner.wakes["poll"])
        assert runner._bell is None


def test_a_bell_whose_connection_breaks_is_opened_again(settings):
    settings.RELAY_BELL_RETRY_S = 0
    with running_relay() as runner:
        wait_until(lambda: runner._bell is not None and runner._bell.is_armed)
        before = runner._bell
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'relay bell%'"
            )
        wait_until(lambda: runner._bell is not None and runner._bell is not before and runner._bell.is_armed)


def rings(listener):
    listener()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO relay_outbox (topic, key, type) SELECT 'x', 'k', 't' WHERE false")
    return listener() > 0
