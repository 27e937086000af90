"""A pause ends with its assignment: a partition that comes back is read from the committed offset."""

import time
from uuid import uuid4

import pytest

from relay.facade import open_consumer
from relay.types import ConsumerRecord, OffsetMissing, PartitionRef
from tests.consumers import Line

pytestmark = pytest.mark.django_db


class Member:
    """A member of a group that starts where nothing is committed at the beginning, and notes what it is told."""

    def __init__(self, line):
        self.ours = set()
        self.seen = []
        self.consumer = open_consumer(line.group, [line.topic], self, client_id=uuid4().hex[:8])

    def on_assigned(self, places):
        self.ours.update(places)

    def on_revoked(self, places):
        self.ours.difference_update(places)

    on_lost = on_revoked

    def on_committed(self, offsets, error):
        raise AssertionError("nothing is committed here")

    def turn(self):
        polled = self.consumer.poll(0.05)
        if isinstance(polled, OffsetMissing):
            self.consumer.start_at(polled.place, None)
        elif isinstance(polled, ConsumerRecord):
            self.seen.append((polled.place, polled.offset))


def until(condition, *members):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        for member in members:
            member.turn()


def test_a_partition_that_was_paused_when_it_was_revoked_comes_back_at_the_committed_offset():
    line = Line(partitions=2)
    line.put_many((n, "k", n % 2) for n in range(400))
    first = Member(line)
    until(lambda: all(sum(place.partition == p for place, _ in first.seen) >= 50 for p in (0, 1)), first)
    first.consumer.pause(sorted(first.ours))
    second = Member(line)
    until(lambda: len(first.ours) == len(second.ours) == 1, first, second)
    (gone,) = second.ours
    second.consumer.close()
    first.seen.clear()
    until(lambda: gone in first.ours, first)
    until(lambda: [offset for place, offset in first.seen if place == gone], first)
    assert next(offset for place, offset in first.seen if place == gone) == 0
    first.consumer.close()
    line.drop()


def test_a_partition_that_is_started_anew_is_not_paused_any_more():
    line = Line(partitions=1)
    line.put_many((n, "k", 0) for n in range(100))
    member = Member(line)
    place = PartitionRef(line.topic, 0)
    until(lambda: len(member.seen) >= 20, member)
    member.consumer.pause([place])
    member.seen.clear()
    member.consumer.start_at(place, 5)
    until(lambda: member.seen, member)
    assert member.seen[0] == (place, 5)
    member.consumer.close()
    line.drop()
