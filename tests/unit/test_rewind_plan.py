"""Where a rewind leads: tables of cases, and that no plan ever leaves the log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.rewind import RewindFacts, describe_wish, plan_rewind
from relay.types import RewindStrategy, RewindWish


def wish(strategy, **values):
    return RewindWish(group="g", topic="t", strategy=strategy, **values)


def facts(committed=50, begin=10, end=90, **changes):
    return RewindFacts(partition=0, begin=begin, end=end, committed=committed, **changes)


EARLIEST, LATEST, OFFSET, TIME, SHIFT = RewindStrategy

CASES = {
    "earliest": (wish(EARLIEST), facts(), 10, 40, 0, ""),
    "latest": (wish(LATEST), facts(), 90, 0, 40, ""),
    "an offset": (wish(OFFSET, offset=30), facts(), 30, 20, 0, ""),
    "an offset before the log": (wish(OFFSET, offset=3), facts(), 10, 40, 0, "before the log's start"),
    "an offset beyond the log": (wish(OFFSET, offset=99), facts(), 90, 0, 40, "beyond the log's end"),
    "a time": (wish(TIME), facts(at_time=42), 42, 8, 0, ""),
    "a time after the last record": (wish(TIME), facts(), 90, 0, 40, "no record is as late"),
    "back": (wish(SHIFT, shift=-20), facts(), 30, 20, 0, ""),
    "on": (wish(SHIFT, shift=20), facts(), 70, 0, 20, ""),
    "back beyond the log": (wish(SHIFT, shift=-100), facts(), 10, 40, 0, "before the log's start"),
    "it stands there": (wish(OFFSET, offset=50), facts(), 50, 0, 0, "nothing to do"),
    "nothing was committed": (wish(LATEST), facts(committed=None), 90, 0, 80, "nothing was committed"),
    "what was committed is gone": (wish(EARLIEST), facts(committed=5), 10, 0, 5, "offsets 5 to 9 were deleted"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_says_where_it_goes_what_is_read_again_and_what_is_passed_over(case):
    asked, found, after, again, passed_over, said = CASES[case]
    (step,) = plan_rewind(asked, [found])
    assert (step.after, step.again, step.passed_over) == (after, again, passed_over)
    assert said in "; ".join(step.warnings)
    assert said or not step.warnings


def test_a_shift_from_nothing_moves_nothing_and_says_why():
    (step,) = plan_rewind(wish(SHIFT, shift=-1), [facts(committed=None)])
    assert not step.moves
    assert "nothing is committed" in step.error


def test_a_partition_that_could_not_be_read_stays_and_says_why():
    steps = plan_rewind(wish(EARLIEST), [facts(error="no leader"), facts(begin=None)])
    assert [step.moves for step in steps] == [False, False]
    assert "no leader" in steps[0].error


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (wish(EARLIEST), "to the first record that Kafka keeps"),
        (wish(OFFSET, offset=12_345), "to offset 12,345"),
        (wish(SHIFT, shift=-100), "100 offsets back"),
        (wish(SHIFT, shift=100), "100 offsets on"),
    ],
)
def test_a_wish_is_said_in_words(asked, words):
    assert describe_wish(asked) == words


offsets = st.integers(0, 2**62)


@given(
    strategy=st.sampled_from(RewindStrategy),
    log=st.tuples(offsets, offsets).map(sorted),
    committed=st.none() | offsets,
    at_time=st.none() | offsets,
    value=st.integers(-(2**62), 2**62),
)
def test_no_plan_leaves_the_log(strategy, log, committed, at_time, value):
    begin, end = log
    at_time = None if at_time is None else min(max(at_time, begin), end)
    (step,) = plan_rewind(
        wish(strategy, offset=abs(value), shift=value),
        [facts(committed=committed, begin=begin, end=end, at_time=at_time)],
    )
    assert step.after is None or begin <= step.after <= end
    assert step.again == 0 or step.passed_over == 0
