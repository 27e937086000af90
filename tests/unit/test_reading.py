"""A client's memory of its place is not believed: properties of the check, against a log with gaps."""

from hypothesis import given
from hypothesis import strategies as st

from relay.domain.reading import From, ReadAgain, Reading, Verdict
from relay.types import ConsumerRecord, PartitionRef

PLACE = PartitionRef("topic", 0)


def record(offset):
    return ConsumerRecord(
        place=PLACE, offset=offset, leader_epoch=None, timestamp_ms=None, key=None, value=None, headers=()
    )


def reading_from(start):
    reading = Reading()
    reading.begin(PLACE, start)
    return reading


def test_a_record_that_is_too_far_is_read_again_from_the_place_to_begin():
    reading = reading_from(3)
    assert reading.check(record(64)) == ReadAgain(3)
    assert reading.check(record(3)) is Verdict.TAKE
    assert reading.check(record(64)) is Verdict.TAKE


def test_a_gap_in_the_log_is_believed_when_the_same_record_comes_twice():
    reading = reading_from(3)
    assert reading.check(record(5)) == ReadAgain(3)
    assert reading.check(record(5)) is Verdict.TAKE


def test_two_different_jumps_are_not_one_gap():
    reading = reading_from(3)
    assert reading.check(record(64)) == ReadAgain(3)
    assert reading.check(record(65)) == ReadAgain(3)


def test_a_jump_before_a_pause_says_nothing_about_one_after_it():
    reading = reading_from(3)
    assert reading.check(record(64)) == ReadAgain(3)
    reading.doubt([PLACE])
    assert reading.check(record(64)) == ReadAgain(3)


def test_the_beginning_is_read_twice_because_nobody_knows_where_it_is():
    reading = reading_from(From.BEGINNING)
    assert reading.check(record(64)) == ReadAgain(From.BEGINNING)
    assert reading.check(record(0)) == ReadAgain(From.BEGINNING)
    assert reading.check(record(0)) is Verdict.TAKE


def test_records_from_before_are_dropped_and_the_check_goes_on():
    reading = reading_from(3)
    assert reading.check(record(1)) is Verdict.DROP
    assert reading.check(record(7)) == ReadAgain(3)


def test_nothing_is_taken_of_a_partition_whose_beginning_is_not_decided():
    reading = reading_from(3)
    reading.close([PLACE])
    reading.doubt([PLACE])
    assert reading.check(record(3)) is Verdict.REFUSE


def test_without_an_answer_from_kafka_the_client_is_believed():
    assert reading_from(From.CLIENT).check(record(9)) is Verdict.TAKE


@given(
    log=st.lists(st.integers(0, 40), min_size=1, unique=True).map(sorted),
    start=st.integers(0, 40),
    jumps=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40))),
)
def test_every_record_from_the_start_is_taken_once_and_in_order(log, start, jumps):
    reading, client, taken = reading_from(start), start, []
    due = dict(jumps)
    for step in range(400):
        if step in due:  # the client forgets its place; the application is told to doubt
            client = due[step]
            reading.doubt([PLACE])
        offset = next((offset for offset in log if offset >= client), None)
        if offset is None:
            if step > 31:
                break
            continue
        client = offset + 1
        match reading.check(record(offset)):
            case Verdict.TAKE:
                taken.append(offset)
            case ReadAgain(start=again):
                client = again
    wanted = [offset for offset in log if offset >= start]
    assert taken == wanted[: len(taken)]
