"""The smoke run's count must be able to fail: each fault is built here and must be found."""

from dataclasses import replace
from uuid import UUID

import pytest

from console.demo.smoke.counting import Applied, Published, Record, count_outcomes
from console.demo.smoke.run import EXPECTED_WITHIN_S, Report


def event_id(number):
    return UUID(int=number)


def clean_run():
    """Keys a and b with three events each; a's second is parked; b's first was delivered twice."""
    published = [Published(event_id=event_id(n), key=k, sequence=s) for n, (k, s) in enumerate(ORDER, start=1)]
    records = [Record(event_id=e.event_id, key=e.key, partition=ord(e.key) % 2, offset=e.sequence) for e in published]
    records.append(Record(event_id=event_id(2), key="b", partition=0, offset=9))
    applied = [
        Applied(event_id=e.event_id, key=e.key, sequence=e.sequence, place=n)
        for n, e in enumerate(published)
        if e.event_id != event_id(3)
    ]
    return {
        "published": published,
        "rolled_back": [event_id(100)],
        "records": records,
        "applied": applied,
        "parked": [event_id(3)],
        "duplicates_skipped": 1,
    }


ORDER = [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3)]


def test_a_clean_run_has_no_fault():
    count = count_outcomes(**clean_run())
    assert count.faults(expected=6) == []
    assert (count.published, count.acked, count.applied, count.parked) == (6, 6, 5, 1)
    assert (count.delivered_twice, count.duplicates_skipped) == (1, 1)


def lose_a_record(run):
    run["records"] = [r for r in run["records"] if r.event_id != event_id(4)]


def lose_an_effect(run):
    run["applied"] = [a for a in run["applied"] if a.event_id != event_id(4)]


def lose_a_parked_one(run):
    run["parked"] = []


def apply_twice(run):
    run["applied"].append(replace(run["applied"][-1], place=50))


def apply_and_park(run):
    run["parked"].append(event_id(1))


def swap_in_topic(run):
    one, other = run["records"][0], run["records"][2]
    run["records"][0], run["records"][2] = replace(one, offset=other.offset), replace(other, offset=one.offset)


def split_a_key_over_partitions(run):
    run["records"][4] = replace(run["records"][4], partition=0)


def swap_effects(run):
    first, second = run["applied"][1], run["applied"][2]
    run["applied"][1], run["applied"][2] = replace(first, place=second.place), replace(second, place=first.place)


def see_a_rolled_back_record(run):
    run["records"].append(Record(event_id=event_id(100), key="a", partition=1, offset=77))


def see_a_rolled_back_effect(run):
    run["applied"].append(Applied(event_id=event_id(100), key="c", sequence=1, place=77))


@pytest.mark.parametrize(
    ("break_it", "field", "value"),
    [
        (lose_a_record, "lost", 1),
        (lose_an_effect, "lost", 1),
        (lose_a_parked_one, "lost", 1),
        (apply_twice, "double_effects", 1),
        (apply_and_park, "double_effects", 1),
        (swap_in_topic, "order_inversions", 1),
        (split_a_key_over_partitions, "order_inversions", 1),
        (swap_effects, "order_inversions", 1),
        (see_a_rolled_back_record, "rolled_back_seen", 1),
        (see_a_rolled_back_effect, "rolled_back_seen", 1),
    ],
)
def test_each_fault_is_counted_and_named(break_it, field, value):
    run = clean_run()
    break_it(run)
    count = count_outcomes(**run)
    assert getattr(count, field) == value
    assert any(field in fault for fault in count.faults(expected=6))


def test_a_repeat_after_a_crash_is_no_inversion():
    run = clean_run()
    run["records"].append(Record(event_id=event_id(1), key="a", partition=1, offset=40))
    assert count_outcomes(**run).order_inversions == 0


def test_a_run_in_which_nothing_came_twice_proves_nothing():
    run = clean_run()
    run["records"].pop()
    assert not count_outcomes(**run).faults(expected=6)  # a killed consumer read some again
    run["duplicates_skipped"] = 0
    assert any("delivered twice" in fault for fault in count_outcomes(**run).faults(expected=6))


def test_a_run_that_published_too_little_fails():
    assert any("published" in fault for fault in count_outcomes(**clean_run()).faults(expected=7))


def test_a_slow_run_is_told_and_does_not_fail_by_that():
    count = count_outcomes(**clean_run())
    report = Report(count=count, rolled_back=1, relay_kills=2, consumer_kills=2, settled=True)
    assert report.warnings(EXPECTED_WITHIN_S) == []
    assert "Slow: 181 s" in report.warnings(EXPECTED_WITHIN_S + 1)[0]
    assert not any("Slow" in fault for fault in report.faults())
