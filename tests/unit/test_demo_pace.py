import pytest

from console.demo.pace import LOOK_AGAIN_S, Pace


def count_taken(pace, *, from_s, until_s, per_s, step_s=0.01):
    steps = round((until_s - from_s) / step_s)
    return sum(pace.take(from_s + step * step_s, per_s) for step in range(1, steps + 1))


@pytest.mark.parametrize("per_s", [0.5, 4, 20])
def test_acts_come_at_the_rate(per_s):
    assert count_taken(Pace(0, catch_up_s=1), from_s=0, until_s=60, per_s=per_s) == pytest.approx(60 * per_s, abs=1)


def test_nothing_is_due_at_rate_zero_and_nothing_piles_up_meanwhile():
    pace = Pace(0, catch_up_s=1)
    assert count_taken(pace, from_s=0, until_s=60, per_s=0) == 0
    assert count_taken(pace, from_s=60, until_s=60.5, per_s=4) <= 2


def test_a_writer_that_was_held_up_catches_up_on_a_second_at_most():
    assert count_taken(Pace(0, catch_up_s=1), from_s=100, until_s=100.2, per_s=10) == pytest.approx(12, abs=1)


def test_a_slow_rate_still_looks_for_a_new_one_within_a_second():
    assert Pace(0, catch_up_s=1).wait_s(0, 0.001) == LOOK_AGAIN_S
    assert Pace(0, catch_up_s=1).wait_s(0, 0) == LOOK_AGAIN_S
    assert Pace(0, catch_up_s=1).wait_s(0, 10) == pytest.approx(0.1)
