"""The relay's history as lines of charts. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from console.charts import Series
from console.history import HistoryTexts
from relay.types import RelayPoint

MAIN, BESIDE = "idle", "unknown"  # solid and dashed: two lines are told apart without a colour


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart: what it is called and counted in, and how each line is read from a point."""

    texts: HistoryTexts
    lines: Sequence[tuple[str, str, Callable[[RelayPoint], float | None]]]

    def series(self, points: Sequence[RelayPoint]) -> list[Series]:
        """The lines of this chart, in their order."""
        return [
            Series(name=name, state=state, samples=[(point.at, read(point)) for point in points])
            for name, state, read in self.lines
        ]


FIGURES = {
    "unsent": Figure(
        texts=HistoryTexts(id="relay-unsent", title="Unsent rows, greatest", unit="rows"),
        lines=[("unsent", MAIN, lambda point: point.unsent)],
    ),
    "age": Figure(
        texts=HistoryTexts(id="relay-age", title="Age of the oldest unsent row, greatest", unit="s"),
        lines=[("oldest", MAIN, lambda point: point.oldest_age_s)],
    ),
    "rate": Figure(
        texts=HistoryTexts(id="relay-rate", title="Written and sent, mean", unit="rows / s"),
        lines=[
            ("sent", MAIN, lambda point: point.sent_per_s),
            ("written", BESIDE, lambda point: point.written_per_s),
        ],
    ),
    "latency": Figure(
        texts=HistoryTexts(id="relay-latency", title="From insert to acknowledgement", unit="ms"),
        lines=[
            ("p50", MAIN, lambda point: point.latency_p50_ms),
            ("p99", BESIDE, lambda point: point.latency_p99_ms),
        ],
    ),
}
