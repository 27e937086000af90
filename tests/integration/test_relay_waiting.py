"""The list of waiting rows: every one with its reason, page by page; and the hold of events from outside."""

from collections import Counter

import pytest
from django.db import connection, transaction

from relay import ingress
from relay.errors import BadWaitingQuery, UnknownTopic
from relay.facade import (
    check_ingress,
    get_relay_status,
    list_waiting,
    pause_key,
    pause_relay,
    pause_topic,
    publish,
    resume_relay,
    set_ingress_hold,
)
from relay.types import WaitingFilter, WaitingState
from tests.relay_helpers import (
    alter_topic,
    make_topic,
    open_connection,
    publish_keys,
    run_relay_until_drained,
    running_relay,
    skip_to_now,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()


def pages(wanted, limit):
    """Every page of a list, at most 500."""
    found, cursor = [], None
    for _ in range(500):
        page = list_waiting(wanted, cursor=cursor, limit=limit)
        found.append(page.rows)
        cursor = page.next
        if cursor is None:
            return found
    raise AssertionError("the list has no end")


def lowest_place():
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(hw) FROM relay_checkpoint")
        return cursor.fetchone()[0]


def everything(wanted=WaitingFilter(), limit=7):  # noqa: B008 - frozen
    return [row for page in pages(wanted, limit) for row in page]


def test_every_waiting_row_is_listed_once_with_its_reason():
    failing, paused, missing = make_topic("failing"), make_topic("paused"), make_topic("missing", create=False)
    alter_topic(failing, "max.message.bytes", "2000")
    pause_topic(paused, actor="ann", reason="maintenance")
    pause_key(failing, b"quiet", actor="bob", reason="look first")
    with running_relay():
        with transaction.atomic():
            events = [publish(failing, key="k", type="t", payload="x" * size) for size in (5_000, 10, 20)]
            events += [publish(failing, key="quiet", type="t", payload=n) for n in range(2)]
            events += [publish(paused, key=n, type="t", payload=n) for n in range(9)]
            events += [publish(missing, key=n, type="t", payload=n) for n in range(8)]
        wait_until(lambda: sum(d.rows for d in get_relay_status().deferred) == 5)
        wait_until(lambda: {h.topic for h in get_relay_status().holds} == {paused, missing})
        wait_until(lambda: get_relay_status().unsent.value == len(events))
        rows = everything()
    assert [row.event_id for row in rows] == [e.id for e in events]
    assert Counter(row.state for row in rows) == {
        WaitingState.FAILED: 1,
        WaitingState.BEHIND: 2,
        WaitingState.PAUSED: 11,
        WaitingState.HELD: 8,
    }
    assert rows[0].why.startswith("failed, a person must act: too_large")
    assert (rows[0].may_skip, rows[0].may_retry, rows[0].attempts) == (True, True, 1)
    assert (rows[1].may_skip, rows[1].may_retry) == (True, False)
    assert rows[3].why == "key paused by bob: look first"
    assert rows[5].why == "topic paused by ann: maintenance"
    assert rows[-1].why.startswith("topic held: ")
    assert "quiet" not in repr(rows)


def test_unread_rows_say_what_the_relay_waits_for_and_late_ones_are_found():
    topic = make_topic()
    with open_connection() as writer:  # opened before the checkpoints: its row is late for them
        writer.execute("INSERT INTO relay_outbox (topic, key, type) VALUES (%s, 'late', 't')", [topic])
        with transaction.atomic():
            seen = publish(topic, key="k", type="t", payload=1)
        with running_relay():
            wait_until(lambda: lowest_place() >= seen.position)
        writer.commit()
    publish_keys(topic, keys=1, rows=2)
    rows = everything()
    assert [(row.state, row.why) for row in rows] == [
        (WaitingState.LATE, "waiting for a relay: none is alive"),
        (WaitingState.UNREAD, "waiting for a relay: none is alive"),
        (WaitingState.UNREAD, "waiting for a relay: none is alive"),
    ]
    pause_relay(actor="ann", reason="x")
    assert {row.why for row in everything()} == {"paused by ann"}
    resume_relay(actor="ann")


def test_filters_narrow_the_list_and_a_page_may_be_short_but_never_skips(settings):
    settings.RELAY_UNSENT_COUNT_CAP = 640  # ten rows a shard and look
    busy, rare = make_topic("busy", create=False), make_topic("rare", create=False)
    publish_keys(busy, keys=1, rows=60)
    ids = [str(i) for i in publish_keys(rare, keys=3, rows=9)[b"k1"]]
    publish_keys(busy, keys=1, rows=60)
    assert len(everything(WaitingFilter(topic=rare))) == 9
    assert [str(r.event_id) for r in everything(WaitingFilter(topic=rare, key=b"k1"), limit=2)] == ids
    assert len(everything(WaitingFilter(topic=busy))) == 120
    assert everything(WaitingFilter(states=frozenset({WaitingState.FAILED}))) == []
    assert len(everything(WaitingFilter(states=frozenset({WaitingState.UNREAD})))) == 129


def test_failed_rows_are_found_among_many_that_wait_behind_them():
    topic = make_topic(create=False)
    with transaction.atomic():
        events = [publish(topic, key=n // 100, type="t", payload=n) for n in range(500)]
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_deferred (shard, position, topic, key, event_id, attempts, failed, error)"
            " SELECT shard, position, topic, key, id, 1, row_number() OVER (PARTITION BY key ORDER BY position) = 1,"
            " 'x: y' FROM relay_outbox WHERE id = ANY(%s)",
            [[e.id for e in events]],
        )
        cursor.execute("UPDATE relay_checkpoint SET hw = %s, snapshot = pg_current_snapshot()", [events[-1].position])
    page = list_waiting(WaitingFilter(states=frozenset({WaitingState.FAILED})), limit=50)
    assert ([row.event_id for row in page.rows], page.next) == ([e.id for e in events[::100]], None)
    assert len(everything(limit=100)) == 500


@pytest.mark.parametrize(
    "question",
    [
        {"cursor": "x"},
        {"cursor": "-1"},
        {"cursor": "1" * 30},
        {"cursor": "\u0661"},
        {"limit": 0},
        {"limit": 100_000},
        {"wanted": WaitingFilter(key=b"k")},
        {"wanted": WaitingFilter(topic="a\x00b")},
    ],
)
def test_a_question_that_cannot_be_is_refused_in_words(question):
    with pytest.raises(BadWaitingQuery, match=r"[.]$"):
        list_waiting(**({"wanted": WaitingFilter(), "limit": 10} | question))


# -- Events from outside -----------------------------------------------------------------------------------
@pytest.fixture
def _no_cache(settings):
    settings.RELAY_INGRESS_CACHE_MS = -1


@pytest.mark.usefixtures("_no_cache")
def test_a_topic_is_held_for_the_outside_by_age_or_depth_until_it_drains(settings):
    topic = make_topic()
    assert check_ingress(topic) is None
    publish_keys(topic, keys=3, rows=5)
    assert check_ingress(topic) is None  # no limit was set
    set_ingress_hold(topic, max_age_s=None, max_rows=5, expected_version=0, actor="ann", reason="x")
    hold = check_ingress(topic)
    assert (hold.topic, hold.retry_after_s) == (topic, settings.RELAY_INGRESS_RETRY_AFTER_S)
    assert hold.reason == "5 of its events or more are unsent; 5 are allowed"
    set_ingress_hold(topic, max_age_s=0.1, max_rows=6, expected_version=1, actor="ann", reason="x")
    assert "old" in wait_until(lambda: check_ingress(topic)).reason
    run_relay_until_drained()
    assert check_ingress(topic) is None
    with pytest.raises(UnknownTopic):
        check_ingress("nobody-declared-this")


def test_the_backlog_is_looked_at_once_a_second_however_often_it_is_asked_for(settings, django_assert_max_num_queries):
    settings.RELAY_INGRESS_CACHE_MS = 60_000
    topic = make_topic(create=False)
    set_ingress_hold(topic, max_age_s=60, max_rows=None, expected_version=0, actor="ann", reason="x")
    ingress._known = (float("-inf"), {})
    check_ingress(topic)
    with django_assert_max_num_queries(20):
        for _ in range(20):
            check_ingress(topic)
