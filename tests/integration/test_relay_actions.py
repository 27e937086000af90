"""What people do to the relay: pause and resume a topic or a key, try again now, skip a row."""

import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import pytest
from django.db import connection, transaction

from relay.errors import AlreadyPaused, BadKey, BadReason, NotPaused, NotWaiting, UnknownTopic
from relay.facade import (
    get_relay_status,
    list_open_incidents,
    list_pauses,
    list_skipped,
    pause_key,
    pause_topic,
    publish,
    resume_key,
    resume_topic,
    retry_now,
    retry_topic_now,
    skip_row,
)
from relay.store import Changes, Deferral, Store, connect
from tests.relay_helpers import (
    alter_topic,
    count_unsent,
    end_leases,
    event_id,
    first_occurrences,
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
def _fresh():
    skip_to_now()


def defer(events, *, failed=False, due_s=None, attempts=1):
    """Set rows aside as a relay would have; the checkpoints pass them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_deferred (shard, position, topic, key, event_id, attempts, failed, due_at, error)"
            " SELECT shard, position, topic, key, id, %s, %s, clock_timestamp() + make_interval(secs => %s), 'x: y'"
            " FROM relay_outbox WHERE id = ANY(%s)",
            [attempts, failed, due_s, [e.id for e in events]],
        )
        cursor.execute("UPDATE relay_checkpoint SET hw = %s, snapshot = pg_current_snapshot()", [events[-1].position])


def publish_rows(topic, key, n):
    with transaction.atomic():
        return [publish(topic, key=key, type="t", payload=i) for i in range(n)]


# -- What is refused ---------------------------------------------------------------------------------------
def test_a_topic_is_paused_once_and_resumed_once():
    topic = make_topic(create=False)
    pause_topic(topic, actor="ann", reason="migration")
    with pytest.raises(AlreadyPaused, match="by ann: migration"):
        pause_topic(topic, actor="bob", reason="me too")
    (pause,) = [p for p in list_pauses() if p.topic == topic]
    assert (pause.key, pause.key_label, pause.paused_by, pause.reason) == (None, None, "ann", "migration")
    resume_topic(topic, actor="bob")
    with pytest.raises(NotPaused):
        resume_topic(topic, actor="bob")
    assert not [p for p in list_pauses() if p.topic == topic]


def test_keys_are_paused_apart_from_their_topic_and_from_each_other():
    topic, huge, raw = make_topic(create=False), bytes(range(256)) * 40, b"\xff\xfe\x00"
    pause_topic(topic, actor="ann", reason="x")
    for key in (huge, raw):
        pause_key(topic, key, actor="ann", reason="x")
    with pytest.raises(AlreadyPaused):
        pause_key(topic, huge, actor="ann", reason="x")
    assert {p.key for p in list_pauses() if p.topic == topic} == {huge, raw, None}
    assert "\\xff" not in repr(list_pauses())
    resume_key(topic, huge, actor="ann")
    with pytest.raises(NotPaused):
        resume_key(topic, huge, actor="ann")
    assert {p.key for p in list_pauses() if p.topic == topic} == {raw, None}


@pytest.mark.parametrize("key", [b"", None, "text", b"x" * 2_000_000], ids=["empty", "none", "text", "huge"])
def test_a_key_that_no_record_can_have_is_refused(key):
    with pytest.raises(BadKey):
        pause_key(make_topic(create=False), key, actor="ann", reason="x")


def test_an_undeclared_topic_is_refused():
    for act in (
        lambda: pause_topic("nobody-declared-this", actor="ann", reason="x"),
        lambda: pause_key("nobody-declared-this", b"k", actor="ann", reason="x"),
        lambda: resume_topic("nobody-declared-this", actor="ann"),
        lambda: resume_key("nobody-declared-this", b"k", actor="ann"),
    ):
        with pytest.raises(UnknownTopic):
            act()


@pytest.mark.parametrize(
    "words",
    [{"actor": ""}, {"reason": "  "}, {"reason": "x" * 501}, {"reason": "\ud800"}],
    ids=["no actor", "no reason", "long reason", "no text"],
)
def test_no_act_without_a_name_and_a_reason(words):
    topic = make_topic(create=False)
    (row,) = publish_rows(topic, "k", 1)
    defer([row], failed=True)
    said = {"actor": "ann", "reason": "x"} | words
    for act in (lambda: pause_topic(topic, **said), lambda: pause_key(topic, b"k", **said)):
        with pytest.raises(BadReason):
            act()
    with pytest.raises(BadReason):
        skip_row(row.position, **said)
    assert not [p for p in list_pauses() if p.topic == topic]
    assert count_deferred(topic) == 1


def test_only_a_row_that_was_set_aside_is_skipped_and_only_once():
    topic = make_topic(create=False)
    waiting, *_ = publish_rows(topic, "k", 2)
    for position in (waiting.position, 0, 2**62):
        with pytest.raises(NotWaiting, match="not set aside"):
            skip_row(position, actor="ann", reason="x")
    defer([waiting], failed=True, attempts=10)
    skipped = skip_row(waiting.position, actor="ann", reason="broken by us")
    assert (skipped.event_id, skipped.skipped_by, skipped.reason) == (waiting.id, "ann", "broken by us")
    assert (skipped.attempts, skipped.error, skipped.type, skipped.sent_anyway) == (10, "x: y", "t", False)
    assert list_skipped(1) == [skipped]
    assert count_deferred(topic) == 0
    with pytest.raises(NotWaiting):
        skip_row(waiting.position, actor="bob", reason="again")


def test_a_retry_makes_the_first_row_of_the_key_due_with_all_its_attempts_again():
    topic = make_topic(create=False)
    rows = publish_rows(topic, "k", 3)
    defer(rows[:1], failed=True, attempts=10)
    defer(rows[1:], attempts=0)
    assert retry_now(topic, b"k", actor="ann") == 1
    assert [row[1:] for row in deferred(topic)] == [(0, False, True), (0, False, False), (0, False, False)]
    with pytest.raises(NotWaiting):
        retry_now(topic, b"other", actor="ann")
    pause_key(topic, b"k", actor="bob", reason="x")
    with pytest.raises(NotWaiting, match="paused by bob"):
        retry_now(topic, b"k", actor="ann")


def test_a_retry_of_a_topic_is_bounded_and_leaves_paused_keys_alone(settings):
    settings.RELAY_RETRY_TOPIC_ROWS = 2
    topic = make_topic(create=False)
    rows = [publish_rows(topic, f"k{n}", 1)[0] for n in range(4)]
    defer(rows, due_s=500)
    pause_key(topic, b"k0", actor="bob", reason="x")
    assert [retry_topic_now(topic, actor="ann") for _ in range(3)] == [2, 1, 0]
    assert [due for *_, due in deferred(topic)] == [False, True, True, True]


# -- What a running relay does -----------------------------------------------------------------------------
def test_a_paused_topic_waits_in_order_over_a_restart_while_others_go_on():
    paused, other = make_topic("paused"), make_topic("other")
    with running_relay() as runner:
        expected = publish_keys(paused, keys=5, rows=40)
        pause_topic(paused, actor="ann", reason="migration")
        wait_until(lambda: paused in runner.engine.paused_topics)
        wait_until(lambda: count_unsent() == 0)
        merge(expected, publish_keys(paused, keys=5, rows=40, start=40))
        publish_keys(other, keys=5, rows=40)
        wait_until(lambda: len(read_topic(other)) == 40)
        assert len(read_topic(paused)) == 40
        (hold,) = wait_until(lambda: get_relay_status().holds)
        assert (hold.topic, hold.reason) == (paused, "paused: by ann: migration")
        assert not [i for i in list_open_incidents() if i.cause == paused]
    with running_relay() as runner:
        wait_until(lambda: len(runner.engine.shards) == 64)
        merge(expected, publish_keys(paused, keys=5, rows=20, start=80))
        publish_keys(other, keys=5, rows=10)
        wait_until(lambda: len(read_topic(other)) == 50)
        assert len(read_topic(paused)) == 40
        resume_topic(paused, actor="bob")
        wait_until(lambda: count_unsent() == 0)
    messages = read_topic(paused)
    assert first_occurrences(messages) == expected
    assert len(messages) == 100  # a pause repeats nothing


def test_two_relays_obey_a_pause_within_a_second_or_two_and_keep_the_order():
    topic = make_topic()
    with running_relay() as one, running_relay() as two:
        wait_until(lambda: len(one.engine.shards) == len(two.engine.shards) == 32)
        expected = publish_keys(topic, keys=20, rows=100)
        pause_topic(topic, actor="ann", reason="x")
        began = time.monotonic()
        wait_until(lambda: topic in one.engine.paused_topics and topic in two.engine.paused_topics)
        assert time.monotonic() - began < 5  # a beat is a second; the rest is a busy machine
        wait_until(lambda: len(read_topic(topic)) == 100)
        merge(expected, publish_keys(topic, keys=20, rows=100, start=100))
        wait_until(lambda: sum(h.shards for h in get_relay_status().holds) > 1)
        assert len(read_topic(topic)) == 100
        resume_topic(topic, actor="ann")
        wait_until(lambda: count_unsent() == 0)
    assert first_occurrences(read_topic(topic)) == expected


@pytest.mark.parametrize("step", ["produce", "settle"])
def test_a_relay_killed_while_a_topic_and_a_key_are_paused_loses_neither_the_pause_nor_the_order(step):
    paused, other = make_topic("paused"), make_topic("other", partitions=1)
    pause_topic(paused, actor="ann", reason="x")
    pause_key(other, b"k0", actor="ann", reason="x")
    expected, others = publish_keys(paused, keys=4, rows=20), publish_keys(other, keys=3, rows=30)
    with relay_child(step, 1) as child:
        assert child.wait(timeout=60) == -signal.SIGKILL
    end_leases()
    with running_relay():
        wait_until(lambda: len(first_occurrences(read_topic(other))) == 2)
        wait_until(lambda: [d.rows for d in get_relay_status().deferred] == [10])
        assert read_topic(paused) == []
        resume_topic(paused, actor="bob")
        resume_key(other, b"k0", actor="bob")
        wait_until(lambda: count_unsent() == 0)
    assert first_occurrences(read_topic(paused)) == expected
    assert first_occurrences(read_topic(other)) == others


def test_a_paused_key_waits_alone_also_when_nothing_of_it_was_there():
    topic = make_topic(partitions=1)
    pause_key(topic, b"k1", actor="ann", reason="x")
    with running_relay() as runner:
        expected = publish_keys(topic, keys=3, rows=60)
        wait_until(lambda: len(read_topic(topic)) == 40)
        assert b"k1" not in first_occurrences(read_topic(topic))
        assert get_relay_status().deferred[0].rows == 20
        resume_key(topic, b"k1", actor="ann")
        merge(expected, publish_keys(topic, keys=3, rows=60, start=60))
        wait_until(lambda: count_unsent() == 0)
        assert not runner.engine.keys
        merge(expected, publish_keys(topic, keys=3, rows=9, start=120))  # the key is back in the log
        wait_until(lambda: count_unsent() == 0)
    messages = read_topic(topic)
    assert first_occurrences(messages) == expected
    assert len(messages) == 129


def test_a_key_that_is_never_quiet_rejoins_the_log_after_its_pause():
    topic = make_topic(partitions=1)
    pause_key(topic, b"k", actor="ann", reason="x")
    ended = threading.Event()
    ids = []

    def publish_steadily():
        while not ended.is_set():
            ids.extend(str(e.id) for e in publish_rows(topic, "k", 2))
            ended.wait(0.02)

    with running_relay() as runner, ThreadPoolExecutor(1) as writer:
        writing = writer.submit(in_own_connection, publish_steadily)
        try:
            wait_until(lambda: count_deferred(topic) > 200)
            resume_key(topic, b"k", actor="ann")
            wait_until(lambda: (topic, b"k") not in {*runner.engine.paused_keys, *runner.engine.keys})
            sent = runner.engine.sent_total
            wait_until(lambda: runner.engine.sent_total > sent + 50)
            assert (topic, b"k") not in runner.engine.keys
        finally:
            ended.set()
            writing.result(60)
        wait_until(lambda: count_unsent() == 0)
    assert [event_id(m) for m in read_topic(topic)] == ids


def test_a_retry_by_a_person_sends_the_row_and_those_behind_it_in_order():
    topic = make_topic(partitions=1)
    alter_topic(topic, "max.message.bytes", "2000")
    with running_relay():
        with transaction.atomic():
            events = [publish(topic, key="k", type="t", payload="x" * size) for size in (5_000, 10, 20)]
        wait_until(lambda: [d.failed for d in get_relay_status().deferred] == [True])
        assert retry_now(topic, b"k", actor="ann") == 1
        wait_until(lambda: deferred(topic)[0][1:3] == (1, True))  # tried again, and refused again
        alter_topic(topic, "max.message.bytes", "1000000")
        wait_until(lambda: retry_topic_now(topic, actor="ann") < 1 and count_unsent() == 0, every_s=0.5)
    assert [event_id(m) for m in read_topic(topic)] == [str(e.id) for e in events]


def test_a_skipped_row_is_never_sent_and_the_rest_of_its_key_keeps_its_order():
    topic = make_topic(partitions=1)
    with running_relay():
        bad = insert_bad_headers(topic, "k")
        events = publish_rows(topic, "k", 4)
        wait_until(lambda: count_deferred(topic) == 5)
        skip_row(bad, actor="ann", reason="its writer is corrected")
        wait_until(lambda: count_unsent() == 0)
        events += publish_rows(topic, "k", 2)
        wait_until(lambda: count_unsent() == 0)
    assert [event_id(m) for m in read_topic(topic)] == [str(e.id) for e in events]


def test_acts_that_come_while_relays_fail_and_retry_the_same_rows_lose_nothing():
    topic = make_topic(partitions=3)
    keys = [f"k{n}" for n in range(12)]
    bad = {key: [] for key in keys}
    expected = {}
    with running_relay(), running_relay():
        for turn in range(3):
            for key in keys:
                bad[key].append(insert_bad_headers(topic, key))
                expected.setdefault(key.encode(), []).extend(str(e.id) for e in publish_rows(topic, key, 3))
            act_until_gone(topic, [positions[turn] for positions in bad.values()])
        wait_until(lambda: count_unsent() == 0)
    messages = read_topic(topic)
    assert first_occurrences(messages) == expected
    assert len(messages) == sum(map(len, expected.values()))
    skipped = {s.position for s in list_skipped(100) if s.topic == topic}
    assert skipped == {position for positions in bad.values() for position in positions}


def act_until_gone(topic, positions):
    """One person retries all the time, another skips each bad row once, at any moment."""

    def retry():
        while count_waiting(topic, positions):
            retry_topic_now(topic, actor="ann")

    def skip():
        left = list(positions)
        while left:
            with suppress(NotWaiting):
                skip_row(left[0], actor="bob", reason="x")
                left.pop(0)

    with ThreadPoolExecutor(2) as people:
        for act in [people.submit(in_own_connection, retry), people.submit(in_own_connection, skip)]:
            act.result(60)


def in_own_connection(act):
    try:
        act()
    finally:
        connection.close()


# -- What a runner may still write -------------------------------------------------------------------------
def test_a_runner_that_read_a_row_before_a_person_acted_overwrites_nothing():
    topic = make_topic(create=False)
    retried, skipped, sent = (publish_rows(topic, f"k{n}", 1)[0] for n in range(3))
    defer([retried, skipped, sent], failed=True, attempts=10)
    store = Store(connect("test"), uuid4(), 10)
    read = {d.position: d for d in store.load_deferred(range(64)) if d.topic == topic}
    retry_now(topic, b"k0", actor="ann")
    skip_row(skipped.position, actor="ann", reason="x")
    skip_row(sent.position, actor="ann", reason="x")
    for deferral in read.values():
        deferral.attempts, deferral.error = 11, "late: word"
    stale = Changes(defer=[read[retried.position], read[skipped.position]], undefer=[_place(read[sent.position])])
    store.settle(stale)
    assert [row[:3] for row in deferred(topic)] == [(retried.position, 0, False)]
    assert {s.position: s.sent_anyway for s in list_skipped(2)} == {skipped.position: False, sent.position: True}
    store.settle(Changes(park=[read[retried.position]]))
    assert count_deferred(topic) == 1
    store.close()


def _place(deferral: Deferral):
    return deferral.shard, deferral.position


def test_a_key_of_any_size_is_set_aside_and_sent_again():
    topic = make_topic(partitions=1)
    key = random.Random(1).randbytes(100_000)  # longer than an index takes, and nothing to compress
    pause_key(topic, key, actor="ann", reason="x")
    with running_relay():
        events = publish_rows(topic, key, 3)
        wait_until(lambda: count_deferred(topic) == 3)
        resume_key(topic, key, actor="ann")
        wait_until(lambda: count_unsent() == 0)
    assert first_occurrences(read_topic(topic)) == {key: [str(e.id) for e in events]}


def merge(expected, more):
    for key, ids in more.items():
        expected.setdefault(key, []).extend(ids)


def insert_bad_headers(topic, key):
    """A row by plain SQL that cannot be sent; its position."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type, headers, payload) VALUES (%s, %s, 't', '[[\"x\", 5]]', '1')"
            " RETURNING position",
            [topic, key.encode()],
        )
        return cursor.fetchone()[0]


def count_waiting(topic, positions):
    return len([row for row in deferred(topic) if row[0] in positions])


def count_deferred(topic):
    return len(deferred(topic))


def deferred(topic):
    """(position, attempts, failed, is due) of the topic's deferred rows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT position, attempts, failed, coalesce(due_at <= clock_timestamp(), false) FROM relay_deferred"
            " WHERE topic = %s ORDER BY position",
            [topic],
        )
        return cursor.fetchall()
