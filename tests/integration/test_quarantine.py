"""Quarantine: what comes after a parked head of its key parks behind it, and nothing newer overtakes."""

import threading

import pytest
from django.db import connection, transaction

from dlq import quarantine
from dlq.attempts import Applied, Duplicate, Held, Parked, Retry
from dlq.models import Counter, DeadLetter, QuarantinedKey
from dlq.replay.reading import find_quarantined, get_quarantined, list_quarantined
from dlq.types import FailureClass, Permanent, QuarantineFilter
from relay.facade import list_open_incidents
from relay.types import IncidentKind
from tests.consumers import effects, until, write_effect
from tests.replays import Shop, in_thread

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def shop(transactional_db):
    made = Shop()
    yield made
    made.drop()


def refuse_first(event, tx):
    if event.payload["n"] == 1:
        raise Permanent("no")
    write_effect(event, tx)


def waiting_for_lock():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"
        )
        return cursor.fetchone()[0]


def queue_of(shop):
    return [
        (d.failure_class, d.attempts, bytes(d.original_value)) for d in shop.letters(state="parked", queue_number__gt=0)
    ]


def test_later_records_of_a_parked_key_park_behind_it_untried_and_others_go_on(shop):
    shop.work = refuse_first
    first, second, other, third = (shop.record(n, key=key) for n, key in [(1, "a"), (2, "a"), (3, "b"), (4, "a")])
    outcomes = [type(shop.consume(record)) for record in (first, second, other, third)]
    assert outcomes == [Parked, Parked, Applied, Parked]
    assert effects(shop) == [("b", 3)]
    assert queue_of(shop) == [
        ("permanent", 1, first.value), ("behind", 0, second.value), ("behind", 0, third.value)
    ]  # fmt: skip
    key = QuarantinedKey.objects.get(group=shop.group)
    assert (key.head_id, key.letters) == (shop.letter(first.offset).pk, 3)
    assert Counter.objects.get(group=shop.group, slot=0).behind == 2


def test_a_key_that_parks_while_the_next_record_waits_takes_it_behind(shop):
    parked, go = threading.Event(), threading.Event()

    def work(event, tx):
        if event.payload["n"] == 1:
            parked.set()
            assert go.wait(40)
        refuse_first(event, tx)

    shop.work = work
    first = in_thread(shop.consume, shop.record(1))
    assert parked.wait(40)
    second = in_thread(shop.consume, shop.record(2))
    until(waiting_for_lock)
    go.set()
    assert (type(first.result()), type(second.result())) == (Parked, Parked)
    assert effects(shop) == []
    assert [row[0] for row in queue_of(shop)] == ["permanent", "behind"]


def test_a_record_that_looked_before_its_key_was_parked_commits_before_the_park(shop):
    looked, go = threading.Event(), threading.Event()

    def work(event, tx):
        if event.payload["n"] == 2:
            looked.set()
            assert go.wait(40)
        refuse_first(event, tx)

    shop.work = work
    head = shop.record(1)
    second = in_thread(shop.consume, shop.record(2))
    assert looked.wait(40)
    first = in_thread(shop.consume, head)
    until(waiting_for_lock)
    assert not QuarantinedKey.objects.filter(group=shop.group).exists()
    go.set()
    assert (type(first.result()), type(second.result())) == (Parked, Applied)
    assert [row[0] for row in queue_of(shop)] == ["permanent"]


def test_what_is_delivered_again_is_neither_queued_twice_nor_behind_what_it_was_applied_before(shop):
    shop.work = refuse_first
    applied, first, second = shop.record(0), shop.record(1), shop.record(2)
    for record in (applied, first, second):
        shop.consume(record)
    again = [type(shop.consume(record)) for record in (applied, first, second)]
    assert set(again) <= {Duplicate, Parked}
    assert DeadLetter.objects.filter(group=shop.group).count() == 2
    assert QuarantinedKey.objects.get(group=shop.group).letters == 2


def test_records_without_a_key_are_parked_alone(shop):
    def refuse(event, tx):
        raise Permanent("no")

    shop.work = refuse
    for n in range(2):
        shop.consume(shop.record(n, key=None))
    assert [d.failure_class for d in shop.letters()] == ["permanent", "permanent"]
    assert not QuarantinedKey.objects.filter(group=shop.group).exists()


@pytest.mark.parametrize("bound", ["DLQ_KEY_LETTERS_MAX", "DLQ_GROUP_BEHIND_MAX"])
def test_a_full_quarantine_holds_the_record_opens_an_incident_and_drops_nothing(shop, settings, bound):
    setattr(settings, bound, 2)
    shop.work = refuse_first
    records = [shop.record(n) for n in range(1, 6)]
    outcomes = [type(shop.consume(record)) for record in records]
    assert outcomes[:2] == [Parked, Parked]
    assert outcomes[-1] is Held
    assert len(shop.letters()) == outcomes.count(Parked)
    assert len(incidents(shop)) == 1
    quarantine.close_relieved(shop.group)
    assert len(incidents(shop)) == 1
    setattr(settings, bound, 100)
    quarantine.close_relieved(shop.group)
    assert incidents(shop) == []


def incidents(shop):
    return [i for i in list_open_incidents() if i.kind is IncidentKind.QUARANTINE_FULL and shop.group in i.cause]


def test_when_the_head_leaves_the_next_is_head_and_the_last_frees_the_key(shop):
    shop.work = refuse_first
    for n in (1, 2, 3):
        shop.consume(shop.record(n))
    first, second, third = (d.pk for d in shop.letters())
    heads = []
    for leaving in (second, first, third):
        with transaction.atomic(), connection.cursor() as cursor:
            quarantine.lock_letters(cursor, [leaving])
            DeadLetter.objects.filter(pk=leaving).update(state="discarded")
            quarantine.settle_queues(cursor, [leaving])
        heads.append(QuarantinedKey.objects.filter(group=shop.group).values_list("head_id", "letters").first())
    assert heads == [(first, 2), (third, 1), None]
    assert sum(c.behind for c in Counter.objects.filter(group=shop.group)) == 0


def test_a_record_that_arrives_while_the_last_of_its_key_is_discarded_is_tried_again_and_applied(shop):
    shop.work = refuse_first
    shop.consume(shop.record(1))
    (first,) = (d.pk for d in shop.letters())
    arriving = shop.record(2)
    with transaction.atomic(), connection.cursor() as cursor:
        quarantine.lock_letters(cursor, [first])
        appended = in_thread(shop.consume, arriving)
        until(waiting_for_row)
        DeadLetter.objects.filter(pk=first).update(state="discarded")
        quarantine.settle_queues(cursor, [first])
    assert isinstance(appended.result(), Retry)
    assert not QuarantinedKey.objects.filter(group=shop.group).exists()
    assert isinstance(shop.consume(arriving), Applied)
    assert effects(shop) == [("k", 2)]


def waiting_for_row():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            " AND query LIKE '%INTO dlq_key%'"
        )
        return cursor.fetchone()[0]


def test_what_comes_back_takes_its_old_place_in_the_queue(shop):
    shop.work = refuse_first
    for n in (1, 2):
        shop.consume(shop.record(n))
    first, second = (d.pk for d in shop.letters())
    for state in ("discarded", "parked"):
        with transaction.atomic(), connection.cursor() as cursor:
            quarantine.lock_letters(cursor, [first])
            DeadLetter.objects.filter(pk=first).update(state=state)
            quarantine.settle_queues(cursor, [first])
    key = QuarantinedKey.objects.get(group=shop.group)
    assert (key.head_id, key.letters) == (first, 2)
    assert find_quarantined(second).id == key.pk


def test_quarantined_keys_are_listed_newest_first_with_their_heads(shop):
    shop.work = refuse_first
    for key in ("a", "b", "c"):
        shop.consume(shop.record(1, key=key))
        shop.consume(shop.record(2, key=key))
    page = list_quarantined(limit=2, wanted=QuarantineFilter(group=shop.group))
    rest = list_quarantined(page.next_cursor, limit=2, wanted=QuarantineFilter(group=shop.group))
    shown = [*page.keys, *rest.keys]
    assert [bytes(DeadLetter.objects.get(pk=k.head.id).original_key) for k in shown] == [b"c", b"b", b"a"]
    assert {(k.letters, k.head.failure_class) for k in shown} == {(2, FailureClass.PERMANENT)}
    assert (page.total, rest.next_cursor) == (3, None)
    assert get_quarantined(shown[0].id) == shown[0]
