"""Discard and restore: exact counters, queues of quarantined keys, what is in a replay, races, and the shown date."""

import threading
import uuid

import pytest
from django.db import connection, transaction

from dlq.domain.failure import Failure
from dlq.facade import (
    BadDiscard,
    NothingToDiscard,
    NotRestorable,
    discard_dead_letters,
    get_dead_letter,
    get_dlq_status,
    list_discards,
    preview_replay,
    restore_dead_letter,
    restore_discard,
)
from dlq.services import park_record
from dlq.types import DeadLetterFilter, FailureClass, Selection
from relay.types import ConsumerRecord, PartitionRef
from tests.integration.test_failure_groups import assert_counts_are_right, run

pytestmark = pytest.mark.django_db


@pytest.fixture
def park():
    """Park records of one group as a consumer does; their ids in order."""
    topic = f"discards-{uuid.uuid4().hex[:8]}"
    offsets = iter(range(1, 10_000))

    def put(count=1, *, key=None, group="workers"):
        found = []
        for _ in range(count):
            offset = next(offsets)
            record = ConsumerRecord(
                place=PartitionRef(topic, 0),
                offset=offset,
                leader_epoch=1,
                timestamp_ms=1_773_142_866_000,
                key=key or f"k{offset}".encode(),
                value=b"{}",
                headers=(("event-id", str(uuid.uuid4()).encode()), ("event-type", b"claim.opened")),
            )
            failure = Failure(
                failure_class=FailureClass.PERMANENT,
                error_class="claims.Refused",
                message="refused",
                stack="",
                fingerprint="f00d",
                attempts=1,
            )
            with transaction.atomic():
                assert park_record(group, "triage", record, failure, topic_id="t", slot=0)
            found += run("SELECT id FROM dlq_dead_letter WHERE topic = %s AND log_offset = %s", [topic, offset])
        return [letter for (letter,) in found]

    return put


def state_of(letter):
    return run("SELECT state FROM dlq_dead_letter WHERE id = %s", [letter])[0][0]


def opened():
    return get_dlq_status().open


def test_a_discard_and_its_restore_keep_every_counter_right(park):
    one, two, three = park(3)
    done = discard_dead_letters(Selection(ids=[one, two]), reason="test data", actor="ada")
    assert (done.discarded, done.skipped, done.in_replay) == (2, 0, 0)
    assert (state_of(one), state_of(three), opened()) == ("discarded", "parked", 1)
    assert_counts_are_right()
    restore_dead_letter(one, reason="not test data", actor="bob")
    assert (state_of(one), state_of(two), opened()) == ("parked", "discarded", 2)
    assert_counts_are_right()
    (seen,) = list_discards(one)
    assert (seen.actor, seen.reason, seen.restored_by, seen.is_restorable) == ("ada", "test data", "bob", False)
    assert restore_discard(done.id, reason="all", actor="bob") == 1
    assert opened() == 3
    words = [words for _, words in get_dead_letter(one).timeline]
    assert "discarded by ada, with 1 others: test data" in words
    assert "restored by bob: not test data" in words


def test_what_is_not_parked_any_more_is_left_alone_and_said(park):
    one, two = park(2)
    discard_dead_letters(Selection(ids=[one]), reason="r", actor="ada")
    done = discard_dead_letters(Selection(ids=[one, two, uuid.uuid4()]), reason="r", actor="ada")
    assert (done.discarded, done.skipped) == (1, 2)
    with pytest.raises(NothingToDiscard, match="since you looked"):
        discard_dead_letters(Selection(ids=[one, two]), reason="r", actor="ada")
    assert opened() == 0


def test_a_frozen_selection_discards_what_it_froze_and_nothing_newer(park):
    park(3)
    preview = preview_replay(Selection(filter=DeadLetterFilter(group="workers")), rate_per_s=None, actor="ada")
    (late,) = park(1)
    assert discard_dead_letters(preview.id, reason="r", actor="ada").discarded == 3
    assert state_of(late) == "parked"
    with pytest.raises(BadDiscard, match="Select again"):
        discard_dead_letters(uuid.uuid4(), reason="r", actor="ada")
    run("UPDATE dlq_selection SET expires_at = clock_timestamp() WHERE id = %s", [preview.id])
    with pytest.raises(BadDiscard, match="expired"):
        discard_dead_letters(preview.id, reason="r", actor="ada")


def test_a_discard_is_bounded(park, settings):
    settings.DLQ_DISCARD_MAX = 2
    with pytest.raises(BadDiscard, match="More than 2"):
        discard_dead_letters(Selection(ids=park(3)), reason="r", actor="ada")
    with pytest.raises(BadDiscard, match="No dead letter"):
        discard_dead_letters(Selection(), reason="r", actor="ada")
    assert opened() == 3


def test_after_the_shown_date_nothing_is_restored(park):
    (one,) = park(1)
    discard_dead_letters(Selection(ids=[one]), reason="r", actor="ada")
    run("UPDATE dlq_discard SET restorable_until = clock_timestamp()")
    with pytest.raises(NotRestorable):
        restore_dead_letter(one, reason="r", actor="ada")
    assert state_of(one) == "discarded"


def test_the_next_of_a_quarantined_key_becomes_its_head_and_a_restored_one_takes_its_place_again(park):
    head, second, third = park(3, key=b"one-key")
    assert get_dead_letter(second).head_id == head
    assert get_dead_letter(head).behind == 2
    discard_dead_letters(Selection(ids=[head]), reason="r", actor="ada")
    assert (get_dead_letter(third).head_id, get_dead_letter(second).behind) == (second, 1)
    restore_dead_letter(head, reason="r", actor="ada")
    assert (get_dead_letter(third).head_id, get_dead_letter(head).behind) == (head, 2)
    discard_dead_letters(Selection(ids=[head, second, third]), reason="r", actor="ada")
    assert run("SELECT count(*) FROM dlq_key WHERE head_id = ANY(%s)", [[head, second, third]])[0][0] == 0


@pytest.mark.django_db(transaction=True)
def test_two_that_discard_the_same_ones_at_once_end_each_of_them_once(park):
    letters = park(40)
    barrier, done, failures = threading.Barrier(4), [], []

    def discard(turn):
        ids = letters if turn % 2 else letters[::-1]
        try:
            barrier.wait(30)
            done.append(discard_dead_letters(Selection(ids=ids), reason="r", actor=f"p{turn}").discarded)
        except NothingToDiscard:
            done.append(0)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=discard, args=(turn,)) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert sum(done) == 40
    assert opened() == 0
    assert_counts_are_right()


@pytest.mark.django_db(transaction=True)
def test_records_of_one_new_cause_that_are_parked_at_once_make_one_group_with_exact_counts(park):
    barrier, failures = threading.Barrier(6), []

    def work():
        try:
            barrier.wait(30)
            park(5)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert run("SELECT count(*) FROM dlq_failure_group WHERE fingerprint = 'f00d'")[0][0] == 1
    assert run("SELECT count(*) FROM dlq_dead_letter")[0][0] == 30
    assert_counts_are_right()
