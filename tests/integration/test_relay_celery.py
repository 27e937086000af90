import threading

import pytest
from django.db import connection

from relay import celery_runner, tasks
from relay.facade import get_relay_status, last_finished_age_s
from relay.runner import Runner
from tests.relay_helpers import (
    count_unsent,
    first_occurrences,
    make_topic,
    publish_keys,
    read_topic,
    skip_to_now,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()
    celery_runner._shutting_down.clear()
    yield
    celery_runner.stop_all()
    wait_until(lambda: not celery_runner._running)
    celery_runner._shutting_down.clear()


def start_tick():
    thread = threading.Thread(target=tasks.tick.run)
    thread.start()
    return thread


def test_a_tick_publishes_and_ends_at_its_limit_without_a_successor(settings):
    settings.RELAY_TASK_BUDGET_S, settings.RELAY_TASK_LIMIT_S, settings.RELAY_STOP_WITHIN_S = 1, 4, 1
    topic = make_topic()
    expected = publish_keys(topic, keys=5, rows=50)
    thread = start_tick()
    wait_until(lambda: count_unsent() == 0)
    assert get_relay_status().runners[0].kind == "celery"
    thread.join(timeout=15)
    assert not thread.is_alive()
    assert first_occurrences(read_topic(topic)) == expected
    assert get_relay_status().runners == []


def test_a_second_tick_returns_at_once_while_the_first_one_has_time_left():
    thread = start_tick()
    wait_until(lambda: celery_runner._running)
    assert celery_runner.run_if_needed() is False
    assert thread.is_alive()


def test_past_its_budget_a_runner_hands_its_shards_to_its_successor(settings):
    settings.RELAY_TASK_BUDGET_S, settings.RELAY_TASK_OVERLAP_S, settings.RELAY_HANDOVER_NOTICE_MS = 3, 2, 100
    topic = make_topic()
    first = start_tick()
    wait_until(lambda: celery_runner._running and len(celery_runner._running[0].engine.shards) == 64)
    expected = publish_keys(topic, keys=5, rows=20)
    wait_until(lambda: celery_runner._running[0].age_s() > 1)
    second = start_tick()
    wait_until(lambda: len(celery_runner._running) == 2)
    more = publish_keys(topic, keys=5, rows=50, start=20)
    first.join(timeout=20)
    assert not first.is_alive()
    wait_until(lambda: len(celery_runner._running[0].engine.shards) == 64)
    wait_until(lambda: count_unsent() == 0)
    messages = read_topic(topic)
    assert first_occurrences(messages) == {key: expected[key] + more[key] for key in expected}
    assert len(messages) == 70
    assert second.is_alive()


def test_the_workers_shutdown_stops_the_runner_and_starts_no_other():
    thread = start_tick()
    wait_until(lambda: celery_runner._running)
    celery_runner._on_shutdown()
    thread.join(timeout=15)
    assert not thread.is_alive()
    assert celery_runner.run_if_needed() is False


def test_housekeeping_keeps_eight_partitions_ahead_and_forgets_what_is_old():
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM relay_outbox_position")
        (before,) = cursor.fetchone()
        cursor.execute("SELECT setval('relay_outbox_position', %s)", [before + 2_000_000])
        cursor.execute(
            "INSERT INTO relay_stat (at, runner, sent, buckets)"
            " VALUES (now() - interval '2 h', gen_random_uuid(), 1, '{}')"
        )
        cursor.execute("DELETE FROM relay_sweep WHERE name = 'relay.housekeeping'")
    assert get_relay_status().partitions_ahead < 8
    tasks.housekeeping.run()
    assert get_relay_status().partitions_ahead == 8
    assert last_finished_age_s("relay.housekeeping") is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM relay_stat WHERE at < now() - interval '1 h'")
        assert cursor.fetchone() == (0,)


def test_a_leaving_runner_keeps_its_shards_until_its_successor_can_have_heard_of_it(settings):
    settings.RELAY_HEARTBEAT_EVERY_MS, settings.RELAY_HANDOVER_NOTICE_MS = 10, 3_600_000
    leaving, successor = Runner(name="leaving", kind="celery"), Runner(name="successor", kind="celery")
    turn(leaving, until=lambda: len(leaving.engine.shards) == settings.RELAY_SHARDS)
    turn(successor, until=lambda: successor._store is not None)
    leaving.budget_s = 0
    turn(leaving, until=lambda: leaving._gives_from is not None)
    turn(successor, until=lambda: any(peer.leaving for peer in successor._peers))
    turn(leaving)
    assert len(leaving.engine.shards) == settings.RELAY_SHARDS
    leaving._gives_from = leaving._due.share = 0.0
    turn(leaving, until=lambda: not leaving.engine.shards)
    turn(successor, until=lambda: len(successor.engine.shards) == settings.RELAY_SHARDS)
    for runner in (leaving, successor):
        runner._leave()


def turn(runner, until=None):
    runner._turn()
    if until is not None:
        wait_until(lambda: until() or runner._turn())
