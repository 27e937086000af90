from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.lanes import Lanes


def test_two_items_of_one_lane_never_run_together():
    lanes = Lanes()
    lanes.put("a", 1)
    lanes.put("a", 2)
    lanes.put("b", 3)
    assert [lanes.take(0), lanes.take(0), lanes.take(0)] == [("a", 1), ("b", 3), None]
    lanes.done("a")
    assert lanes.take(0) == ("a", 2)


def test_a_lane_that_waits_holds_its_later_items_and_no_other_lane():
    lanes = Lanes()
    lanes.put("a", 1)
    lanes.put("a", 2)
    lanes.put("b", 3)
    lane, item = lanes.take(0)
    lanes.put_back(lane, item, due=10)
    assert lanes.take(5) == ("b", 3)
    assert (lanes.take(5), lanes.next_due(), lanes.waiting) == (None, 10, 1)
    assert lanes.take(10) == ("a", 1)


def test_dropped_items_do_not_come_back_when_their_lane_is_due():
    lanes = Lanes()
    lanes.put("a", 1)
    lanes.put_back(*lanes.take(0), due=10)
    lanes.drop(lambda item: item != 1)
    assert (lanes.take(20), lanes.next_due()) == (None, None)
    lanes.put("a", 2)
    assert lanes.take(20) == ("a", 2)


def test_a_busy_lane_stays_busy_when_its_queue_is_dropped():
    lanes = Lanes()
    lanes.put("a", 1)
    lanes.put("a", 2)
    lanes.take(0)
    lanes.drop(lambda _: False)
    lanes.put("a", 3)
    assert lanes.take(0) is None
    lanes.done("a")
    assert lanes.take(0) == ("a", 3)


def test_an_item_that_goes_first_wakes_its_waiting_lane_and_keeps_its_own_order():
    lanes = Lanes()
    lanes.put("a", 10)
    lanes.put_back(*lanes.take(0), due=99)
    for item in (1, 2):
        lanes.put_before("a", item, lambda other: other >= 10)
    lanes.put_before("b", 3, lambda other: True)
    taken = []
    for _ in range(4):
        lane, item = lanes.take(0)
        taken.append(item)
        lanes.done(lane)
    assert taken == [1, 3, 2, 10]


def test_an_item_that_goes_first_in_a_busy_lane_waits_for_it():
    lanes = Lanes()
    lanes.put("a", 10)
    lanes.put("a", 11)
    lanes.take(0)
    lanes.put_before("a", 1, lambda other: other >= 10)
    assert lanes.take(0) is None
    lanes.done("a")
    assert lanes.take(0) == ("a", 1)


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3)),
        st.tuples(st.just("take"), st.integers(0, 3)),
        st.tuples(st.just("done"), st.integers(0, 3)),
        st.tuples(st.just("back"), st.integers(0, 3)),
    ),
    max_size=80,
)


def test_a_busy_item_returns_behind_what_goes_first_and_its_lane_runs_at_once():
    lanes = Lanes()
    lanes.put("a", "live 30")
    lanes.put("a", "live 31")
    assert lanes.take(0) == ("a", "live 30")
    for item in ("stored 1", "stored 2"):
        lanes.put_before("a", item, lambda other: other.startswith("live"))
    lanes.put_back("a", "live 30", 600, lambda other: other.startswith("stored"))
    taken = []
    while (found := lanes.take(1)) is not None:
        taken.append(found[1])
        lanes.done("a")
    assert taken == ["stored 1", "stored 2", "live 30", "live 31"]


@given(ACTS)
def test_each_lane_keeps_its_order_and_nothing_is_lost(acts):
    lanes, now, count = Lanes(), 0.0, 0
    busy, put, finished = {}, {}, {}

    def take():
        taken = lanes.take(now)
        if taken:
            assert taken[0] not in busy
            busy[taken[0]] = taken[1]

    for act, lane in acts:
        now += 1
        if act == "put":
            count += 1
            put.setdefault(lane, []).append(count)
            lanes.put(lane, count)
        elif act == "take":
            take()
        elif lane in busy and act == "done":
            finished.setdefault(lane, []).append(busy.pop(lane))
            lanes.done(lane)
        elif lane in busy:
            lanes.put_back(lane, busy.pop(lane), due=now + 2)
    for _ in range(3 * count + len(busy) + 1):
        now += 3
        take()
        for lane in list(busy):
            finished.setdefault(lane, []).append(busy.pop(lane))
            lanes.done(lane)
    assert finished == put
