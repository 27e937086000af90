from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.frontier import Frontier


def test_gaps_between_delivered_offsets_do_not_hold_the_frontier():
    frontier = Frontier()
    for offset in (3, 7, 20):
        assert frontier.deliver(offset)
    frontier.finish(3)
    assert frontier.point.offset == 7
    frontier.finish(20)
    assert frontier.point.offset == 7
    frontier.finish(7)
    assert (frontier.point.offset, frontier.lowest_open) == (21, None)


def test_nothing_may_be_committed_before_the_first_record_is_finished():
    frontier = Frontier()
    frontier.deliver(0)
    frontier.deliver(1)
    frontier.finish(1)
    assert frontier.point is None


def test_an_offset_that_was_delivered_before_is_not_delivered_again():
    frontier = Frontier()
    assert frontier.deliver(5)
    assert not frontier.deliver(5)
    assert not frontier.deliver(4)


def test_the_commit_carries_the_epoch_of_the_last_record_behind_it():
    frontier = Frontier()
    frontier.deliver(1, 4)
    frontier.deliver(2, 6)
    frontier.finish(1)
    assert (frontier.point.offset, frontier.point.leader_epoch) == (2, 4)


@given(st.sets(st.integers(0, 200), min_size=1), st.randoms(use_true_random=False), st.integers(0, 200))
def test_the_frontier_is_the_lowest_unfinished_delivered_offset(offsets, random, finished_count):
    delivered = sorted(offsets)
    frontier = Frontier()
    for offset in delivered:
        frontier.deliver(offset)
    order = random.sample(delivered, k=len(delivered))[:finished_count]
    for offset in order:
        frontier.finish(offset)
    unfinished = [offset for offset in delivered if offset not in set(order)]
    expected = unfinished[0] if unfinished else delivered[-1] + 1
    assert (frontier.point.offset if frontier.point else delivered[0]) == expected
