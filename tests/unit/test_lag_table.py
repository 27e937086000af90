"""What the Lag page shows: filtered, counted, said, and never more than a page."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from console.charts import Series
from console.history import chart_twin
from console.lag_table import (
    LagFilter,
    chart_series,
    chart_words,
    count_verdicts,
    lag_of,
    lag_table,
    lead_sentence,
    list_unread,
    trend_words,
)
from relay.types import LagPoint, LagWord, Trend
from tests.web.pages import NOW, group, overview, partition


def table(groups, *, page_rows=100, group_rows=12, **wanted):
    return lag_table(groups, LagFilter(**wanted), now=NOW, page_rows=page_rows, group_rows=group_rows)


def shown(found):
    return [(block.group.group, [row.lag.partition for row in block.rows]) for block in found.blocks]


def point(minutes_ago, committed, end):
    return LagPoint(at=NOW - timedelta(minutes=minutes_ago), committed=committed, begin=0, end=end)


def test_a_trend_is_said_with_its_number_where_both_rates_are_known():
    assert trend_words(partition(trend=Trend.RISING, in_per_min=72.0, out_per_min=60.0)) == "rising, +12 / min"
    assert trend_words(partition(trend=Trend.FALLING, in_per_min=0.0, out_per_min=1_250.0)) == "falling, -1,250 / min"
    assert trend_words(partition(trend=Trend.FALLING, in_per_min=None, out_per_min=None)) == "falling"
    assert trend_words(partition(trend=Trend.RISING, in_per_min=1.0, out_per_min=2.0)) == "rising"
    assert trend_words(partition(trend=Trend.STEADY, in_per_min=9.0, out_per_min=8.0)) == "steady"
    assert trend_words(partition()) == "unknown"
    assert trend_words(partition(lag=0, trend=Trend.RISING)) == "none"


def test_the_small_line_has_a_table_of_the_hours_pieces_that_keeps_the_peak():
    history = [point(59, 0, 7), point(25, 0, 900), point(24, 0, 3), point(1, 5, 5), point(70, 0, 10**6)]
    found = table([group(partitions=[partition(history=history)])])
    (row,) = found.blocks[0].rows
    assert row.hour == [7, None, None, 900, None, 0]
    assert found.hour_ends == [NOW - timedelta(minutes=m) for m in (50, 40, 30, 20, 10, 0)]


STALLED = partition(3, word=LagWord.STALLED, reason="no commit for 4 m 10 s, 312 waiting", lag=312)
BEHIND = partition(5, word=LagWord.FALLING_BEHIND, reason="+5 a minute for 15 m", lag=74)
LOST = partition(6, word=LagWord.DATA_LOSS, reason="offsets 1 to 9 were deleted", lag=5)
FINE = [partition(n, lag=n) for n in (0, 1, 2)]
IDLE = partition(4, word=LagWord.IDLE, reason="nothing published", lag=0)


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ([], "No consumer group is known."),
        ([group(error="Broker 2 did not answer")], "No consumer group could be read lately."),
        (
            [group(partitions=[*FINE, IDLE])],
            "No partition needs you. Of the 4 partitions 3 are ok and 1 is idle.",
        ),
        (
            [group(partitions=[*FINE, BEHIND, STALLED])],
            (
                "claim-events 3 is stalled for claim-workers and claim-events 5 falls behind for claim-workers."
                " The other 3 partitions are ok."
            ),
        ),
        (
            [group(partitions=[LOST, STALLED, BEHIND, FINE[0]])],
            (
                "claim-events 6 has lost data for claim-workers, claim-events 3 is stalled for claim-workers"
                " and 1 more needs a look. The other 1 partition is ok."
            ),
        ),
    ],
)
def test_the_sentence_names_the_worst_and_counts_the_rest(groups, sentence):
    assert lead_sentence(overview(*groups)).replace("\N{NO-BREAK SPACE}", " ") == sentence


def test_before_the_first_pass_nothing_is_claimed():
    assert lead_sentence(overview(as_of=None)) == "No group has been read yet, so nothing is known of its lag."


def test_calm_verdicts_do_not_hide_what_waits():
    calm = group(partitions=[partition(4, lag=719), partition(5, lag=715), partition(1, lag=3)])
    assert lead_sentence(overview(calm)).replace("\N{NO-BREAK SPACE}", " ") == (
        "No partition needs you. The 3 partitions are ok. 1,434 records wait on 2 over their allowed lag."
    )


def test_verdicts_are_counted_worst_first():
    counts = count_verdicts([group(partitions=[*FINE, IDLE, BEHIND]), group("b", partitions=[STALLED, LOST])])
    assert [(c.word, c.count) for c in counts] == [
        ("data loss", 1),
        ("stalled", 1),
        ("falling behind", 1),
        ("ok", 3),
        ("idle", 1),
    ]


def test_partitions_are_worst_first_and_then_by_lag():
    assert shown(table([group(partitions=[*FINE, IDLE, BEHIND, STALLED])])) == [("claim-workers", [3, 5, 2, 1, 0, 4])]


def test_filters_narrow_by_group_topic_and_verdict():
    groups = [group(partitions=[*FINE, STALLED]), group("b", partitions=[partition(9, topic="other")])]
    assert shown(table(groups, group="b")) == [("b", [9])]
    assert shown(table(groups, topic="other")) == [("b", [9])]
    assert shown(table(groups, verdict="stalled")) == [("claim-workers", [3])]
    assert table(groups, group="none of these").matching == 0


def test_a_group_that_could_not_be_read_shows_no_partition():
    assert shown(table([group(error="Broker 2 did not answer")])) == []


def test_a_wide_group_shows_its_worst_and_counts_the_rest_until_it_is_chosen():
    wide = group(partitions=[partition(n, lag=n) for n in range(50)])
    block = table([wide]).blocks[0]
    assert (len(block.rows), block.hidden) == (12, 38)
    chosen = table([wide], group="claim-workers").blocks[0]
    assert (len(chosen.rows), chosen.hidden) == (50, 0)


def test_a_thousand_partitions_are_cut_to_pages_without_losing_one():
    groups = [group(f"g{n:03}", partitions=[partition(p) for p in range(10)]) for n in range(100)]
    pages = [table(groups, page=number) for number in range(1, 11)]
    assert {page.pages for page in pages} == {10}
    assert all(sum(len(block.rows) for block in page.blocks) == 100 for page in pages)
    seen = [(b.group.group, row.lag.partition) for page in pages for b in page.blocks for row in b.rows]
    assert len(seen) == len(set(seen)) == 1_000


def test_a_page_past_the_end_shows_the_last_one():
    assert table([group()], page=99).page == 1


def test_a_group_that_is_split_over_pages_has_its_head_on_both():
    wide = group(partitions=[partition(n) for n in range(10)])
    pages = [table([wide], page_rows=6, group="claim-workers", page=number) for number in (1, 2)]
    assert [len(page.blocks[0].rows) for page in pages] == [6, 4]


def test_groups_that_fail_for_one_reason_are_said_once():
    unread = list_unread([group(f"g{n}", error="Broker 2 did not answer") for n in range(8)] + [group("ok")])
    assert [(one.names, one.more) for one in unread] == [(["g0", "g1", "g2", "g3", "g4"], 3)]


@pytest.mark.parametrize(("committed", "end", "lag"), [(10, 15, 5), (15, 10, 0), (None, 10, None), (10, None, None)])
def test_lag_is_a_distance_never_negative_and_unknown_when_an_offset_is(committed, end, lag):
    assert lag_of(point(0, committed, end)) == lag


def test_only_partitions_that_need_somebody_say_their_verdict_in_the_chart():
    history = {3: [point(1, 0, 312)], 0: [point(1, 0, 2)], 8: [point(1, 0, 1)]}
    series = chart_series(history, [STALLED, FINE[0]])
    assert [(one.name, one.state, one.note) for one in series] == [
        ("0", "ok", ""),
        ("3", "bad", "stalled"),
        ("8", "unknown", ""),
    ]


def test_the_twin_samples_the_newest_known_value_before_each_time_and_admits_gaps():
    one = Series(name="0", state="ok", samples=[(NOW - timedelta(minutes=m), v) for m, v in ((59, 7), (29, 9), (1, 4))])
    twin = chart_twin([one], since=NOW - timedelta(hours=1), until=NOW, times=7, most_rows=5)
    assert list(twin.rows[0][1]) == [None, 7, None, None, 9, None, 4]
    assert twin.left_out == 0


def test_the_twin_counts_the_lines_that_it_leaves_out():
    series = [Series(name=str(n), state="ok", samples=[(NOW, 1)]) for n in range(9)]
    assert chart_twin(series, since=NOW - timedelta(hours=1), until=NOW, times=7, most_rows=5).left_out == 4


def test_the_chart_in_words_names_loud_lines_and_the_peak():
    series = chart_series({3: [point(2, 0, 400), point(1, 0, 312)], 0: [point(1, 0, 2)]}, [STALLED])
    assert chart_words(series) == ("Partition 3 is stalled, at 312. The highest lag in the window is 400, partition 3.")
    assert chart_words([SimpleNamespace(samples=[], note="", name="0")]) == "No sample in this window."
