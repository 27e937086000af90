"""The rules of lag: tables of cases first, properties second."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.lag import (
    Drain,
    JudgedPartition,
    LagRules,
    PartitionFacts,
    Rates,
    TimeLag,
    judge_group,
    judge_partition,
    keep_recent,
    lag_skew,
    lag_trend,
    lag_verdict,
    measure_rates,
    offset_distance,
    plan_drain,
    remember,
    time_lag_of,
    total_lag,
    unmoved_s,
    with_gaps,
)
from relay.domain.words import say_duration
from relay.types import LagPoint, LagWord, Trend

T0 = datetime(2026, 11, 30, 12, 1, 50, tzinfo=UTC)
RULES = LagRules(window_s=60, min_samples=5, no_member_after_s=10, recent_points=24)


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def point(seconds, committed, end, begin=0):
    return LagPoint(at=at(seconds), committed=committed, begin=begin, end=end)


def watch(
    readings, *, allowed=50, tolerated=0, group_unmoved_s=None, no_member_s=None, owned=True, alone=False, rules=RULES
):
    """Feed readings (seconds, committed, end[, begin]) one by one, as the collector does."""
    points, memory = [], None
    for reading in readings:
        now = point(*reading)
        memory = remember(memory, points, now)
        points = keep_recent(points, now, rules)
    return PartitionFacts(
        points=points,
        memory=memory,
        allowed=allowed,
        tolerated_unattended=tolerated,
        group_unmoved_s=unmoved_s(memory, points[-1].at) if group_unmoved_s is None else group_unmoved_s,
        no_member_s=no_member_s,
        owned=owned,
        alone=alone,
        rules=rules,
    )


def every_5_s(committed, end, *, until=70, begin=0):
    """Readings from 0 to `until`: `committed` and `end` are functions of the time in seconds."""
    return [(s, committed(s), end(s), begin) for s in range(0, until + 1, 5)]


STEADY = every_5_s(lambda s: 1000 + s, lambda s: 1003 + s)

CASES = {
    "data loss comes before everything": (
        {"readings": [(0, 5, 900, 800)]},
        "data loss: offsets 5 to 799 were deleted before they were read",
    ),
    "too few samples are never an accusation": (
        {"readings": [(0, 0, 900), (5, 0, 905)]},
        "unknown: 2 of 5 samples since 12:01:50",
    ),
    "nothing committed": ({"readings": [(0, None, 9, 2)]}, "unknown: nothing committed yet, 7 in the log"),
    "an offset that went back": (
        {"readings": [*STEADY, (75, 500, 1080), (80, 520, 1085)]},
        "rewound: committed 520 after 1,070, 550 to read again",
    ),
    "a rewind that has recovered": (
        {"readings": [*STEADY, (75, 500, 1080), (80, 1070, 1085)]},
        "ok, within 50",
    ),
    "nothing new and lag 0": (
        {"readings": [(0, 3, 4), (5, 4, 5), *[(s, 5, 5) for s in range(10, 131, 5)]]},
        "idle: nothing published for 2 m 5 s",
    ),
    "nothing new ever since it is watched": (
        {"readings": every_5_s(lambda s: 5, lambda s: 5)},
        "idle: nothing published for at least 1 m 10 s",
    ),
    "within the allowed lag": ({"readings": STEADY}, "ok, within 50"),
    "caught up": ({"readings": every_5_s(lambda s: 1000 + s, lambda s: 1000 + s)}, "ok, caught up"),
    "within a larger allowed lag": (
        {"readings": every_5_s(lambda s: 1000 + s, lambda s: 1100 + s), "allowed": 200},
        "ok, within 200",
    ),
    "no commit of the whole group": (
        {"readings": every_5_s(lambda s: 1000, lambda s: 1242 + s)},
        "stopped: no commit for 1 m 10 s, 312 waiting",
    ),
    "no commit, but within the allowed lag": (
        {"readings": every_5_s(lambda s: 1000, lambda s: 1010)},
        "ok, within 50",
    ),
    "no commit for less than the window": (
        {"readings": every_5_s(lambda s: 1000, lambda s: 1242 + s, until=55)},
        "ok, 297 waiting, last commit 55 s ago",
    ),
    "its group commits elsewhere": (
        {"readings": every_5_s(lambda s: 1000, lambda s: 1242 + s), "group_unmoved_s": 2.0},
        "stalled: no commit for 1 m 10 s, 312 waiting",
    ),
    "its group commits elsewhere, and nobody owns it": (
        {"readings": every_5_s(lambda s: 1000, lambda s: 1242 + s), "group_unmoved_s": 2.0, "owned": False},
        "stopped: no owner, no commit for 1 m 10 s, 312 waiting",
    ),
    "lag that never falls": (
        {"readings": every_5_s(lambda s: 1000 + s, lambda s: 1100 + 2 * s)},
        "falling behind: +60 a minute for 1 m 10 s",
    ),
    "lag that stays": (
        {"readings": every_5_s(lambda s: 1000 + s, lambda s: 1100 + s)},
        "falling behind: 100 waiting and not fewer for 1 m 10 s",
    ),
    "one lower reading does not end falling behind": (
        {"readings": [*every_5_s(lambda s: 1000 + s, lambda s: 1100 + 2 * s), (75, 1150, 1250), (80, 1155, 1260)]},
        "falling behind: 105 waiting and not fewer for 1 m 20 s",
    ),
    "lag that went to zero is not falling behind": (
        {"readings": [*every_5_s(lambda s: 1000 + s, lambda s: 1100 + 2 * s), (75, 1250, 1250), (80, 1250, 1360)]},
        "ok, 110 waiting, moving",
    ),
    "lag that stays, but for noise": (
        {"readings": every_5_s(lambda s: 1000 + s, lambda s: 1300 + s + (2 if s % 10 else -2))},
        "falling behind: 298 waiting and not fewer for 1 m 10 s",
    ),
    "lag that falls slowly and steadily is draining": (
        {"readings": every_5_s(lambda s: 1000 + s, lambda s: 2_000 + s - s // 5)},
        "ok, 986 waiting, draining",
    ),
    "the only partition of a group hangs in the hands of its owner": (
        {"readings": every_5_s(lambda s: 1000, lambda s: 1242 + s), "alone": True},
        "stalled: no commit for 1 m 10 s, 312 waiting",
    ),
    "the only partition of a group has no owner": (
        {"readings": every_5_s(lambda s: 1000, lambda s: 1242 + s), "alone": True, "owned": False},
        "stopped: no owner, no commit for 1 m 10 s, 312 waiting",
    ),
    "lag above what is allowed that falls": (
        {"readings": every_5_s(lambda s: 1000 + 3 * s, lambda s: 1300 + s)},
        "ok, 160 waiting, draining",
    ),
    "no member and more comes: at once": (
        {"readings": [(0, 10, 300), (5, 10, 310), (10, 10, 322)], "no_member_s": 10.0},
        "stopped: no member, 312 waiting",
    ),
    "no member is called stopped even within the allowed lag": (
        {"readings": [(0, 10, 20), (5, 10, 21), (10, 10, 22)], "no_member_s": 10.0},
        "stopped: no member, 12 waiting",
    ),
    "no member for a moment only (a restart)": (
        {"readings": [(0, 10, 20), (5, 10, 21)], "no_member_s": 5.0},
        "unknown: 2 of 5 samples since 12:01:50",
    ),
    "no member, nothing more comes, the window is over": (
        {"readings": every_5_s(lambda s: 10, lambda s: 12, until=60), "no_member_s": 60.0},
        "stopped: no member, 2 waiting",
    ),
    "no member and nothing waits": (
        {"readings": every_5_s(lambda s: 12, lambda s: 12, until=60), "no_member_s": 60.0},
        "idle: nothing published for at least 1 m 0 s",
    ),
    "no member, and a person allows that lag": (
        {"readings": every_5_s(lambda s: 10, lambda s: 22, until=60), "no_member_s": 60.0, "tolerated": 50},
        "ok, within 50",
    ),
    "no member, but somebody commits by hand": (
        {"readings": every_5_s(lambda s: 1000 + s, lambda s: 1003 + s), "no_member_s": 70.0},
        "ok, within 50",
    ),
    "an end that went back is another log": (
        {"readings": [*STEADY, (75, 0, 4)]},
        "unknown: 1 of 5 samples since 12:03:05",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_rule_that_holds_gives_the_verdict(case):
    facts, verdict = CASES[case]
    assert str(judge_partition(watch(**facts))) == verdict


def test_a_window_that_slow_passes_would_starve_is_stretched():
    slow = RULES.stretched_to(30)
    facts = watch([(s, 1000, 1242 + s) for s in range(0, 301, 30)], rules=slow)
    assert str(judge_partition(facts)) == "stopped: no commit for 5 m 0 s, 542 waiting"


def partition(number, word, lag, reason="r"):
    return JudgedPartition(topic="t", partition=number, lag=lag, word=word, reason=reason)


@pytest.mark.parametrize(
    ("partitions", "error", "verdict"),
    [
        ([partition(0, LagWord.OK, 3, "within 50"), partition(1, LagWord.IDLE, 0)], "", "ok, within 50"),
        ([partition(0, LagWord.OK, 3), partition(1, LagWord.STALLED, 9)], "", "stalled: t 1, r"),
        ([partition(0, LagWord.STALLED, 99), partition(1, LagWord.DATA_LOSS, 1)], "", "data loss: t 1, r"),
        (
            [partition(0, LagWord.STOPPED, 9), partition(1, LagWord.STOPPED, 99), partition(2, LagWord.STOPPED, 0)],
            "",
            "stopped: t 1, r; and 2 more",
        ),
        ([partition(0, LagWord.OK, None)], "no answer within 5 s", "unknown: could not be read: no answer within 5 s"),
        ([], "", "unknown: no partition is assigned and nothing is committed"),
    ],
)
def test_a_group_takes_its_worst_partition_and_names_it(partitions, error, verdict):
    assert str(judge_group(partitions, error)) == verdict


# -- Worked numbers ----------------------------------------------------------------------------------------
def test_worked_numbers_of_lag():
    lags = [offset_distance(c, e) for c, e in [(1150, 1200), (1180, 1180), (1100, 1260)]]
    assert lags == [50, 0, 160]
    assert total_lag(lags) == 210


def test_worked_numbers_of_drain():
    assert plan_drain(210, 30, 45) == Drain(seconds=14.0, words="14 s")


@pytest.mark.parametrize(
    ("lag", "in_per_s", "out_per_s", "drain"),
    [
        (210, 45, 45, Drain(seconds=None, words="never at this rate")),
        (210, 60, 45, Drain(seconds=None, words="never at this rate")),
        (210, 0, 0, Drain(seconds=None, words="never at this rate")),
        (210, None, 45, Drain(seconds=None, words="unknown")),
        (None, 30, 45, Drain(seconds=None, words="unknown")),
        (0, 30, 30, Drain(seconds=0.0, words="now")),
        (0, 0, 0, Drain(seconds=None, words="nothing to do")),
    ],
)
def test_drain_is_never_a_negative_time_and_says_why_there_is_none(lag, in_per_s, out_per_s, drain):
    assert plan_drain(lag, in_per_s, out_per_s) == drain


@pytest.mark.parametrize(
    ("lags", "skew"), [([5, 5], 1.0), ([10, 0], 2.0), ([0, 0], None), ([None, 4], 1.0), ([], None)]
)
def test_skew_is_the_largest_lag_over_the_mean(lags, skew):
    assert lag_skew(lags) == skew


def test_rates_are_offsets_a_second_over_the_window():
    assert measure_rates([point(0, 10, 20), point(10, 15, 40)]) == Rates(in_per_s=2.0, out_per_s=0.5)
    assert measure_rates([point(0, 10, 20)]) == Rates(in_per_s=None, out_per_s=None)
    assert measure_rates([point(0, 10, 20), point(10, 5, 40)]).out_per_s is None


def test_trend_compares_the_lag_now_with_the_windows_start():
    assert lag_trend([point(0, 0, 5), point(5, 0, 9)]) is Trend.RISING
    assert lag_trend([point(0, 0, 9), point(5, 5, 9)]) is Trend.FALLING
    assert lag_trend([point(0, 0, 9), point(5, 1, 10)]) is Trend.STEADY
    assert lag_trend([point(0, 0, 9)]) is Trend.UNKNOWN


def test_one_odd_reading_does_not_turn_the_trend():
    rising = [point(s, 0, 100 + s) for s in range(0, 60, 5)]
    assert lag_trend([*rising, point(60, 0, 90)]) is Trend.RISING
    falling = [point(s, s, 200) for s in range(0, 60, 5)]
    assert lag_trend([*falling, point(60, 0, 300)]) is Trend.FALLING


@pytest.mark.parametrize(
    ("readings", "appended_at", "time_lag"),
    [
        # Offset 10 (the eleventh record) appeared a tenth of the way from the end 10 to the end 20.
        ([(0, 0, 10), (10, 10, 20), (20, 10, 20)], None, TimeLag(seconds=19.0, estimated=True)),
        ([(0, 0, 10), (10, 10, 20), (20, 10, 20)], at(12), TimeLag(seconds=8.0, estimated=False)),
        ([(0, 20, 20)], None, TimeLag(seconds=0.0, estimated=False)),
        ([(0, None, 20)], None, TimeLag(seconds=None, estimated=True)),
        # Older than every reading: lag over the rate in.
        ([(0, 0, 100), (10, 10, 110)], None, TimeLag(seconds=100.0, estimated=True)),
    ],
)
def test_time_lag_is_known_for_our_records_and_an_estimate_for_others(readings, appended_at, time_lag):
    facts = watch(readings)
    assert time_lag_of(facts.now, facts.memory, measure_rates(facts.points), appended_at) == time_lag


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (45.9, "45 s"), (250, "4 m 10 s"), (22_320, "6 h 12 m"), (590_400, "6 d 20 h"), (-3, "0 s")],
)
def test_durations_are_said_in_their_two_largest_units(seconds, words):
    assert say_duration(seconds) == words


def test_a_gap_between_readings_is_a_point_without_numbers():
    filled = with_gaps([point(0, 1, 2), point(5, 1, 2), point(60, 1, 2)], gap_s=12)
    assert [p.end for p in filled] == [2, 2, None, 2]


# -- Properties --------------------------------------------------------------------------------------------
offsets = st.integers(min_value=0, max_value=2**63 - 1)
readings = st.lists(
    st.tuples(st.integers(1, 40), st.none() | offsets, st.none() | offsets, st.none() | offsets),
    min_size=1,
    max_size=40,
)


@given(
    steps=readings,
    allowed=st.integers(0, 10**9),
    members=st.none() | st.floats(0, 1e6),
    group=st.none() | st.floats(0, 1e6),
    owned=st.booleans(),
)
def test_every_past_gets_a_verdict_and_no_number_is_negative(steps, allowed, members, group, owned):
    seconds, past = 0, []
    for step, committed, begin, end in steps:
        seconds += step
        past.append((seconds, committed, end, begin))
    facts = watch(past, allowed=allowed, tolerated=allowed, no_member_s=members, group_unmoved_s=group, owned=owned)
    verdict = judge_partition(facts)
    assert verdict.word in set(LagWord)
    assert verdict.reason
    assert len(facts.points) <= RULES.recent_points
    rates = measure_rates(facts.points)
    lag = offset_distance(facts.now.committed, facts.now.end)
    drain = plan_drain(lag, rates.in_per_s, rates.out_per_s)
    time_lag = time_lag_of(facts.now, facts.memory, rates, None)
    known = [lag, rates.in_per_s, rates.out_per_s, drain.seconds, time_lag.seconds]
    assert all(number >= 0 for number in known if number is not None)


@given(committed=offsets, end=offsets, more=st.integers(0, 10**6))
def test_lag_grows_with_the_end_and_shrinks_with_commits(committed, end, more):
    lag = offset_distance(committed, end)
    assert offset_distance(committed, end + more) >= lag
    assert offset_distance(committed + more, end) <= lag


@given(end=st.integers(0, 10**6), lag=st.integers(0, 10**6), looser=st.integers(0, 10**6))
def test_a_larger_allowed_lag_never_makes_a_verdict_worse(end, lag, looser):
    strict = watch(every_5_s(lambda s: end, lambda s: end + lag + s), allowed=0)
    loose = replace(strict, allowed=looser)
    order = list(LagWord)
    assert order.index(judge_partition(loose).word) >= order.index(judge_partition(strict).word)


@given(st.lists(st.tuples(st.sampled_from(list(LagWord)), st.integers(0, 100)), min_size=1, max_size=20))
def test_a_group_is_never_better_than_its_worst_partition(found):
    partitions = [partition(n, word, lag) for n, (word, lag) in enumerate(found)]
    order = list(LagWord)
    assert order.index(judge_group(partitions, "").word) == min(order.index(word) for word, _ in found)


def test_every_word_has_an_aspect():
    assert all(lag_verdict(word, "").word == word for word in LagWord)
