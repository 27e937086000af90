"""What people do to the relay: pause and resume a topic or a key, try again now, skip a row."""

import pytest
from django.db import connection, transaction

from relay.errors import AlreadyPaused, BadKey, BadReason, NotPaused, NotWaiting, UnknownTopic
from relay.facade import (
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
from tests.relay_helpers import make_topic, skip_to_now

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
    for key in (huge, raw, None):
        pause = (
            (lambda t, **more: pause_topic(t, **more)) if key is None else (lambda t, k=key, **m: pause_key(t, k, **m))
        )
        pause(topic, actor="ann", reason="x")
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
    assert deferred(topic) == [(rows[0].position, 0, False, True), (rows[1].position, 0, False, False)] + [
        (rows[2].position, 0, False, False)
    ]
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
