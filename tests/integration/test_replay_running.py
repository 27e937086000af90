"""Replays by running consumers: a key's order with records that arrive, and 10,000 items through kills and a cancel."""

import json
import threading
from base64 import b64encode
from uuid import uuid4

import pytest
from django.db import connection

from dlq.domain.quarantine import lane_of
from dlq.facade import (
    cancel_replay,
    get_replay,
    handler,
    list_quarantined,
    preview_replay,
    release_key,
    start_group,
    start_replay,
    stop_group,
)
from dlq.models import DeadLetter
from dlq.types import DeadLetterFilter, Permanent, QuarantineFilter, ReplayState, Selection
from tests.consumers import Child, Line, effects, make_effect_table, running, until, write_effect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def line(transactional_db, settings):
    settings.CONSUMER_SESSION_TIMEOUT_MS = 6_000
    settings.REPLAY_LOOK_EVERY_MS = settings.REPLAY_BUSY_LOOK_MS = 50
    make_effect_table()
    made = Line()
    yield made
    made.drop()


def replay_all(line):
    wanted = Selection(filter=DeadLetterFilter(group=line.group))
    asked = preview_replay(wanted, rate_per_s=None, actor="ada")
    return start_replay(asked.id, rate_per_s=None, reason="fixed", actor="ada", second="bob")


def test_a_key_that_is_replayed_while_records_arrive_has_each_effect_once_in_order(line):
    is_broken, second_runs, go = threading.Event(), threading.Event(), threading.Event()
    is_broken.set()

    def work(event, tx):
        if is_broken.is_set() and event.payload["key"] == "a":
            raise Permanent("no")
        if event.payload["n"] == 2:
            second_runs.set()
            assert go.wait(40)
        write_effect(event, tx)

    with running(line, work):
        for n, key in [(1, "a"), (2, "a"), (10, "b"), (3, "a"), (11, "b")]:
            line.put(n, key=key)
        until(lambda: line.committed() == 5)
        assert effects(line) == [("b", 10), ("b", 11)]
        (key,) = list_quarantined(wanted=QuarantineFilter(group=line.group)).keys
        assert key.letters == 3
        is_broken.clear()
        job = release_key(key.id, reason="fixed", actor="ada")
        assert second_runs.wait(40)
        line.put(4, key="a")
        line.put(12, key="b")
        until(lambda: ("b", 12) in effects(line))
        go.set()
        until(lambda: ("a", 4) in effects(line))
        done = until(lambda: j if (j := get_replay(job.id)).state is ReplayState.FINISHED else None)
    assert [n for key, n in effects(line) if key == "a"] == [1, 2, 3, 4]
    assert done.waiting_for == ""
    assert list_quarantined(wanted=QuarantineFilter(group=line.group)).keys == []


def test_a_stopped_group_replays_nothing_until_it_is_started(line):
    def work(event, tx):
        if broken:
            raise Permanent("no")
        write_effect(event, tx)

    broken = True
    line.put(1)
    with running(line, work):
        until(lambda: DeadLetter.objects.filter(group=line.group).exists())
        broken = False
        stop_group(line.group, actor="ada", reason="look")
        job = replay_all(line)
        assert "stopped by ada" in get_replay(job.id).waiting_for
        start_group(line.group, actor="ada")
        until(lambda: get_replay(job.id).applied == 1)
    assert effects(line) == [("k", 1)]


def fill(line, total):
    """Park records without Kafka: the bytes of a record, as `seal` keeps them."""
    columns = "id, group_name, handler, topic, partition, log_offset, original_key, original_value, original_headers,"
    columns += " key_label, event_id, event_type, failure_class, error_class, error_message, stack, fingerprint,"
    columns += " attempts, state, parked_at, lane"
    with connection.cursor() as cursor, cursor.copy(f"COPY dlq_dead_letter ({columns}) FROM STDIN") as copy:
        for n in range(total):
            event_id, key = uuid4(), f"k{n}"
            headers = [["event-id", b64encode(str(event_id).encode()).decode()]]
            headers.append(["event-type", b64encode(b"thing.done").decode()])
            value = json.dumps({"n": n, "key": key}).encode()
            copy.write_row([
                uuid4(), line.group, "h", line.topic, 0, n, key.encode(), value, json.dumps(headers).encode(), "key#x",
                event_id, "thing.done", "permanent", "E", "", "", "cause", 1, "parked", "2026-11-30T10:00Z",
                lane_of(line.group, line.topic, key.encode()),
            ])  # fmt: skip


def check_truth(line, job, total):
    """The page says what the rows say: each dead letter is parked without an effect, or applied with exactly one."""
    done = [n for _, n in effects(line)]
    applied = frozenset(done)
    assert len(done) == len(set(done))
    states = dict.fromkeys(("applied", "parked"), 0)
    for d in DeadLetter.objects.filter(group=line.group).only("state", "offset"):
        states[d.state] += 1
        assert (d.state == "applied") == (d.offset in applied)
    assert states == {"applied": len(done), "parked": total - len(done)}
    assert job.settled + job.queued + job.running == job.total


@pytest.mark.timeout(600)
@pytest.mark.parametrize("total", [600, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_replay_of_many_goes_through_a_kill_and_a_cancel_with_nothing_lost_or_done_twice(line, total):
    handler(topic=line.topic, group=line.group)(write_effect)
    fill(line, total)
    job = replay_all(line)
    first = Child(line, module="tests.replay_child")
    try:
        applied_of(job, total // 20)
    finally:
        first.kill()
    check_truth(line, get_replay(job.id), total)
    second = Child(line, module="tests.replay_child")
    try:
        applied_of(job, get_replay(job.id).applied + total // 20)
        job = cancel_replay(job.id, expected_version=job.version, reason="enough", actor="ada")
        assert job.state is ReplayState.CANCELLED
        job = until(lambda: j if (j := get_replay(job.id)).running == 0 else None, within_s=90)
        assert job.applied + job.skipped == job.total == total
        check_truth(line, job, total)
        rest = replay_all(line)
        assert rest.total == total - job.applied
        until(lambda: get_replay(rest.id).state is ReplayState.FINISHED, within_s=240)
        check_truth(line, get_replay(rest.id), total)
        assert len(effects(line)) == total
    finally:
        second.end()


def applied_of(job, wanted):
    until(lambda: get_replay(job.id).applied >= wanted, within_s=120, what=f"{wanted} applied")
