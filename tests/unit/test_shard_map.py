"""The shards map: every shard is there once, its holder has a letter, and the words count the same."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.shard_map import NOBODY, say_ranges, shard_map
from relay.types import RunnerView, ShardView

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


def runner(name, *, lease_left_s=8.0, shards=()):
    return RunnerView(
        name=name,
        kind="process",
        pid=1,
        host="h",
        started_at=NOW,
        seen_at=NOW,
        age_s=0.2,
        lease_left_s=lease_left_s,
        shards=shards,
        state="draining",
        sent_total=3,
        unacked=0,
    )


def shard(number, holder):
    return ShardView(shard=number, holder=holder, epoch=4, hw=17, moved_at=NOW)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [([], ""), ([3], "3"), ([0, 1, 2, 5], "0-2, 5"), ([7, 5, 6], "5-7"), (range(64), "0-63")],
)
def test_shard_numbers_are_said_as_ranges(numbers, said):
    assert say_ranges(numbers) == said


@given(st.sets(st.integers(0, 63)))
def test_ranges_say_exactly_the_numbers(numbers):
    found = set()
    for part in filter(None, say_ranges(numbers).split(", ")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers


def test_each_holder_has_a_letter_and_a_shard_without_one_is_bad():
    drawn = shard_map(
        [shard(0, "relay-1"), shard(1, "relay-2"), shard(2, None)], [runner("relay-1"), runner("relay-2")]
    )
    assert [(c.mark, c.state) for c in drawn.cells] == [("A", "ok"), ("B", "ok"), (NOBODY, "bad")]
    assert drawn.words == "3 shards: 1 held by A, relay-1; 1 held by B, relay-2; 1 held by nobody."
    assert drawn.without_holder == 1


def test_a_holder_whose_lease_ran_out_is_marked_on_its_shards_and_in_the_list():
    drawn = shard_map([shard(0, "relay-1")], [runner("relay-1", lease_left_s=0)])
    assert drawn.cells[0].state == "warn"
    assert drawn.runners[0].state == "bad"


def test_a_holder_that_is_not_in_the_list_of_runners_still_has_a_letter():
    assert shard_map([shard(0, "gone")], []).cells[0].mark == "A"


def test_more_holders_than_letters_still_differ():
    names = [f"relay-{n:02}" for n in range(60)]
    drawn = shard_map([shard(n, name) for n, name in enumerate(names)], [])
    assert len({cell.mark for cell in drawn.cells}) == 60


def test_no_shards_is_said_as_such():
    assert shard_map([], []).words == "No shard is known yet."
