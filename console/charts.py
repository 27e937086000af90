"""Scales and paths for charts that the server draws as SVG. Pure: numbers and times in, geometry out.

A value that is None, infinite or not a number is a gap: nothing is drawn where nothing is known.
Lengths are user units of the view box (CSS pixels at scale 1).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise

SPARK_POINTS = 120
SPARK_EDGE = 2.0
CHART_POINTS = 300
CHART_LINES = 24
CHART_NAMES = 8
NAMES_TOGETHER = 5
NAME_GAP = 15.0
Y_TICKS = 5
X_TICKS = 8
# Two samples further apart than this many usual intervals are not joined: the collector was away.
GAP_INTERVALS = 4.0

Value = float | None
Point = tuple[float, float]
TimedValue = tuple[datetime, Value]

_TICK_STEPS = tuple(
    timedelta(seconds=s)
    for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
)


# -- Sparklines --------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """One small line without axes. `path` is empty when nothing is known; `end` is where the newest value is."""

    path: str
    end: Point | None
    width: float
    height: float


def sparkline(
    values: Sequence[Value],
    *,
    width: float = 120,
    height: float = 24,
    at_least: float = 0,
    most: int = SPARK_POINTS,
) -> Sparkline:
    """Draw values, oldest first and evenly spaced, over a base of zero.

    `at_least` is what the top of the scale stands for when every value is smaller, so that noise under an
    allowed limit stays low. More than `most` values are thinned; the peaks stay.
    """
    kept = _thin(values, most)
    scale = _zero_scale(kept, at_least)
    # The end marker has a radius of 2: keep it inside on the right.
    across = _spread(len(kept), 1, width - 4)
    points = [
        None if value is None else (x, _between(scale.at(value), height - SPARK_EDGE, SPARK_EDGE))
        for x, value in zip(across, kept, strict=True)
    ]
    return Sparkline(path=_path(points), end=points[-1] if points else None, width=width, height=height)


def sparkline_path(values: Sequence[Value], width: float = 120, height: float = 24) -> str:
    """The `d` of a sparkline's path; empty when there is nothing to draw."""
    return sparkline(values, width=width, height=height).path


# -- Line charts -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line: its name, its state (as in `data-state`) and its samples, oldest first.

    `note` is said at its end, which then has a name of its own; lines without one share a name where they meet.
    """

    name: str
    state: str
    samples: Sequence[TimedValue]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A mark on an axis: where, and what is written there."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One drawn line; `last` is the newest known value."""

    name: str
    state: str
    path: str
    last: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """What is written at the end of a line, moved so that names do not cover each other."""

    y: float
    text: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """A chart ready for the template. `left_out` lines are not drawn (the table beside the chart has them)."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    lines: Sequence[Line]
    names: Sequence[Name]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    limit: Tick | None
    left_out: int

    @property
    def is_empty(self) -> bool:
        """No value is known in the window."""
        return not any(line.path for line in self.lines)


def line_chart(
    series: Sequence[Series],
    *,
    since: datetime,
    until: datetime,
    zone: tzinfo,
    limit: float | None = None,
    width: float = 1120,
    height: float = 260,
) -> LineChart:
    """Lay out lines over one time axis with a base of zero.

    At most `CHART_LINES` lines are drawn, those with the highest newest value; each keeps at most
    `CHART_POINTS` points (peaks stay). `limit` is drawn as a level of its own and stays in sight.
    """
    left, right, top, bottom = 52.0, width - 150, 16.0, height - 28
    drawn = highest_series(series, CHART_LINES)
    ticks = nice_ticks(max([limit or 0.0, *_known(drawn)]), most=Y_TICKS)
    scale = _Scale(high=ticks[-1])
    time_scale = _TimeScale(since=since, until=until, left=left, right=right)

    def level(value: float) -> float:
        return _between(scale.at(value), bottom, top)

    lines, ends = [], []
    for one in drawn:
        points = [None if v is None else (x, level(v)) for x, v in time_scale.place(one.samples)]
        last = _last(one.samples)
        lines.append(Line(name=one.name, state=one.state, path=_path(points), last=last))
        if last is not None:
            ends.append(_End(y=level(last), last=last, series=one))
    return LineChart(
        width=width,
        height=height,
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        lines=lines,
        names=spread_names(_name_ends(ends)[:CHART_NAMES], top=top, bottom=bottom),
        x_ticks=[Tick(at=time_scale.x(at), text=text) for at, text in time_ticks(since, until, zone=zone)],
        y_ticks=[Tick(at=level(value), text=f"{value:,.0f}") for value in ticks],
        limit=None if limit is None else Tick(at=level(limit), text=f"{limit:,.0f}"),
        left_out=len(series) - len(drawn),
    )


def nice_ticks(high: float, *, most: int) -> list[float]:
    """Levels from 0 to at least `high` in whole steps of 1, 2 or 5 x 10^n; between 2 and `most` + 1 of them."""
    if not math.isfinite(high) or high <= 1:
        return [0.0, 1.0]
    raw = high / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(step for factor in (1, 2, 5, 10) if (step := factor * power) >= raw * (1 - 1e-9))
    step = max(1.0, step)
    return [index * step for index in range(math.ceil(high / step - 1e-9) + 1)]


def time_ticks(since: datetime, until: datetime, *, zone: tzinfo) -> list[tuple[datetime, str]]:
    """At most `X_TICKS` + 1 round times of the clock of `zone` in the window, each with what to write."""
    span = until - since
    step = next((step for step in _TICK_STEPS if step * X_TICKS >= span), span / X_TICKS)
    local = since.astimezone(zone)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight + step * math.ceil((local - midnight) / step)
    form = "%H:%M:%S" if step < timedelta(minutes=1) else "%H:%M" if step < timedelta(days=1) else "%d %b"
    times = (first + step * index for index in range(X_TICKS + 1))
    return [(at, at.strftime(form)) for at in times if at <= until]


def spread_names(names: Sequence[Name], *, top: float, bottom: float) -> list[Name]:
    """Move names apart to `NAME_GAP`, keeping their order from top to bottom and inside the chart."""
    ordered = sorted(names, key=lambda name: name.y)
    placed: list[float] = []
    for name in ordered:
        placed.append(max(name.y, placed[-1] + NAME_GAP) if placed else max(name.y, top))
    floor = bottom
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], floor)
        floor = placed[index] - NAME_GAP
    return [Name(y=y, text=n.text, state=n.state) for y, n in zip(placed, ordered, strict=True)]


# -- Scales ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    high: float

    def at(self, value: float) -> float:
        """Where a value lies between 0 and the top of the scale, clamped to 0..1."""
        return min(1.0, max(0.0, value / self.high)) if self.high > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimeScale:
    since: datetime
    until: datetime
    left: float
    right: float

    def x(self, at: datetime) -> float:
        span = (self.until - self.since) / timedelta(seconds=1)
        return _between(((at - self.since) / timedelta(seconds=1)) / span if span > 0 else 0.0, self.left, self.right)

    def place(self, samples: Sequence[TimedValue]) -> Iterator[tuple[float, Value]]:
        """The samples inside the window with their x; a hole in time becomes one None."""
        inside = [(at, _finite(value)) for at, value in samples if self.since <= at <= self.until]
        kept = _thin_timed(inside, CHART_POINTS)
        longest = _usual_interval(kept) * GAP_INTERVALS
        before: datetime | None = None
        for at, value in kept:
            if before is not None and at - before > longest:
                yield self.x(before), None
            yield self.x(at), value
            before = at


def _zero_scale(values: Sequence[Value], at_least: float) -> _Scale:
    return _Scale(high=max([at_least, *(value for value in values if value is not None)]))


def _between(share: float, start: float, end: float) -> float:
    return start + (end - start) * share


def _spread(count: int, start: float, end: float) -> list[float]:
    if count == 1:
        return [end]
    return [_between(index / (count - 1), start, end) for index in range(count)]


# -- Values ------------------------------------------------------------------------------------------------
def _finite(value: Value) -> Value:
    return value if value is not None and math.isfinite(value) else None


def _thin(values: Sequence[Value], most: int) -> list[Value]:
    """At most `most` values, each the peak of its share of the row; a share without any value stays a gap."""
    finite = [_finite(value) for value in values]
    if len(finite) <= most:
        return finite
    edges = [index * len(finite) // most for index in range(most + 1)]
    return [max((v for v in finite[a:b] if v is not None), default=None) for a, b in pairwise(edges)]


def _thin_timed(samples: Sequence[TimedValue], most: int) -> list[TimedValue]:
    """At most `most` samples: of each share of the row the peak, with the time it was measured."""
    if len(samples) <= most:
        return list(samples)
    edges = [index * len(samples) // most for index in range(most + 1)]
    return [max(samples[a:b], key=lambda s: -math.inf if s[1] is None else s[1]) for a, b in pairwise(edges)]


def _usual_interval(samples: Sequence[TimedValue]) -> timedelta:
    steps = sorted(after[0] - before[0] for before, after in pairwise(samples))
    return steps[len(steps) // 2] if steps else timedelta()


def _last(samples: Sequence[TimedValue]) -> Value:
    """The newest sample's value; None when the newest sample knows nothing, so that no old number is shown."""
    return _finite(samples[-1][1]) if samples else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    y: float
    last: float
    series: Series


def _name_ends(ends: Sequence[_End]) -> list[Name]:
    """Name the lines with a note one by one, then the quiet ones, those that end close together in one go."""
    loud = [end for end in ends if end.series.note]
    named = [
        Name(y=end.y, text=f"{end.series.name}: {end.last:,.0f}, {end.series.note}", state=end.series.state)
        for end in loud
    ]
    return named + [_name_together(bunch) for bunch in _bunches([end for end in ends if not end.series.note])]


def _bunches(ends: Sequence[_End]) -> list[list[_End]]:
    bunches: list[list[_End]] = []
    for end in sorted(ends, key=lambda end: end.y):
        if bunches and end.y - bunches[-1][0].y < NAME_GAP:
            bunches[-1].append(end)
        else:
            bunches.append([end])
    return bunches


def _name_together(bunch: Sequence[_End]) -> Name:
    names = sorted((end.series.name for end in bunch), key=lambda name: (len(name), name))
    more = f" +{len(names) - NAMES_TOGETHER}" if len(names) > NAMES_TOGETHER else ""
    highest = max(end.last for end in bunch)
    level = f"{highest:,.0f}" if min(end.last for end in bunch) == highest else f"up to {highest:,.0f}"
    y = sum(end.y for end in bunch) / len(bunch)
    return Name(y=y, text=f"{', '.join(names[:NAMES_TOGETHER])}{more}: {level}", state="idle")


def highest_series(series: Sequence[Series], most: int) -> list[Series]:
    """The `most` series with the highest newest value, highest first; unknown ones last."""
    return sorted(series, key=lambda one: -math.inf if (v := _last(one.samples)) is None else v, reverse=True)[:most]


def _known(series: Sequence[Series]) -> Iterator[float]:
    return (v for one in series for _, value in one.samples if (v := _finite(value)) is not None)


def _path(points: Sequence[Point | None]) -> str:
    """An SVG path with a new start after each gap; a point alone between gaps becomes a short dash."""
    return " ".join(_stroke(run) for run in _runs(points))


def _stroke(run: Sequence[Point]) -> str:
    if len(run) == 1:
        return f"M{_number(run[0][0] - 0.5)} {_number(run[0][1])}h1"
    return "M" + " ".join(f"{_number(x)} {_number(y)}" for x, y in run)


def _runs(points: Sequence[Point | None]) -> Iterator[list[Point]]:
    run: list[Point] = []
    for point in points:
        if point is not None:
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
