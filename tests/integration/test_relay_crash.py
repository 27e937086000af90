import os
import signal
import threading

import pytest
from django.conf import settings
from django.db import connection, connections, transaction

from relay.domain.places import Place, Snapshot
from relay.facade import publish
from relay.runner import Runner
from relay.store import Changes, ShardsLostError, Store, connect
from tests.relay_helpers import (
    count_unsent,
    end_leases,
    event_id,
    first_occurrences,
    make_topic,
    open_connection,
    publish_keys,
    read_topic,
    relay_child,
    run_relay_until_drained,
    running_relay,
    skip_to_now,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()


@pytest.mark.parametrize(
    ("step", "nth"), [("claim", 1), ("read", 1), ("read", 2), ("produce", 1), ("report", 1), ("settle", 1)]
)
def test_a_relay_killed_at_any_step_loses_nothing_and_keeps_first_occurrences_in_order(step, nth, settings):
    settings.RELAY_ROUND_ROWS = 100
    topic = make_topic(partitions=4)
    expected = publish_keys(topic, keys=20, rows=300)
    with relay_child(step, nth) as child:
        if nth == 2:  # a second round needs rows that the first did not see
            # Or the first was cut, and the second came before anything arrived.
            wait_until(lambda: read_topic(topic) or child.poll() is not None)
            for key, ids in publish_keys(topic, keys=20, rows=200, start=300).items():
                expected[key] += ids
        assert child.wait(timeout=60) == -signal.SIGKILL
    end_leases()
    run_relay_until_drained()
    messages = read_topic(topic)
    assert first_occurrences(messages) == expected


def test_a_lower_position_that_commits_later_is_published():
    topic = make_topic(partitions=1)
    with running_relay() as runner:
        wait_until(lambda: len(runner.engine.shards) == 64)
        with open_connection() as slow:
            slow.execute("INSERT INTO relay_outbox (topic, key, type, payload) VALUES (%s, 'slow', 't', '1')", [topic])
            with transaction.atomic():
                quick = publish(topic, key="slow", type="t", payload=2)  # the same shard, a higher position
            wait_until(lambda: [event_id(m) for m in read_topic(topic)] == [str(quick.id)])
            wait_until(lambda: _hw(quick) >= quick.position)
            slow.commit()
        wait_until(lambda: len(read_topic(topic)) == 2)
        wait_until(lambda: count_unsent() == 0)
    assert len(read_topic(topic)) == 2


def test_late_rows_beyond_a_page_are_all_published_once(settings):
    settings.RELAY_LATE_ROWS = 50
    topic = make_topic(partitions=1)
    with running_relay() as runner:
        wait_until(lambda: len(runner.engine.shards) == 64)
        with open_connection() as slow:
            slow.execute(
                "INSERT INTO relay_outbox (topic, key, type, payload) SELECT %s, convert_to('k' || n, 'UTF8'), 't', '1'"
                " FROM generate_series(1, 500) n",
                [topic],
            )
            publish_keys(topic, keys=100, rows=200)  # every shard passes the slow transaction's positions
            wait_until(lambda: len(read_topic(topic)) == 200)
            slow.commit()
        wait_until(lambda: count_unsent() == 0)
    assert len({event_id(m) for m in read_topic(topic)}) == len(read_topic(topic)) == 700


def test_concurrent_writers_that_lock_their_keys_lose_nothing_and_keep_their_order():
    topic = make_topic(partitions=4)
    locks = [threading.Lock() for _ in range(8)]
    expected = {}

    def write(seed):
        for n in range(60):
            k = (n * 7 + seed) % len(locks)
            with locks[k]:
                with transaction.atomic():
                    event = publish(topic, key=f"k{k}", type="t", payload=n)
                    transaction.set_rollback(n % 20 == 19)
                if n % 20 != 19:
                    expected.setdefault(event.key, []).append(str(event.id))
        connections.close_all()

    with running_relay("one"), running_relay("two"):
        writers = [threading.Thread(target=write, args=[seed]) for seed in range(6)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(timeout=60)
        wait_until(lambda: count_unsent() == 0)
    assert first_occurrences(read_topic(topic)) == expected


def test_two_relays_share_the_shards_and_keep_the_order_of_each_key():
    topic = make_topic(partitions=4)
    expected = publish_keys(topic, keys=50, rows=100)
    with running_relay("one") as one:
        wait_until(lambda: len(one.engine.shards) == 64)
        with running_relay("two") as two:
            more = publish_keys(topic, keys=50, rows=400, start=100)
            wait_until(lambda: (len(one.engine.shards), len(two.engine.shards)) == (32, 32))
            wait_until(lambda: count_unsent() == 0)
        wait_until(lambda: len(one.engine.shards) == 64)
    messages = read_topic(topic)
    assert first_occurrences(messages) == {key: expected[key] + more[key] for key in expected}
    assert len(messages) == 500


def test_a_relay_paused_past_its_lease_cannot_settle_and_order_holds():
    topic = make_topic(partitions=2)
    expected = publish_keys(topic, keys=5, rows=50)
    with relay_child() as child:
        wait_until(lambda: count_unsent() == 0)
        os.kill(child.pid, signal.SIGSTOP)
        end_leases()
        more = publish_keys(topic, keys=5, rows=50, start=50)
        with running_relay() as runner:
            wait_until(lambda: len(runner.engine.shards) == 64)
            wait_until(lambda: count_unsent() == 0)
            os.kill(child.pid, signal.SIGCONT)
            last = publish_keys(topic, keys=5, rows=50, start=100)
            wait_until(lambda: count_unsent() == 0)
    messages = read_topic(topic)
    assert first_occurrences(messages) == {key: expected[key] + more[key] + last[key] for key in expected}


def test_a_write_back_of_an_older_epoch_is_refused_whole():
    stale = Store(connect("stale"), runner_id := Runner(name="x", kind="process").id, 10)
    stale.register("stale", "process")
    (claim,) = stale.claim(1)
    end_leases()
    with running_relay() as runner:
        wait_until(lambda: len(runner.engine.shards) == 64)
        place = Place(hw=claim.place.hw + 1, snapshot=Snapshot(xmin=1, xmax=1))
        with pytest.raises(ShardsLostError):
            stale.settle(Changes(moves=[(claim.shard, claim.epoch, place)], unhold=[(0, "t")]))
    stale.close()
    assert runner_id != runner.id


def test_a_runner_whose_row_is_removed_starts_over_and_goes_on():
    topic = make_topic()
    with running_relay() as runner:
        wait_until(lambda: len(runner.engine.shards) == 64)
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM relay_runner")
        expected = publish_keys(topic, keys=5, rows=20)
        wait_until(lambda: count_unsent() == 0)
    assert first_occurrences(read_topic(topic)) == expected


def test_a_relay_that_loses_its_database_connection_reconnects():
    topic = make_topic()
    with running_relay() as runner:
        wait_until(lambda: len(runner.engine.shards) == 64)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s",
                [f"relay {runner.name}%"],
            )
            assert cursor.fetchall() == [(True,)]
        expected = publish_keys(topic, keys=5, rows=20)
        wait_until(lambda: count_unsent() == 0)
    assert first_occurrences(read_topic(topic)) == expected


def test_sigterm_finishes_what_is_in_the_air_and_releases_the_shards():
    topic = make_topic()
    publish_keys(topic, keys=5, rows=50)
    with relay_child() as child:
        wait_until(lambda: len(read_topic(topic)) > 0)
        child.terminate()
        assert child.wait(timeout=settings.RELAY_STOP_WITHIN_S + 10) == 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM relay_checkpoint WHERE holder IS NOT NULL")
        held = cursor.fetchone()
        cursor.execute("SELECT count(*) FROM relay_runner")
        assert (held, cursor.fetchone()) == ((0,), (0,))
    run_relay_until_drained()
    assert len(read_topic(topic)) == 50


def _hw(event):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.hw FROM relay_checkpoint c JOIN relay_outbox o USING (shard) WHERE o.id = %s", [event.id]
        )
        return cursor.fetchone()[0]
