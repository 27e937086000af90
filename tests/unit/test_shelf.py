"""The shelf between the owner and the workers: what is dropped, what still counts, what may be committed."""

import threading

import pytest

from dlq.work import Shelf
from relay.types import ConsumerRecord, PartitionRef

HERE, THERE = PartitionRef("t", 0), PartitionRef("t", 1)


def record(offset, key=b"k", place=HERE, value=b"v"):
    return ConsumerRecord(
        place=place, offset=offset, leader_epoch=None, timestamp_ms=None, key=key, value=value, headers=()
    )


@pytest.fixture
def shelf():
    made = Shelf(limit_records=4, limit_bytes=100)
    made.open_lots([HERE, THERE])
    return made


def offsets(points):
    return {place: point.offset for place, point in points.items()}


def test_what_was_committed_is_not_offered_again(shelf):
    shelf.add(record(0))
    shelf.finish(shelf.take())
    assert offsets(shelf.commit_points()) == {HERE: 1}
    shelf.note_committed(shelf.commit_points())
    assert shelf.commit_points() == {}


def test_dropped_records_hold_the_frontier_until_their_lot_is_closed(shelf):
    for offset in (0, 1, 2):
        shelf.add(record(offset, key=str(offset).encode()))
    running = shelf.take()
    shelf.drop_queued([HERE])
    shelf.finish(running)
    assert offsets(shelf.commit_points([HERE])) == {HERE: 1}
    assert shelf.view().records == 0


def test_work_that_ends_after_its_partition_went_moves_no_offset(shelf):
    shelf.add(record(5))
    running = shelf.take()
    shelf.close_lots([HERE])
    shelf.open_lots([HERE])
    shelf.finish(running)
    assert shelf.commit_points() == {}


def test_a_key_that_still_runs_for_a_lost_lot_is_not_begun_in_the_next(shelf):
    shelf.add(record(5))
    running = shelf.take()
    shelf.close_lots([HERE])
    shelf.open_lots([HERE])
    shelf.add(record(5))
    shelf.add(record(0, place=THERE))
    assert shelf.take().record.place == THERE
    assert shelf.view().in_flight == 2
    shelf.finish(running)
    assert shelf.take().record.offset == 5


def test_a_record_put_back_after_its_partition_went_is_forgotten(shelf):
    shelf.add(record(5))
    running = shelf.take()
    shelf.close_lots([HERE])
    shelf.put_back(running, 0, "x")
    view = shelf.view()
    assert (view.records, view.in_flight, list(view.held)) == (0, 0, [])


def test_fullness_is_by_records_or_bytes_of_a_share_and_ends_half_empty():
    shelf = Shelf(limit_records=8, limit_bytes=200)
    shelf.open_lots([HERE, THERE])
    for offset in range(4):
        shelf.add(record(offset, key=str(offset).encode()))
    assert shelf.is_full(HERE)
    shelf.finish(shelf.take())
    assert not shelf.is_full(HERE)
    assert not shelf.has_room(HERE)
    shelf.finish(shelf.take())
    shelf.finish(shelf.take())
    assert shelf.has_room(HERE)
    shelf.add(record(9, value=b"x" * 200))
    assert shelf.is_full(HERE)


def test_a_partition_with_a_long_backlog_leaves_room_for_the_others():
    shelf = Shelf(limit_records=8, limit_bytes=10_000)
    shelf.open_lots([HERE, THERE])
    for offset in range(4):
        shelf.add(record(offset))
    assert shelf.is_full(HERE)
    assert not shelf.is_full(THERE)
    assert shelf.has_room(THERE)


def test_shares_shrink_when_more_partitions_are_assigned_and_one_record_always_fits():
    shelf = Shelf(limit_records=2, limit_bytes=10_000)
    shelf.open_lots([HERE])
    shelf.add(record(0))
    assert not shelf.is_full(HERE)
    shelf.open_lots([THERE, PartitionRef("other", 0), PartitionRef("other", 1)])
    assert shelf.is_full(HERE)
    assert shelf.has_room(THERE)


def test_records_of_partitions_that_are_not_ours_and_repeats_are_not_taken(shelf):
    assert not shelf.add(record(0, place=PartitionRef("other", 0)))
    assert shelf.add(record(1))
    assert not shelf.add(record(1))


def test_waiting_for_what_runs_ends_when_it_finishes_or_time_is_up(shelf):
    shelf.add(record(0))
    running = shelf.take()
    assert not shelf.wait_in_flight([HERE], 0.01)
    assert shelf.wait_in_flight([THERE], 0.01)
    threading.Timer(0.05, shelf.finish, [running]).start()
    assert shelf.wait_in_flight(None, 10)


def test_closing_wakes_a_waiting_worker(shelf):
    threading.Timer(0.05, shelf.close).start()
    assert shelf.take() is None


def crowd(shelf, number=4):
    for offset in range(number):
        shelf.add(record(offset))
    shelf.put_back(shelf.take(), 60, "away")


def test_a_waiting_key_that_fills_half_of_its_partitions_share_is_sent_to_the_database():
    shelf = Shelf(limit_records=8, limit_bytes=10_000)
    shelf.open_lots([HERE])
    crowd(shelf)
    assert shelf.relieve(lambda job: False, 100) == 0
    assert shelf.relieve(lambda job: True, 100) == 1
    job = shelf.take()
    assert (job.record.offset, job.to_store) == (0, True)
    shelf.finish(job)
    assert offsets(shelf.commit_points()) == {HERE: 1}


def test_a_waiting_key_that_is_small_stays_unless_it_holds_many_delivered_records_back():
    shelf = Shelf(limit_records=100, limit_bytes=10_000)
    shelf.open_lots([HERE])
    crowd(shelf, 1)
    for offset in range(1, 30):
        shelf.add(record(offset, key=str(offset).encode()))
        shelf.finish(shelf.take())
    assert shelf.relieve(lambda job: True, 50) == 0
    assert shelf.relieve(lambda job: True, 20) == 1


def test_a_record_that_may_not_be_stored_is_not_sent_there_again_and_again():
    shelf = Shelf(limit_records=8, limit_bytes=10_000)
    shelf.open_lots([HERE])
    for offset in range(4):
        shelf.add(record(offset))
    shelf.put_back(shelf.take(), 60, "full", is_full=True)
    assert shelf.relieve(lambda job: True, 100) == 0
    assert shelf.find_full() == "full"


def test_a_stored_record_shares_the_lane_of_its_key_and_moves_no_offset(shelf):
    assert shelf.add_stored(7, record(3))
    assert not shelf.add_stored(7, record(3))
    shelf.add(record(9))
    job = shelf.take()
    assert (job.row, shelf.stored_here()) == (7, {7})
    shelf.finish(job)
    assert shelf.commit_points() == {}
    assert shelf.stored_here() == frozenset()
    assert shelf.take().record.offset == 9


def test_stored_records_run_before_a_delivered_one_of_their_key_that_waits_for_them(shelf):
    shelf.add(record(9))
    shelf.put_back(shelf.take(), 60, "full", is_full=True)
    shelf.add_stored(7, record(3))
    shelf.add_stored(8, record(4))
    order = []
    for _ in range(3):
        job = shelf.take()
        order.append(job.record.offset)
        shelf.finish(job)
    assert order == [3, 4, 9]


def test_a_stored_record_that_has_to_wait_leaves_and_rests(shelf):
    shelf.add_stored(7, record(3))
    shelf.put_back(shelf.take(), 60, "away")
    assert (shelf.count_stored(), shelf.stored_here()) == (0, {7})
    assert not list(shelf.view().held)


def test_records_held_by_a_breaker_run_when_it_closes(shelf):
    shelf.add(record(0))
    shelf.put_back(shelf.take(), 60, "open", held_by="a.handler")
    shelf.wake(["another"])
    shelf.wake(["a.handler"])
    assert shelf.take().record.offset == 0
