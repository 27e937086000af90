"""The window of time that a chart shows, and a history: the chart, its table and its data for the browser. Pure.

`templates/components/history.html` draws a `History` and says what it needs; `static/js/history.js` makes it zoomable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from urllib.parse import urlencode

from django.http import QueryDict

from console.charts import CHART_LINES, LineChart, Series, highest_series, line_chart
from console.filters import BadFilter, read_choice, read_moment

SPANS = {"1h": timedelta(hours=1), "6h": timedelta(hours=6), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
LEAST = timedelta(seconds=30)
MOST = timedelta(days=90)


# -- The window --------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What of the time is shown. `span` names one that ends now and moves on; "" = [since, until) was chosen."""

    since: datetime
    until: datetime
    span: str = ""

    @property
    def query(self) -> dict[str, str]:
        """How the address says it."""
        if self.span:
            return {"window": self.span}
        return {"since": _stamp(self.since), "until": _stamp(self.until)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A link to another window; `since` and `until` as the address says them."""

    words: str
    since: str
    until: str


def read_window(query: QueryDict, now: datetime, default: str = "1h") -> Window:
    """The window of an address: `since` and `until` (a time each), else `window`, a span that ends now.

    Raises:
        BadFilter: a value cannot be meant, only one end is given, or the window is too short or too long.
    """
    span = read_choice(query, "window", list(SPANS), default)
    since, until = read_moment(query, "since"), read_moment(query, "until")
    if since is None and until is None:
        return Window(since=now - SPANS[span], until=now, span=span)
    if since is None or until is None:
        raise BadFilter("A window needs both since and until, or neither of them.")
    if since >= now:
        raise BadFilter("since lies in the future; there is nothing to show yet.")
    if not LEAST <= until - since <= MOST:
        raise BadFilter(
            f"until must be {LEAST.seconds} s to {MOST.days} days after since; leave both out to see the last hour."
        )
    return Window(since=since, until=until)


def list_moves(window: Window, now: datetime) -> list[Move]:
    """The windows beside this one, and the narrower and the wider one around its middle."""
    width = window.until - window.since
    half, middle = width / 2, window.since + width / 2
    found = [
        _move("Earlier", window.since - half, window.until - half),
        _move("Zoom in", middle - width / 4, middle + width / 4) if half >= LEAST else None,
        _move("Zoom out", middle - width, min(middle + width, now)) if width * 2 <= MOST else None,
        _move("Later", window.since + half, window.until + half) if window.until + half <= now else None,
    ]
    return [move for move in found if move]


def _move(words: str, since: datetime, until: datetime) -> Move:
    return Move(words=words, since=_stamp(since), until=_stamp(until))


def _stamp(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


# -- The history -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class TwinTable:
    """A chart as a table: `rows` are (line, its value at each of `times`); None = not known then."""

    times: Sequence[datetime]
    rows: Sequence[tuple[str, Sequence[float | None]]]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Lines over a window. `what` stands before a line's name ("partition", or ""), `limit_words` at the level.

    `data_url` gives `history_data` of the same lines; `words` say the chart to those who do not see it.
    """

    id: str
    title: str
    unit: str
    what: str
    window: Window
    moves: Sequence[Move]
    data_url: str
    chart: LineChart
    twin: TwinTable
    words: str
    limit_words: str
    zone: str

    @property
    def is_short(self) -> bool:
        """Whether seconds matter in what is written at its times."""
        return self.window.until - self.window.since < timedelta(minutes=15)

    @property
    def is_long(self) -> bool:
        """Whether a time of day alone could be of several days."""
        return self.window.until - self.window.since > timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTexts:
    """What a history is called and counted in. `id` is unique on the page."""

    id: str
    title: str
    unit: str
    what: str = ""
    limit_words: str = "allowed"
    words: str = ""


def draw_history(
    series: Sequence[Series],
    texts: HistoryTexts,
    window: Window,
    *,
    now: datetime,
    zone: tzinfo,
    path: str,
    query: Mapping[str, str],
    limit: float | None = None,
    times: int = 7,
    most_rows: int = 100,
) -> History:
    """Lay out lines over a window: the chart that the server draws, its table of `times` columns, its moves.

    `path` and `query` address the JSON of the same lines; the window is added to them.
    """
    return History(
        id=texts.id,
        title=texts.title,
        unit=texts.unit,
        what=texts.what,
        limit_words=texts.limit_words,
        words=texts.words or peak_words(series, texts.unit),
        window=window,
        moves=list_moves(window, now),
        data_url=f"{path}?{urlencode({**query, **window.query})}",
        chart=line_chart(series, since=window.since, until=window.until, zone=zone, limit=limit),
        twin=chart_twin(series, since=window.since, until=window.until, times=times, most_rows=most_rows),
        zone=str(zone),
    )


def history_data(series: Sequence[Series], window: Window, *, limit: float | None = None) -> dict[str, object]:
    """What `static/js/history.js` draws: at most `CHART_LINES` lines, times as seconds since 1970, null = a gap."""
    drawn = highest_series(series, CHART_LINES)
    return {
        "since": window.since.timestamp(),
        "until": window.until.timestamp(),
        "limit": limit,
        "left_out": len(series) - len(drawn),
        "series": [_line(one) for one in drawn],
    }


def _line(one: Series) -> dict[str, object]:
    return {
        "name": one.name,
        "state": one.state,
        "note": one.note,
        "times": [at.timestamp() for at, _ in one.samples],
        "values": [value for _, value in one.samples],
    }


def chart_twin(series: Sequence[Series], *, since: datetime, until: datetime, times: int, most_rows: int) -> TwinTable:
    """Sample every line at evenly spaced times: the newest value in the interval that ends there."""
    step = (until - since) / (times - 1)
    columns = [since + step * index for index in range(times)]
    rows = [(one.name, [_value_at(one, at, step) for at in columns]) for one in islice(series, most_rows)]
    return TwinTable(times=columns, rows=rows, left_out=max(0, len(series) - most_rows))


def _value_at(one: Series, at: datetime, step: timedelta) -> float | None:
    inside = [value for when, value in one.samples if at - step < when <= at]
    return inside[-1] if inside else None


def peak_words(series: Sequence[Series], unit: str) -> str:
    """The highest value of all lines, in words."""
    known = [(value, one.name) for one in series for _, value in one.samples if value is not None]
    if not known:
        return "No sample in this window."
    value, name = max(known)
    return f"The highest value in the window is {value:,.0f} {unit}, {name}."
