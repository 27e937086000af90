"""What the URL may say, and how anything else is refused."""

import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from console.filters import BadFilter, read_choice, read_page, read_since, read_text


def query(**values):
    made = QueryDict(mutable=True)
    made.update(values)
    return made


def test_a_filter_that_is_absent_or_blank_means_any():
    assert read_text(query(), "topic") == ""
    assert read_text(query(topic="  "), "topic") == ""
    assert read_since(query()) is None
    assert read_page(query()) == 1
    assert read_choice(query(), "state", ["parked", "any"], "parked") == "parked"


@pytest.mark.parametrize("text", ["x" * 250, "a\x00b", "a\nb"])
def test_a_text_filter_that_is_too_long_or_unprintable_is_refused(text):
    with pytest.raises(BadFilter, match="topic"):
        read_text(query(topic=text), "topic")


def test_a_choice_that_is_not_offered_is_refused_with_what_is():
    with pytest.raises(BadFilter, match="state can be parked, applied or any, not “lost”"):
        read_choice(query(state="lost"), "state", ["parked", "applied", "any"], "parked")


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "99999", "²", "1e3"])
def test_a_page_that_is_no_page_number_is_refused(text):
    with pytest.raises(BadFilter, match="page is a whole number"):
        read_page(query(page=text))


@pytest.mark.parametrize(
    ("text", "span"), [("30m", timedelta(minutes=30)), ("1h", timedelta(hours=1)), ("7d", timedelta(days=7))]
)
def test_since_takes_a_span_before_now(text, span):
    assert abs(datetime.now(UTC) - span - read_since(query(since=text))) < timedelta(seconds=5)


@pytest.mark.parametrize(
    "text", ["2026-03-10T10:42", "2026-03-10 10:42", "2026-03-10T10:42:00Z", "2026-03-10T11:42:00+01:00"]
)
def test_since_takes_a_time(text):
    assert read_since(query(since=text)) == datetime(2026, 3, 10, 10, 42, tzinfo=UTC)


def test_a_day_means_its_midnight():
    assert read_since(query(since="2026-03-10")) == datetime(2026, 3, 10, tzinfo=UTC)


def test_since_takes_a_time_whose_plus_sign_was_not_quoted():
    assert read_since(QueryDict("since=2026-03-10T11:42:00+01:00")) == datetime(2026, 3, 10, 10, 42, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", "1w", "2026-13-40T10:42", "-1h", "9999999d"])
def test_since_refuses_what_is_neither_a_span_nor_a_time(text):
    with pytest.raises(BadFilter, match="since is a span such as"):
        read_since(query(since=text))


@given(st.text(max_size=400))
def test_no_text_makes_a_filter_crash(text):
    for read in (read_since, read_page, lambda q: read_text(q, "since")):
        with contextlib.suppress(BadFilter):
            read(query(since=text, page=text))
