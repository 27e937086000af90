"""Windows in the address, the moves beside them, and what a zoomable chart is drawn from."""

from datetime import UTC, datetime, timedelta

import pytest
from django.http import QueryDict

from console.charts import CHART_LINES, Series
from console.filters import BadFilter
from console.history import HistoryTexts, Window, draw_history, history_data, list_moves, peak_words, read_window

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def window(text=""):
    return read_window(QueryDict(text), NOW)


def test_without_a_choice_the_last_hour_moves_with_the_clock():
    assert window() == Window(since=NOW - timedelta(hours=1), until=NOW, span="1h")
    assert window("window=7d").since == NOW - timedelta(days=7)


def test_a_zoom_in_the_address_is_read_back_as_it_was_written():
    zoomed = window("since=2026-11-30T11:40:00Z&until=2026-11-30T11:45:00Z")
    assert (zoomed.since, zoomed.until, zoomed.span) == (
        datetime(2026, 11, 30, 11, 40, tzinfo=UTC),
        datetime(2026, 11, 30, 11, 45, tzinfo=UTC),
        "",
    )
    assert window("&".join(f"{name}={value}" for name, value in zoomed.query.items())) == zoomed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("window=1y", "window can be 1h, 6h, 24h or 7d"),
        ("since=2026-11-30T11:40:00Z", "needs both since and until"),
        ("since=yesterday&until=2026-11-30T11:40:00Z", "since is a time such as"),
        ("since=2026-11-30T11:40:00Z&until=2026-11-30T11:40:10Z", "30 s to 90 days"),
        ("since=2026-11-30T11:40:00Z&until=2026-11-30T11:30:00Z", "30 s to 90 days"),
        ("since=2026-01-01T00:00:00Z&until=2026-11-30T11:30:00Z", "30 s to 90 days"),
        ("since=2026-12-30T11:40:00Z&until=2026-12-30T11:50:00Z", "lies in the future"),
        ("since=0001-01-01T00:00:00&until=9999-12-31T23:59:59", "30 s to 90 days"),
    ],
)
def test_a_window_that_cannot_be_meant_is_refused_in_words(text, said):
    with pytest.raises(BadFilter, match=said):
        window(text)


def test_the_moves_lead_to_windows_that_are_read_and_never_beyond_now():
    for start in ("", "since=2026-11-30T10:00:00Z&until=2026-11-30T10:10:00Z", "window=7d"):
        for move in list_moves(window(start), NOW):
            led = window(f"since={move.since}&until={move.until}")
            assert led.until <= NOW
    words = [move.words for move in list_moves(window(), NOW)]
    assert words == ["Earlier", "Zoom in", "Zoom out"]
    past = window("since=2026-11-30T10:00:00Z&until=2026-11-30T10:10:00Z")
    assert [move.words for move in list_moves(past, NOW)] == ["Earlier", "Zoom in", "Zoom out", "Later"]


def test_the_narrowest_window_offers_no_narrower_one():
    narrow = window("since=2026-11-30T10:00:00Z&until=2026-11-30T10:00:40Z")
    assert "Zoom in" not in [move.words for move in list_moves(narrow, NOW)]


def series(count, value=5.0):
    at = NOW - timedelta(minutes=10)
    return [Series(name=str(n), state="ok", samples=[(at, value + n), (NOW, None)]) for n in range(count)]


def test_the_data_of_the_browser_are_the_lines_of_the_chart_with_gaps_kept():
    found = history_data(series(CHART_LINES + 3), window(), limit=50)
    assert len(found["series"]) == CHART_LINES
    assert found["left_out"] == 3
    assert found["series"][0]["values"][1] is None
    assert found["since"] == (NOW - timedelta(hours=1)).timestamp()
    assert found["limit"] == 50


def test_a_history_has_its_chart_its_table_and_the_address_of_its_data():
    drawn = draw_history(
        series(2),
        HistoryTexts(id="lag", title="Lag", unit="offsets"),
        window("since=2026-11-30T11:40:00Z&until=2026-11-30T12:00:00Z"),
        now=NOW,
        zone=UTC,
        path="/data/",
        query={"topic": "a b"},
    )
    assert drawn.data_url == "/data/?topic=a+b&since=2026-11-30T11%3A40%3A00Z&until=2026-11-30T12%3A00%3A00Z"
    assert [name for name, _ in drawn.twin.rows] == ["0", "1"]
    assert not drawn.chart.is_empty
    assert drawn.words == "The highest value in the window is 6 offsets, 1."


def test_nothing_known_is_said():
    assert peak_words([], "s") == "No sample in this window."
