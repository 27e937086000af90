"""What follows a failed try, what a record is to do now, and when a dependency counts as down: tables."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.breaker import BreakerLimits, Run, after_failure, next_probe_s
from dlq.domain.policy import RetryPolicy
from dlq.domain.retrying import Facts, GiveUp, Spent, Step, TryAgain, decide_after_failure, next_step
from dlq.types import FailureClass, Ordering

POLICY = RetryPolicy(max_attempts=5, unknown_attempts=2, base_s=1, factor=2, max_s=60, jitter=0, retry_after_max_s=30)
BLOCK = replace(POLICY, ordering=Ordering.BLOCK)
T, P, S, U = FailureClass.TRANSIENT, FailureClass.PERMANENT, FailureClass.SCHEMA, FailureClass.UNKNOWN


@pytest.mark.parametrize(
    ("policy", "found", "attempts", "unknown", "asked_s", "is_keyed", "expected"),
    [
        (POLICY, T, 1, 0, None, True, TryAgain(1)),
        (POLICY, T, 4, 0, None, True, TryAgain(8)),
        (POLICY, T, 5, 0, None, True, GiveUp()),
        (POLICY, T, 1, 0, 12.0, True, TryAgain(12)),
        (POLICY, T, 1, 0, 99.0, True, TryAgain(30)),
        (POLICY, P, 1, 0, None, True, GiveUp()),
        (POLICY, S, 1, 0, None, True, GiveUp()),
        (POLICY, U, 1, 1, None, True, TryAgain(1)),
        (POLICY, U, 2, 2, None, True, GiveUp()),
        (POLICY, U, 4, 1, None, True, TryAgain(8)),
        (POLICY, U, 5, 1, None, True, GiveUp()),
        (BLOCK, T, 5, 0, None, True, TryAgain(60)),
        (BLOCK, P, 1, 0, None, True, TryAgain(60)),
        (BLOCK, P, 1, 0, None, False, GiveUp()),
        (BLOCK, T, 5, 0, None, False, GiveUp()),
        (BLOCK, T, 2, 0, None, True, TryAgain(2)),
    ],
)
def test_after_a_failure(policy, found, attempts, unknown, asked_s, is_keyed, expected):
    spent = Spent(attempts=attempts, unknown=unknown)
    decided = decide_after_failure(policy, found, spent, chance=0, retry_after_s=asked_s, is_keyed=is_keyed)
    assert decided == expected


def test_only_what_nobody_can_classify_counts_as_unknown():
    assert Spent().and_one(T).and_one(U).and_one(P) == Spent(attempts=3, unknown=1)


PLAIN = Facts(
    has_row=False,
    is_stored=False,
    came_stored=False,
    to_store=False,
    is_behind=False,
    is_quarantined=False,
    is_due=True,
    is_given_up=False,
)


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        ({}, Step.TRY),
        ({"has_row": True}, Step.TRY),
        ({"has_row": True, "is_due": False}, Step.WAIT),
        ({"has_row": True, "is_given_up": True}, Step.GIVE_UP),
        ({"has_row": True, "is_due": False, "to_store": True}, Step.STORE),
        ({"is_behind": True}, Step.STORE),
        ({"is_behind": True, "is_quarantined": True}, Step.STORE),
        ({"is_quarantined": True}, Step.PARK_BEHIND),
        ({"is_quarantined": True, "to_store": True}, Step.PARK_BEHIND),
        ({"has_row": True, "is_stored": True}, Step.LEAVE),
        ({"came_stored": True}, Step.PASS),
        ({"came_stored": True, "has_row": True, "is_stored": True}, Step.TRY),
        ({"came_stored": True, "has_row": True, "is_stored": True, "is_behind": True}, Step.REST),
        ({"came_stored": True, "has_row": True, "is_stored": True, "is_quarantined": True}, Step.PARK_BEHIND),
        ({"came_stored": True, "has_row": True, "is_stored": True, "is_due": False}, Step.WAIT),
    ],
)
def test_what_a_record_is_to_do_now(facts, step):
    assert next_step(replace(PLAIN, **facts)) is step


LIMITS = BreakerLimits(failures=5, records=3, probe_s=2, probe_max_s=30)


def run_of(*culprits):
    run = Run()
    for culprit in culprits:
        run = after_failure(run, culprit, LIMITS)
    return run


@pytest.mark.parametrize(
    ("culprits", "is_open"),
    [
        ([1, 2, 3, 4], False),
        ([1, 2, 3, 4, 5], True),
        ([1, 2, 3, 1, 2], True),
        ([1, 2, 1, 2, 1, 2, 1, 2], False),
        ([1] * 100, False),
        ([1] * 100 + [2, 3], True),
    ],
)
def test_a_breaker_opens_at_failures_in_a_row_on_several_records(culprits, is_open):
    assert run_of(*culprits).is_open is is_open


@given(st.lists(st.integers(1, 2), max_size=200))
def test_two_records_alone_never_open_a_breaker_and_its_row_stays_small(culprits):
    run = run_of(*culprits)
    assert not run.is_open
    assert len(run.culprits) <= 15


def test_an_outage_of_ten_minutes_is_probed_ever_more_rarely_and_counts_nothing():
    opened, clock, probes = run_of(1, 2, 3, 4, 5), 0.0, 0
    while clock < 600:
        clock += next_probe_s(probes, LIMITS)
        opened = after_failure(opened, 9, LIMITS)
        probes += 1
    assert opened == run_of(1, 2, 3, 4, 5)
    assert 20 < probes < 30
    assert next_probe_s(10**6, LIMITS) == 30
