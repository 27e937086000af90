"""Relays that crash, stop or meet a slow, large or blocked neighbour; services that restart under load."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from django.db import connection, connections, transaction

from console.stack import postgres
from relay.facade import get_relay_status, publish
from tests.relay_helpers import (
    ROOT,
    count_unsent,
    end_leases,
    event_id,
    first_occurrences,
    make_topic,
    open_connection,
    publish_keys,
    read_topic,
    relay_child,
    running_relay,
    skip_to_now,
    wait_until,
)
from tests.stack import ServiceStack, make_folder

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()
    yield
    skip_to_now()


def add(expected, more):
    for key, ids in more.items():
        expected.setdefault(key, []).extend(ids)


def is_stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# -- Crashes and pauses ------------------------------------------------------------------------------------
@pytest.mark.timeout(400)
def test_relays_that_die_one_after_another_each_at_another_step_lose_nothing_and_keep_the_order():
    topic = make_topic(partitions=4)
    expected = {}
    for number, step in enumerate(("claim", "read", "produce", "report", "settle")):
        add(expected, publish_keys(topic, keys=20, rows=40, start=number * 40))
        with relay_child(step) as child:
            assert child.wait(timeout=100) == -signal.SIGKILL
        end_leases()
    with running_relay():
        wait_until(lambda: count_unsent() == 0)
    assert first_occurrences(read_topic(topic)) == expected


@pytest.mark.timeout(400)
@pytest.mark.parametrize("step", ["read", "produce"])
def test_a_relay_stopped_with_rows_in_hand_past_its_lease_overtakes_nobody_when_it_goes_on(step):
    topic = make_topic(partitions=2)
    expected = publish_keys(topic, keys=10, rows=300)
    with relay_child(step, RELAY_CHILD_SIGNAL="STOP") as child:
        wait_until(lambda: is_stopped(child.pid), within_s=100)
        with running_relay() as runner:
            wait_until(lambda: len(runner.engine.shards) == 64)  # its lease ran out by itself
            add(expected, publish_keys(topic, keys=10, rows=100, start=300))
            wait_until(lambda: count_unsent() == 0)
            os.kill(child.pid, signal.SIGCONT)
            wait_until(lambda: len(runner.engine.shards) == 32)  # it started over and has its share again
            add(expected, publish_keys(topic, keys=10, rows=100, start=400))
            wait_until(lambda: count_unsent() == 0)
    assert first_occurrences(read_topic(topic)) == expected


# -- Slow, large and blocked neighbours --------------------------------------------------------------------
def test_transactions_that_commit_in_the_reverse_order_of_their_rows_are_all_published():
    topic = make_topic(partitions=2)
    with running_relay() as runner:
        wait_until(lambda: len(runner.engine.shards) == 64)
        writers, wrote = [open_connection() for _ in range(20)], {}
        for number, writer in enumerate(writers):
            key = f"k{number}".encode()
            rows = writer.execute(
                "INSERT INTO relay_outbox (topic, key, type) SELECT %s, %s, 't' FROM generate_series(1, 3)"
                " RETURNING id",
                [topic, key],
            ).fetchall()
            wrote[key] = [str(row[0]) for row in rows]
        for count, writer in enumerate(reversed(writers), start=1):
            writer.commit()
            writer.close()
            wait_until(lambda count=count: len(read_topic(topic)) >= count * 3)
        wait_until(lambda: count_unsent() == 0)
    messages = read_topic(topic)
    assert first_occurrences(messages) == wrote
    assert len(messages) == 60


def test_an_idle_transaction_and_an_old_snapshot_delay_nobody_and_its_rows_come_when_it_ends():
    topic = make_topic(partitions=2)
    with running_relay() as runner, open_connection() as idle, open_connection() as snapshot:
        wait_until(lambda: len(runner.engine.shards) == 64)
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        snapshot.execute("SELECT count(*) FROM relay_runner")
        held = idle.execute(
            "INSERT INTO relay_outbox (topic, key, type) VALUES (%s, 'held', 't') RETURNING id", [topic]
        ).fetchone()[0]
        expected = publish_keys(topic, keys=64, rows=500)
        wait_until(lambda: len(read_topic(topic)) == 500)
        wait_until(lambda: count_unsent() == 0)
        idle.commit()
        wait_until(lambda: len(read_topic(topic)) == 501)
        wait_until(lambda: count_unsent() == 0)
    assert first_occurrences(read_topic(topic)) == {**expected, b"held": [str(held)]}


def test_a_row_of_two_megabytes_among_small_ones_keeps_its_place():
    topic = make_topic(partitions=1, max_bytes=3_000_000)
    expected = publish_keys(topic, keys=3, rows=100)
    with transaction.atomic():
        large = publish(topic, key="k1", type="t", payload=os.urandom(2_000_000))
    add(expected, {b"k1": [str(large.id)]})
    add(expected, publish_keys(topic, keys=3, rows=100, start=100))
    with running_relay():
        wait_until(lambda: count_unsent() == 0)
    messages = read_topic(topic)
    assert first_occurrences(messages) == expected
    assert [len(m.value()) for m in messages if event_id(m) == str(large.id)] == [2_000_000]


def test_a_thousand_blocked_keys_delay_no_other_key():
    topic = make_topic(partitions=3)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type, headers)"
            " SELECT %s, convert_to('bad' || n %% 1000, 'UTF8'), 't',"
            " CASE WHEN n < 1000 THEN '[[\"x\", 5]]'::jsonb ELSE '[]'::jsonb END FROM generate_series(0, 2999) n",
            [topic],
        )
    expected = publish_keys(topic, keys=20, rows=200)
    with running_relay():
        wait_until(lambda: len(read_topic(topic)) == 200)
        wait_until(lambda: deferred() == (3_000, 1_000))
        add(expected, publish_keys(topic, keys=20, rows=200, start=200))
        wait_until(lambda: len(read_topic(topic)) == 400)
        assert get_relay_status().verdict.word == "blocked"
        wait_until(lambda: deferred() == (3_000, 1_000))
    assert first_occurrences(read_topic(topic)) == expected


def deferred():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), count(*) FILTER (WHERE failed) FROM relay_deferred")
        return cursor.fetchone()


# -- Services that go away under load ----------------------------------------------------------------------
@pytest.mark.own_stack
def test_postgresql_restarts_under_load_and_nothing_is_lost_or_out_of_order():
    stack = ServiceStack(make_folder("races"))
    try:
        stack.start_postgres()
        url = postgres.ensure_database(stack.ports["postgres"], stack.password)
        report = check_through_a_restart(stack, url)
    finally:
        stack.stop()
        shutil.rmtree(stack.data, ignore_errors=True)
    assert report["faults"] == []
    assert (report["lost"], report["inversions"], report["unknown"]) == (0, 0, 0)
    assert report["writer_errors"] > 0


def check_through_a_restart(stack, url):
    env = {**os.environ, "DATABASE_URL": url, "DATABASE_DIRECT_URL": url, "SIGNALBOX_PROCESS": ""}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=env, check=True, timeout=120)
    checker = subprocess.Popen(
        [
            *(sys.executable, "manage.py", "check_relay", "--json", "--rows", "20000", "--keys", "500"),
            *("--kills", "2", "--relays", "2", "--timeout", "140"),
        ],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: acknowledged(url) > 1_000)
        stack.stop_one("postgres")
        stack.start_postgres()
        out, _ = checker.communicate(timeout=150)
    finally:
        checker.terminate()
    return json.loads(out)


def acknowledged(url):
    with psycopg.connect(url) as conn:
        return conn.execute("SELECT coalesce(sum(sent), 0) FROM relay_range").fetchone()[0]


@pytest.mark.long
@pytest.mark.own_stack
@pytest.mark.timeout(400)
def test_a_broker_that_is_stopped_for_a_minute_under_load_costs_no_attempt_and_no_order(settings):
    stack = ServiceStack(make_folder("races"))
    try:
        stack.start_kafka()
        settings.KAFKA_BOOTSTRAP_SERVERS = f"127.0.0.1:{stack.ports['kafka']}"
        topic = make_topic(partitions=3)
        expected, stopping = {}, threading.Event()

        def write():
            start = 0
            while not stopping.wait(0.5):
                add(expected, publish_keys(topic, keys=30, rows=60, start=start))
                start += 60
            connections.close_all()

        writer = threading.Thread(target=write)
        with running_relay() as runner:
            writer.start()
            wait_until(lambda: runner.engine.sent_total > 300)
            stack.stop_one("kafka", signal.SIGKILL)
            back_at = time.monotonic() + 60
            wait_until(lambda: runner.circuit.is_open)
            wait_until(lambda: deferred() != (0, 0) or time.monotonic() > back_at, within_s=90, every_s=0.5)
            assert deferred() == (0, 0)
            stack.start_kafka()
            wait_until(lambda: not runner.circuit.is_open, within_s=60)
            stopping.set()
            writer.join(timeout=30)
            wait_until(lambda: count_unsent() == 0)
        assert first_occurrences(read_topic(topic)) == expected
    finally:
        stack.stop()
        shutil.rmtree(stack.data, ignore_errors=True)
