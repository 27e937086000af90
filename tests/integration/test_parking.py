"""Poison: each broken record is parked exactly once, byte for byte, and the line moves."""

import uuid

import pytest
from django.db import connection

from dlq import queries
from dlq.facade import get_dead_letter, get_dlq_status, list_dead_letters
from dlq.models import Applied, DeadLetter
from dlq.originals import decode_headers
from dlq.types import DeadLetterFilter, FailureClass, Permanent
from relay.facade import label_key
from tests.consumers import effects, headers_of, running, until, write_effect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def line(make_line):
    return make_line()


SCHEMA = FailureClass.SCHEMA
ID = str(uuid.UUID(int=7)).encode()
TYPED = ("event-type", b"thing.done")
GOOD = [("event-id", ID), TYPED]

POISON = {
    "not JSON": (b"{not json", GOOD, SCHEMA, "not JSON"),
    "not UTF-8": (b"\xff\xfe\x00", GOOD, SCHEMA, "not UTF-8"),
    "empty value": (b"", GOOD, SCHEMA, "empty"),
    "tombstone without headers": (None, None, SCHEMA, "event-id is missing"),
    "tombstone that the handler cannot map": (None, GOOD, FailureClass.PERMANENT, "raised at"),
    "no event id": (b'{"n": 1}', [TYPED], SCHEMA, "event-id is missing"),
    "event id that is no UUID": (b'{"n": 1}', [("event-id", b"17"), TYPED], SCHEMA, "not a UUID"),
    "event id twice": (b'{"n": 1}', [("event-id", ID), ("event-id", ID), TYPED], SCHEMA, "2 times"),
    "event id null": (b'{"n": 1}', [("event-id", None), TYPED], SCHEMA, "is null"),
    "no type": (b'{"n": 1}', [("event-id", ID)], SCHEMA, "event-type is missing"),
    "type that is not UTF-8": (b'{"n": 1}', [("event-id", ID), ("event-type", b"\xff")], SCHEMA, "not UTF-8"),
    "published-at that is no time": (b'{"n": 1}', [*GOOD, ("published-at", b"soon")], SCHEMA, "published-at"),
    "key missing in the payload": (b'{"other": 1}', GOOD, FailureClass.PERMANENT, "raised at"),
    "payload of the wrong shape": (b"[1, 2]", GOOD, FailureClass.PERMANENT, "raised at"),
    "900 kB that is not JSON": (b"x" * 900_000, GOOD, SCHEMA, "not JSON"),
    "odd headers": (b"{", [*GOOD, ("x", None), ("x", b"\x00\xff"), ("x", b""), ("x", b"1")], SCHEMA, "not JSON"),
}


@pytest.mark.parametrize(("value", "headers", "failure_class", "words"), POISON.values(), ids=POISON)
def test_poison_is_parked_once_byte_for_byte_and_the_line_moves(line, value, headers, failure_class, words):
    key = b"\x00\xffkey"
    line.put_raw(value, key=key, headers=headers)
    line.put(2, key="next")
    with running(line, write_effect) as member:
        until(lambda: line.committed() == 2)
    assert effects(line) == [("next", 2)]
    parked = DeadLetter.objects.get(group=line.group)
    assert (parked.original_key, parked.original_value) == (key, value)
    assert decode_headers(parked.original_headers) == tuple(headers or ())
    assert (parked.topic, parked.partition, parked.offset) == (line.topic, 0, 0)
    assert (parked.failure_class, parked.state, parked.attempts) == (failure_class.value, "parked", 1)
    assert words in parked.error_message
    assert parked.key_label == label_key(key)
    assert parked.topic_id
    assert parked.record_timestamp is not None
    assert member.tally == {"parked": 1, "applied": 1}


def test_a_permanent_failure_parks_the_record_and_rolls_its_effect_back(line):
    def refuse(event, tx):
        write_effect(event, tx)
        if event.payload["n"] == 1:
            raise Permanent("the account of maria.example@example.org is closed")

    event_id = line.put(1)
    line.put(2, key="other")
    with running(line, refuse):
        until(lambda: line.committed() == 2)
    assert effects(line) == [("other", 2)]
    parked = DeadLetter.objects.get(group=line.group)
    assert (parked.event_id, parked.event_type, parked.error_class) == (event_id, "thing.done", "dlq.types.Permanent")
    assert parked.handler.endswith("refuse")
    assert not Applied.objects.filter(event_id=event_id).exists()


def test_nothing_that_an_exception_says_is_stored(line):
    def quote(event, tx):
        raise KeyError("maria.example@example.org")

    line.put(1)
    with running(line, quote):
        until(lambda: line.committed() == 1)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_jsonb(d) - 'original_value' FROM dlq_dead_letter d WHERE group_name = %s", [line.group]
        )
        assert "maria" not in str(cursor.fetchone())
    parked = DeadLetter.objects.get(group=line.group)
    assert parked.stack.splitlines()[-1].startswith("tests/integration/test_parking.py:")
    assert "attempts.py" not in parked.stack


def test_a_repeat_of_a_parked_event_is_not_a_second_dead_letter(line):
    event_id = uuid.uuid4()
    for _ in range(2):
        line.put_raw(b"{", headers=headers_of(event_id))
    with running(line, write_effect):
        until(lambda: line.committed() == 2)
    assert DeadLetter.objects.filter(group=line.group).count() == 1
    assert get_dlq_status().duplicates_total == 1


def test_other_bytes_under_the_id_of_a_parked_event_are_parked_too(line):
    event_id = uuid.uuid4()
    for value in (b"{", b"{{"):
        line.put_raw(value, headers=headers_of(event_id))
    with running(line, write_effect):
        until(lambda: line.committed() == 2)
    assert DeadLetter.objects.filter(group=line.group).count() == 2


def test_a_record_that_is_delivered_again_after_it_was_parked_is_parked_once(line):
    line.put_raw(b"no headers")
    with running(line, write_effect):
        until(lambda: line.committed() == 1)
    line.rewind(0)
    with running(line, write_effect) as member:
        until(lambda: member.tally or get_dlq_status().duplicates_total == 1)
    assert DeadLetter.objects.filter(group=line.group).count() == 1
    assert get_dlq_status().by_topic_group == ((line.topic, line.group, 1),)


def test_the_counts_are_exact_and_kept_with_the_rows(line):
    for _ in range(5):
        line.put_raw(b"x", key=None)
    with running(line, write_effect, concurrency=4):
        until(lambda: line.committed() == 5)
    status = get_dlq_status()
    assert (status.open, status.parked_last_hour) == (5, 5)
    assert status.by_topic_group == ((line.topic, line.group, 5),)
    assert 0 <= status.oldest_age_s < 60


def test_a_result_is_kept_beside_the_dedupe_row_and_an_oversized_one_parks_the_record(line):
    from dlq.types import Result

    def answer(event, tx):
        return Result(outcome="said", data={"text": "x" * event.payload["n"]})

    line.put(3)
    line.put(100_000)
    with running(line, answer):
        until(lambda: line.committed() == 2)
    (row,) = Applied.objects.filter(group=line.group)
    assert (row.outcome, row.result) == ("said", {"text": "xxx"})
    assert "result is over" in DeadLetter.objects.get(group=line.group).error_message


def test_a_broken_deferred_constraint_is_the_handlers_failure_and_not_the_commits(line, settings):
    settings.CONSUMER_RETRY_BASE_S = 0.05
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS test_child; DROP TABLE IF EXISTS test_parent")
        cursor.execute("CREATE TABLE test_parent (id int PRIMARY KEY)")
        cursor.execute("CREATE TABLE test_child (id int REFERENCES test_parent DEFERRABLE INITIALLY DEFERRED)")

    def orphan(event, tx):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO test_child VALUES (1)")

    line.put(1)
    with running(line, orphan):
        until(lambda: line.committed() == 1)
    parked = DeadLetter.objects.get(group=line.group)
    assert (parked.failure_class, parked.attempts) == ("unknown", settings.CONSUMER_UNKNOWN_ATTEMPTS)
    assert parked.error_class == "django.db.utils.IntegrityError"


def test_a_dead_letter_is_shown_by_digests_and_a_timeline(line):
    import hashlib

    line.put_raw(b"{", key=b"k", headers=[*GOOD, ("published-at", b"1700000000000"), ("x", None)])
    with running(line, write_effect):
        until(lambda: line.committed() == 1)
    (row,) = list_dead_letters(DeadLetterFilter(group=line.group), limit=10).rows
    found = get_dead_letter(row.id)
    assert found.row == row
    assert (found.value.length, found.value.sha256) == (1, hashlib.sha256(b"{").hexdigest())
    assert [(name, part.length) for name, part in found.headers] == [
        ("event-id", 36), ("event-type", 10), ("published-at", 13), ("x", None),
    ]  # fmt: skip
    said = [words.split()[0] for _, words in found.timeline]
    assert [word for word in said if word != "try"] == ["published", "written", "parked"]
    assert said[-1] == "parked"
    assert found.similar == 0
    assert get_dead_letter(uuid.uuid4()) is None


def test_a_handler_that_exits_or_swallows_a_database_error_has_only_failed(line, settings):
    settings.CONSUMER_RETRY_BASE_S = 0.05

    def misbehave(event, tx):
        if event.payload["n"] == 1:
            raise SystemExit(3)
        if event.payload["n"] == 2:
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1 / 0")
            except Exception:
                return
        write_effect(event, tx)

    for number in (1, 2, 3):
        line.put(number, key=f"k{number}")
    with running(line, misbehave, concurrency=2):
        until(lambda: line.committed() == 3)
    assert effects(line) == [("k3", 3)]
    assert DeadLetter.objects.filter(group=line.group, failure_class="unknown").count() == 2


def test_the_page_rows_are_bounded():
    assert len(list_dead_letters(DeadLetterFilter(), limit=10**9).rows) <= queries.MAX_PAGE_ROWS
