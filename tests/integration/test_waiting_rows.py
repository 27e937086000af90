"""The rows of waiting records: who goes first, exact bytes, what is due, what is swept."""

from uuid import uuid4

import pytest
from django.db import connection, transaction

from dlq import retrying, services
from dlq.domain.failure import Failure
from dlq.domain.retrying import Spent
from dlq.retrying import Subject, WaitingChanged, WaitingFull
from dlq.types import FailureClass
from relay.types import ConsumerRecord, PartitionRef

pytestmark = pytest.mark.django_db

AWAY = Failure(
    failure_class=FailureClass.TRANSIENT,
    error_class="ConnectionError",
    message="",
    stack="",
    fingerprint="f",
    attempts=1,
)
ODD = (("a", None), ("a", b""), ("b", b"\xff\x00"))


@pytest.fixture
def group():
    return f"rows-{uuid4().hex[:10]}"


def subject(group, offset, *, lane=7, topic_id="old", partition=0, value=b"v"):
    record = ConsumerRecord(
        place=PartitionRef("t", partition),
        offset=offset,
        leader_epoch=3,
        timestamp_ms=1_700_000_000_123,
        key=None if lane is None else b"k",
        value=value,
        headers=ODD,
    )
    return Subject(
        group=group, record=record, topic_id=topic_id, lane=lane, handler="h", event_id=uuid4(), event_type="e"
    )


def store(one):
    with transaction.atomic(), connection.cursor() as cursor:
        retrying.store(cursor, one, is_behind=retrying.look_up(cursor, one).is_behind)


def look_up(one):
    with connection.cursor() as cursor:
        return retrying.look_up(cursor, one)


def due(group, but=(), held=(), limit=100, limit_bytes=10**6):
    places = [PartitionRef("t", 0), PartitionRef("t", 1)]
    return retrying.load_due(group, places, but=but, held=held, limit=limit, limit_bytes=limit_bytes)


def settle(one):
    with transaction.atomic(), connection.cursor() as cursor:
        retrying.take_away(cursor, one, retrying.look_up(cursor, one))


def test_a_stored_record_comes_back_byte_for_byte_with_the_topic_it_was_of(group):
    for offset, value in enumerate((None, b"", b"\x00\xff")):
        one = subject(group, offset, lane=None, value=value)
        store(one)
        (found,) = [row for row in due(group) if row.record.offset == offset]
        assert (found.record, found.topic_id) == (one.record, "old")


def test_the_stored_records_of_a_key_come_in_order_and_only_their_first_is_due(group):
    line = [subject(group, offset) for offset in (5, 6, 9)]
    for one in line:
        store(one)
    assert [row.record.offset for row in due(group)] == [5, 6, 9]
    assert [row.record.offset for row in due(group, limit=1)] == [5]
    assert [look_up(one).is_behind for one in line] == [False, True, True]
    assert look_up(subject(group, 12)).is_behind
    assert not look_up(subject(group, 4)).is_behind  # delivered again, and older than all of them
    assert not look_up(subject(group, 12, lane=8)).is_behind
    settle(line[0])
    assert [row.record.offset for row in due(group)] == [6, 9]


def test_records_of_a_topic_that_was_made_anew_go_behind_those_of_the_old_one(group):
    store(subject(group, 500))
    assert look_up(subject(group, 0, topic_id="new")).is_behind


def test_what_is_here_already_or_for_a_held_handler_is_not_brought(group):
    store(subject(group, 5))
    (found,) = due(group)
    assert due(group, but=[found.id]) == []
    assert due(group, held=["h"]) == []


def test_no_more_bytes_are_brought_than_asked_but_one_record_always(group):
    for offset in range(3):
        store(subject(group, offset, lane=None, value=b"x" * 1_000))
    assert len(due(group, limit_bytes=10)) == 1
    assert len(due(group, limit_bytes=2_500)) == 2


def test_a_row_that_another_process_changed_stops_the_effect(group):
    one = subject(group, 5)
    with connection.cursor() as cursor:
        retrying.note_wait(cursor, one, Spent(attempts=1), AWAY, 0)
    seen = look_up(one)
    with connection.cursor() as cursor:
        retrying.note_wait(cursor, one, Spent(attempts=2), AWAY, 0)
        with pytest.raises(WaitingChanged):
            retrying.take_away(cursor, one, seen)
    assert look_up(one).spent == Spent(attempts=2)


def test_a_key_has_no_more_stored_records_than_it_may(group, settings):
    settings.CONSUMER_WAITING_KEY_RECORDS = 2
    for offset in (1, 2):
        store(subject(group, offset))
    with pytest.raises(WaitingFull):
        store(subject(group, 3))
    store(subject(group, 3, lane=8))


def test_a_refund_takes_tries_back_and_never_below_none(group):
    one, two = subject(group, 1), subject(group, 2, lane=8)
    with connection.cursor() as cursor:
        first = retrying.note_wait(cursor, one, Spent(attempts=3), AWAY, 600)
        second = retrying.note_wait(cursor, two, Spent(attempts=1), AWAY, 600)
        retrying.refund(cursor, [first, first, second, second, -1])
    assert (look_up(one).spent, look_up(two).spent) == (Spent(attempts=1), Spent())
    assert look_up(one).due_in_s <= 0


def test_rows_of_records_that_do_not_come_again_are_swept(group, settings):
    settings.CONSUMER_WAITING_PASSED_S = -1  # at once
    passed, waits, stored = subject(group, 1), subject(group, 9), subject(group, 2, lane=8)
    gone = subject(group, 50, topic_id="older")
    with connection.cursor() as cursor:
        for one in (passed, waits, gone):
            retrying.note_wait(cursor, one, Spent(attempts=1), AWAY, 600)
    store(stored)
    services.remember_position(group, PartitionRef("t", 0), "old", 5)
    retrying.forget_passed()
    assert [look_up(one).id is None for one in (passed, waits, stored, gone)] == [True, False, False, True]
