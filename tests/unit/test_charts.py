"""Chart geometry: tables first, then what must hold for any input."""

import math
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.charts import (
    CHART_LINES,
    CHART_NAMES,
    CHART_POINTS,
    NAME_GAP,
    SPARK_POINTS,
    X_TICKS,
    Name,
    Series,
    line_chart,
    nice_ticks,
    sparkline,
    sparkline_path,
    spread_names,
    time_ticks,
)

NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
values = st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True), max_size=400)


def coordinates(path):
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]


def chart(series, **options):
    return line_chart(series, since=NOON - timedelta(hours=1), until=NOON, zone=UTC, **options)


def minutes(*numbers):
    """One sample a minute, the last one at noon."""
    return [(NOON - timedelta(minutes=len(numbers) - 1 - i), value) for i, value in enumerate(numbers)]


@pytest.mark.parametrize(
    ("numbers", "path"),
    [
        ([], ""),
        ([None, None], ""),
        ([math.nan, math.inf], ""),
        ([0, 0], "M1 22 116 22"),
        ([0, 5, 10], "M1 22 58.5 12 116 2"),
        ([7], "M115.5 2h1"),
        ([4, None, 4, 4], "M0.5 2h1 M77.7 2 116 2"),
        ([-5, 10], "M1 22 116 2"),
    ],
)
def test_a_sparkline_starts_at_zero_and_leaves_gaps_where_nothing_is_known(numbers, path):
    assert sparkline_path(numbers) == path


def test_noise_under_the_allowed_lag_stays_low_in_a_sparkline():
    assert sparkline([0, 5], at_least=50).path == "M1 22 116 20"


def test_a_sparkline_without_a_newest_value_marks_no_end():
    assert sparkline([1, 2, None]).end is None
    assert sparkline([1, 2]).end == (116.0, 2.0)


def test_thinning_keeps_the_peak():
    numbers = [0.0] * 1000
    numbers[617] = 9.0
    lowest_y = min(y for _, y in coordinates(sparkline_path(numbers)))
    assert lowest_y == 2.0


@given(values, st.integers(20, 400), st.integers(10, 100))
def test_a_sparkline_stays_in_its_box_and_within_its_bound(numbers, width, height):
    path = sparkline_path(numbers, width, height)
    found = coordinates(path)
    assert all(0 <= x <= width and 0 <= y <= height for x, y in found)
    assert len(found) <= SPARK_POINTS
    assert "nan" not in path
    assert "inf" not in path
    known = [v for v in numbers if v is not None and math.isfinite(v)]
    assert bool(path) == bool(known)


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (0, [0, 1]),
        (1, [0, 1]),
        (3, [0, 1, 2, 3]),
        (5, [0, 1, 2, 3, 4, 5]),
        (12, [0, 5, 10, 15]),
        (50, [0, 10, 20, 30, 40, 50]),
        (312, [0, 100, 200, 300, 400]),
        (1_000_000, [0, 200_000, 400_000, 600_000, 800_000, 1_000_000]),
        (math.inf, [0, 1]),
    ],
)
def test_ticks_are_round_whole_numbers_up_to_the_highest_value(high, ticks):
    assert nice_ticks(high, most=5) == ticks


@given(st.floats(0, 1e15), st.integers(2, 10))
def test_ticks_cover_the_value_and_are_few(high, most):
    ticks = nice_ticks(high, most=most)
    assert ticks[0] == 0
    assert ticks[-1] >= high * (1 - 1e-6)
    assert 2 <= len(ticks) <= most + 2
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize(
    ("window", "zone", "texts"),
    [
        (timedelta(hours=1), "UTC", ["11:00", "11:10", "11:20", "11:30", "11:40", "11:50", "12:00"]),
        (timedelta(minutes=2), "UTC", [f"11:{58 + s // 60}:{s % 60:02}" for s in range(0, 120, 15)] + ["12:00:00"]),
        (
            timedelta(hours=24),
            "Europe/Berlin",
            ["15:00", "18:00", "21:00", "00:00", "03:00", "06:00", "09:00", "12:00"],
        ),
        (timedelta(days=7), "UTC", ["04 Mar", "05 Mar", "06 Mar", "07 Mar", "08 Mar", "09 Mar", "10 Mar"]),
    ],
)
def test_time_ticks_are_round_times_of_the_local_clock(window, zone, texts):
    assert [text for _, text in time_ticks(NOON - window, NOON, zone=ZoneInfo(zone))] == texts


@given(st.integers(1, 30 * 86_400))
def test_time_ticks_stay_in_the_window_and_are_few(seconds):
    since = NOON - timedelta(seconds=seconds)
    times = [at for at, _ in time_ticks(since, NOON, zone=UTC)]
    assert len(times) <= X_TICKS + 1
    assert all(since <= at <= NOON for at in times)


def test_a_line_is_named_at_its_end_with_its_newest_value():
    drawn = chart([Series(name="3", state="bad", samples=minutes(5, 100, 312), note="stalled")], limit=50)
    assert drawn.names[0].text == "3: 312, stalled"
    assert drawn.names[0].state == "bad"
    assert [tick.text for tick in drawn.y_ticks] == ["0", "100", "200", "300", "400"]
    assert drawn.limit.text == "50"


def test_the_newest_value_being_unknown_leaves_the_line_without_a_number():
    drawn = chart([Series(name="3", state="unknown", samples=minutes(5, 100, None))])
    assert drawn.names == []
    assert drawn.lines[0].path


def test_a_hole_in_time_is_not_bridged():
    before = [(NOON - timedelta(minutes=m), 1) for m in (50, 49, 48, 47)]
    after = [(NOON - timedelta(minutes=m), 1) for m in (3, 2, 1, 0)]
    assert chart([Series(name="0", state="ok", samples=before + after)]).lines[0].path.count("M") == 2


def test_samples_outside_the_window_are_not_drawn():
    old = [(NOON - timedelta(hours=3), 9), (NOON - timedelta(hours=2), 9)]
    assert chart([Series(name="0", state="ok", samples=old)]).is_empty


def test_a_chart_of_nothing_is_empty_and_still_has_axes():
    drawn = chart([])
    assert drawn.is_empty
    assert [tick.text for tick in drawn.y_ticks] == ["0", "1"]
    assert drawn.x_ticks


def test_of_many_lines_the_highest_are_drawn_and_the_rest_is_counted():
    series = [Series(name=str(p), state="ok", samples=minutes(p, p)) for p in range(100)]
    drawn = chart(series)
    assert [line.name for line in drawn.lines[:2]] == ["99", "98"]
    assert len(drawn.lines) == CHART_LINES
    assert drawn.left_out == 100 - CHART_LINES
    assert len(drawn.names) <= CHART_NAMES


def test_quiet_lines_that_end_close_together_share_a_name_and_loud_ones_keep_their_own():
    quiet = [Series(name=str(p), state="ok", samples=minutes(p)) for p in (0, 1, 2, 4)]
    loud = Series(name="3", state="bad", samples=minutes(312), note="stalled")
    assert [name.text for name in chart([*quiet, loud]).names] == ["3: 312, stalled", "0, 1, 2, 4: up to 4"]


def test_a_long_list_of_quiet_lines_is_counted():
    drawn = chart([Series(name=str(p), state="ok", samples=minutes(7)) for p in range(9)])
    assert [name.text for name in drawn.names] == ["0, 1, 2, 3, 4 +4: 7"]


@given(st.lists(st.none() | st.floats(0, 1e9), min_size=1, max_size=2000))
def test_a_line_stays_inside_the_chart_and_within_its_bound(numbers):
    samples = [(NOON - timedelta(seconds=len(numbers) - 1 - i), v) for i, v in enumerate(numbers)]
    drawn = chart([Series(name="0", state="ok", samples=samples)])
    found = coordinates(drawn.lines[0].path)
    assert len(found) <= CHART_POINTS
    assert all(drawn.left - 1 <= x <= drawn.right and drawn.top - 0.1 <= y <= drawn.bottom + 0.1 for x, y in found)


@given(st.lists(st.floats(16, 232), max_size=CHART_NAMES))
def test_names_never_cover_each_other_and_stay_inside(heights):
    placed = spread_names([Name(y=y, text=str(i), state="ok") for i, y in enumerate(heights)], top=16, bottom=232)
    ys = [name.y for name in placed]
    assert len(placed) == len(heights)
    assert all(16 - 1e-6 <= y <= 232 + 1e-6 for y in ys)
    assert all(b - a >= NAME_GAP - 1e-6 for a, b in pairwise(ys))
