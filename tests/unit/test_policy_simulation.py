"""What a policy would have done with recorded tries."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.policy import RetryPolicy, backoff_s
from dlq.domain.retrying import Spent, is_spent
from dlq.domain.simulation import RecordedRecord, RecordedTry, simulate
from dlq.types import AttemptOutcome, FailureClass, Ordering

WAITS, PARKED, APPLIED = AttemptOutcome.WAITS, AttemptOutcome.PARKED, AttemptOutcome.APPLIED
TRANSIENT, UNKNOWN, PERMANENT = FailureClass.TRANSIENT, FailureClass.UNKNOWN, FailureClass.PERMANENT
# Tries at 0, 10, 20, 30, ...
EVERY_10_S = RetryPolicy(
    max_attempts=3, unknown_attempts=2, base_s=10, factor=1, max_s=10, jitter=0, retry_after_max_s=0
)


def tries(*ends, at=0.0, every=10.0, cause=TRANSIENT, error="TimeoutError", fault="f1", numbers=None):
    return [
        RecordedTry(
            at=at + n * every,
            number=numbers[n] if numbers else n + 1,
            outcome=end,
            failure_class=cause,
            error_class=error,
            fingerprint=fault,
        )
        for n, end in enumerate(ends)
    ]


def record(*ends, applied_later_at=None, in_force=EVERY_10_S, **how):
    return RecordedRecord(
        group="g", handler="h", tries=tries(*ends, **how), in_force=in_force, applied_later_at=applied_later_at
    )


def outcome(records, policy):
    total = simulate(records, policy).total
    return {
        name: getattr(total, name)
        for name in ("saved", "parked_unknown", "lost", "recovered_unknown")
        if getattr(total, name)
    }


@pytest.mark.parametrize(
    ("records", "changes", "expected"),
    [
        # The same policy does what was done.
        ([record(WAITS, WAITS, PARKED)], {}, {}),
        ([record(WAITS, WAITS, APPLIED)], {}, {}),
        # One more try: nobody met the failure again, so it cannot be known.
        ([record(WAITS, WAITS, PARKED)], {"max_attempts": 4}, {"parked_unknown": 1}),
        # A replay showed that it was over 5 s after the parking.
        ([record(WAITS, WAITS, PARKED, applied_later_at=25)], {"max_attempts": 4}, {"saved": 1}),
        ([record(WAITS, WAITS, PARKED, applied_later_at=31)], {"max_attempts": 4}, {"parked_unknown": 1}),
        ([record(WAITS, WAITS, PARKED, applied_later_at=31)], {"max_attempts": 5}, {"saved": 1}),
        # Another record met the same failure and got over it; a record with another failure says nothing.
        ([record(WAITS, WAITS, PARKED), record(WAITS, APPLIED, at=15)], {"max_attempts": 4}, {"saved": 1}),
        (
            [record(WAITS, WAITS, PARKED), record(WAITS, APPLIED, at=15, fault="f2")],
            {"max_attempts": 4},
            {"parked_unknown": 1},
        ),
        # The failure came back before the further try.
        (
            [record(WAITS, WAITS, PARKED), record(WAITS, APPLIED, at=12), record(WAITS, APPLIED, at=29)],
            {"max_attempts": 4},
            {},
        ),
        # Fewer tries lose what had recovered.
        ([record(WAITS, WAITS, APPLIED)], {"max_attempts": 2}, {"lost": 1}),
        ([record(WAITS, APPLIED)], {"max_attempts": 1}, {"lost": 1}),
        # Longer waits keep it.
        ([record(WAITS, WAITS, APPLIED)], {"max_attempts": 2, "base_s": 30, "max_s": 30}, {}),
        # Between the last failure and the success nobody knows.
        ([record(WAITS, APPLIED, every=60)], {"max_attempts": 3}, {"recovered_unknown": 1}),
        # An override parks at once, or tries again what was parked at once.
        ([record(WAITS, APPLIED)], {"overrides": {"TimeoutError": PERMANENT}}, {"lost": 1}),
        (
            [record(PARKED, cause=PERMANENT, error="KeyError", applied_later_at=15)],
            {"overrides": {"KeyError": TRANSIENT}},
            {"saved": 1},
        ),
        # Unknown failures have tries of their own.
        ([record(WAITS, APPLIED, cause=UNKNOWN, error="ValueError")], {"unknown_attempts": 1}, {"lost": 1}),
        ([record(WAITS, PARKED, cause=UNKNOWN, applied_later_at=12)], {"unknown_attempts": 3}, {"saved": 1}),
    ],
)
def test_what_a_policy_would_have_done(records, changes, expected):
    assert outcome(records, replace(EVERY_10_S, **changes)) == expected


def test_an_override_that_is_taken_away_gives_the_error_its_own_class_again():
    was = replace(EVERY_10_S, overrides={"TimeoutError": PERMANENT})
    parked = record(PARKED, cause=PERMANENT, applied_later_at=15, in_force=was)
    assert outcome([parked], was) == {}
    assert outcome([parked], EVERY_10_S) == {"saved": 1}


def test_the_headline_counts_saved_records_and_the_worst_added_delay():
    parked = [record(WAITS, WAITS, PARKED, at=float(n), applied_later_at=100.0) for n in range(28)]
    parked += [record(PARKED, cause=PERMANENT, error="KeyError", fault="f2")] * 2
    found = simulate(parked, replace(EVERY_10_S, max_attempts=20))
    assert (found.total.parked, found.total.saved, found.total.unknown) == (30, 28, 0)
    assert found.worst_added_s == 80  # the first: tried at 100 s instead of parked at 20 s
    assert list(found.by_error) == [("TimeoutError", "h"), ("KeyError", "h")]
    assert found.by_error["TimeoutError", "h"].saved == 28
    assert found.by_error["KeyError", "h"].saved == 0


def test_more_tries_are_counted():
    found = simulate([record(WAITS, WAITS, PARKED, applied_later_at=95)], replace(EVERY_10_S, max_attempts=20))
    assert found.tries_more == 8  # at 30, 40, ... 100
    assert simulate([record(WAITS, WAITS, PARKED)], replace(EVERY_10_S, max_attempts=1)).tries_more == -2


def test_a_record_that_has_not_ended_is_told_apart():
    found = simulate([record(WAITS, WAITS)], EVERY_10_S)
    assert (found.waiting, found.total.records) == (1, 0)


def test_replays_after_the_parking_are_no_tries_of_the_policy():
    parked = record(WAITS, WAITS, PARKED, PARKED, PARKED)
    assert outcome([parked], EVERY_10_S) == {}
    assert outcome([parked], replace(EVERY_10_S, max_attempts=4)) == {}  # the replay at 30 s failed again


def test_what_an_open_breaker_gave_back_is_left_out():
    held = record(WAITS, WAITS, WAITS, APPLIED, numbers=[1, 2, 2, 3], every=10)
    long = replace(held, tries=[*held.tries[:2], *[replace(t, at=t.at + 3_600) for t in held.tries[2:]]])
    found = simulate([long], EVERY_10_S)
    assert (found.total.lost, found.total.recovered_unknown, found.held) == (0, 0, 1)
    assert found.tries_more == 0
    given_back_first = record(WAITS, APPLIED, numbers=[1, 1], every=3_600)
    assert outcome([given_back_first], EVERY_10_S) == {}


def test_a_policy_that_blocks_never_parks_a_keyed_record():
    blocks = replace(EVERY_10_S, ordering=Ordering.BLOCK)
    parked = record(WAITS, WAITS, PARKED, applied_later_at=3_600)
    assert outcome([parked], blocks) == {"saved": 1}
    assert outcome([replace(parked, is_keyed=False)], blocks) == {}
    assert outcome([record(WAITS, WAITS, PARKED)], blocks) == {"parked_unknown": 1}


def test_failures_that_nobody_can_classify_are_counted_apart():
    mixed = record(WAITS, WAITS, APPLIED)
    mixed = replace(mixed, tries=[replace(mixed.tries[0], failure_class=UNKNOWN), *mixed.tries[1:]])
    assert outcome([mixed], EVERY_10_S) == {}  # one unknown of two, two tries of three
    both = replace(mixed, tries=[*[replace(t, failure_class=UNKNOWN) for t in mixed.tries[:2]], mixed.tries[2]])
    assert outcome([both], EVERY_10_S) == {"lost": 1}


def test_nothing_recorded_is_nothing():
    found = simulate([], EVERY_10_S)
    assert (found.total.records, found.worst_added_s, found.tries_more, dict(found.by_error)) == (0, 0.0, 0, {})


# -- Properties --------------------------------------------------------------------------------------------
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 8),
    unknown_attempts=st.integers(1, 8),
    base_s=st.floats(0.1, 60),
    factor=st.floats(1, 4),
    max_s=st.floats(60, 600),
    jitter=st.just(0.0),
    retry_after_max_s=st.just(0.0),
)
causes = st.sampled_from([TRANSIENT, UNKNOWN, PERMANENT])


@st.composite
def histories(draw, policy):
    """Records as this policy would have left them."""
    made = []
    for _ in range(draw(st.integers(0, 6))):
        cause, at, fault = draw(causes), draw(st.floats(0, 5_000)), draw(st.sampled_from(["f1", "f2"]))
        recovers_at = draw(st.integers(2, 9))
        line, number, spent = [], 1, Spent()
        while True:
            is_over = number == recovers_at
            spent = spent.and_one(cause)
            is_last = is_spent(policy, cause, spent)
            end = APPLIED if is_over else PARKED if is_last else WAITS
            line.append(
                RecordedTry(at=at, number=number, outcome=end, failure_class=cause, error_class="E", fingerprint=fault)
            )
            if end is not WAITS:
                break
            at += backoff_s(policy, number)
            number += 1
        made.append(RecordedRecord(group="g", handler="h", tries=line, in_force=policy))
    return made


@given(st.data(), policies)
def test_the_policy_that_made_a_history_would_make_it_again(data, policy):
    history = data.draw(histories(policy))
    found = simulate(history, policy)
    assert (found.total.saved, found.total.lost, found.total.unknown) == (0, 0, 0)
    assert found.worst_added_s == pytest.approx(0, abs=1e-6)
    assert found.tries_more == 0


@given(st.data(), policies, policies, st.integers(0, 5))
def test_more_attempts_never_lose_a_record(data, made_by, tried, more):
    history = data.draw(histories(made_by))
    longer = replace(tried, max_attempts=tried.max_attempts + more, unknown_attempts=tried.unknown_attempts + more)
    few, many = simulate(history, tried).total, simulate(history, longer).total
    assert many.saved >= few.saved
    assert many.lost <= few.lost


@given(st.data(), policies, policies)
def test_every_record_is_counted_once(data, made_by, tried):
    history = data.draw(histories(made_by))
    found = simulate(history, tried)
    assert found.total.records + found.waiting == len(history)
    assert found.total.saved + found.total.parked_unknown <= found.total.parked
    assert found.total.lost + found.total.recovered_unknown <= found.total.recovered
    assert sum(tally.records for tally in found.by_error.values()) == found.total.records
    assert found.worst_added_s >= 0
