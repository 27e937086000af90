"""What a replay may do: verdicts, order inside a key, the steps from one to all, and the rate."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.quarantine import lane_of
from dlq.domain.replay_plan import Candidate, Limits, Progress, allow, next_step, plan_replay
from dlq.types import DeadLetterState, ReplayMode, ReplayPhase, ReplayVerdict

AT = datetime(2026, 11, 30, 10, 42, tzinfo=UTC)
LIMITS = Limits(ramp=10, window=50, stop_ratio=0.2)


def candidate(n, **facts):
    values = {"state": DeadLetterState.PARKED, "parked_at": AT + timedelta(seconds=n), "partition": 0, "offset": n}
    return Candidate(id=UUID(int=n), **{**values, **facts})


def verdicts(*candidates, mode=ReplayMode.HANDLER):
    return [line.verdict for line in plan_replay(candidates, mode)]


CASES = {
    "parked": ({}, ReplayVerdict.ELIGIBLE),
    "discarded": ({"state": DeadLetterState.DISCARDED}, ReplayVerdict.NOT_PARKED),
    "in another replay": ({"is_in_replay": True}, ReplayVerdict.IN_REPLAY),
    "without bytes": ({"has_bytes": False}, ReplayVerdict.NO_PAYLOAD),
    "without a handler": ({"can_go": False}, ReplayVerdict.NO_HANDLER),
    "still broken": ({"decodes": False}, ReplayVerdict.SCHEMA),
    "applied": ({"is_applied": True}, ReplayVerdict.APPLIED),
    "failed again too often": ({"needs_human": True}, ReplayVerdict.LOOP_GUARD),
    "passed by its key": ({"lane": 1, "is_passed": True}, ReplayVerdict.HAZARD),
    "passed without a key": ({"is_passed": True}, ReplayVerdict.ELIGIBLE),
    "passed, but its key is held": ({"lane": 1, "is_passed": True, "head_id": UUID(int=1)}, ReplayVerdict.ELIGIBLE),
    "behind a head": ({"lane": 1, "queue_number": 2, "head_id": UUID(int=99)}, ReplayVerdict.BEHIND),
}


@pytest.mark.parametrize(("facts", "verdict"), CASES.values(), ids=CASES)
def test_each_reason_has_its_verdict(facts, verdict):
    assert verdicts(candidate(1, **facts), candidate(2))[0] is verdict


def test_one_that_needs_a_person_runs_when_it_is_picked_alone():
    assert verdicts(candidate(1, needs_human=True)) == [ReplayVerdict.ELIGIBLE]


def test_what_waits_behind_a_head_follows_it_only_when_the_head_itself_runs():
    head = {"lane": 7, "head_id": UUID(int=1)}
    follower = candidate(2, **head, queue_number=2)
    assert verdicts(candidate(1, **head, queue_number=1), follower) == [ReplayVerdict.ELIGIBLE, ReplayVerdict.FOLLOWS]
    stopped = candidate(1, **head, queue_number=1, needs_human=True)
    assert verdicts(stopped, follower) == [ReplayVerdict.LOOP_GUARD, ReplayVerdict.BEHIND]


def test_a_topic_that_is_not_declared_has_its_own_verdict():
    assert verdicts(candidate(1, can_go=False), mode=ReplayMode.TOPIC) == [ReplayVerdict.NO_TOPIC]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=40))
def test_those_of_one_key_go_in_its_order_whenever_they_were_parked(made):
    candidates = [
        candidate(n, lane=lane, queue_number=n, parked_at=AT + timedelta(seconds=late), head_id=UUID(int=n))
        for n, (lane, late) in enumerate(made)
    ]
    planned = [line.candidate for line in plan_replay(candidates, ReplayMode.HANDLER)]
    assert sorted(c.id for c in planned) == sorted(c.id for c in candidates)
    for lane in range(4):
        numbers = [c.queue_number for c in planned if c.lane == lane]
        assert numbers == sorted(numbers)


def step(phase, *, tried=0, failed=0, running=0, mark_tried=0, mark_failed=0):
    return next_step(
        Progress(
            phase=phase, tried=tried, failed=failed, running=running, mark_tried=mark_tried, mark_failed=mark_failed
        ),
        LIMITS,
    )


def test_one_goes_first_then_ten_then_the_rest():
    assert step(ReplayPhase.CANARY).most == 1
    assert step(ReplayPhase.CANARY, running=1).most == 0
    ramp = step(ReplayPhase.CANARY, tried=1)
    assert (ramp.progress.phase, ramp.most) == (ReplayPhase.RAMP, 10)
    assert step(ReplayPhase.RAMP, tried=4, running=3, mark_tried=1).most == 4
    rest = step(ReplayPhase.RAMP, tried=11, mark_tried=1)
    assert (rest.progress.phase, rest.most) == (ReplayPhase.REST, None)


@pytest.mark.parametrize(
    ("phase", "failed", "stops"),
    [
        (ReplayPhase.CANARY, 1, True),
        (ReplayPhase.RAMP, 2, False),
        (ReplayPhase.RAMP, 3, True),
        (ReplayPhase.REST, 10, False),
        (ReplayPhase.REST, 11, True),
    ],
)
def test_it_stops_by_itself_when_more_than_a_fifth_of_a_step_fails(phase, failed, stops):
    found = step(phase, tried=failed, failed=failed)
    assert bool(found.stop) is stops


def test_a_window_that_went_well_does_not_excuse_the_next():
    fine = step(ReplayPhase.REST, tried=1_000, failed=0)
    assert (fine.progress.mark_tried, fine.stop) == (1_000, "")
    assert step(ReplayPhase.REST, tried=1_020, failed=15, mark_tried=1_000).stop


@given(
    rate=st.floats(0.01, 1_000),
    looks=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 300)), max_size=60),
)
def test_a_rate_is_never_passed_whoever_looks_how_often(rate, looks):
    unused, total, passed = 0.0, 0, 0.0
    for after_s, wanted in looks:
        unused += after_s
        passed += after_s
        allowed = allow(rate, unused, wanted)
        if allowed.items:
            unused = allowed.rest_s
        total += allowed.items
    assert total <= rate * passed + 1e-6


def test_without_a_rate_as_many_go_as_there_is_room():
    assert allow(None, 0.0, 200).items == 200


def test_keys_of_other_groups_and_topics_have_other_lanes():
    lanes = {lane_of(*parts) for parts in [("g", "t", b"k"), ("gt", "", b"k"), ("g", "tk", b""), ("g", "t", b"k\0")]}
    assert len(lanes) == 4
    assert all(-(2**63) <= lane < 2**63 for lane in lanes)
