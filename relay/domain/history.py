"""The relay's figures over time: how readings are put together, and the points that a chart draws. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from relay.domain.histogram import quantile_ms
from relay.types import RelayPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was seen in the `span_s` seconds up to `at`: the greatest backlog, and how many rows came and went.

    `buckets` counts the latencies of the rows that were sent (relay.domain.histogram).
    """

    at: datetime
    span_s: float
    unsent: int
    unsent_capped: bool
    oldest_age_s: float | None
    written: float
    sent: int
    buckets: Sequence[int]


def merge_readings(readings: Sequence[Reading]) -> Reading:
    """Put readings together, at least one: greatest backlog and age, sums of the rest; `at` is the newest."""
    ages = [r.oldest_age_s for r in readings if r.oldest_age_s is not None]
    return Reading(
        at=max(r.at for r in readings),
        span_s=sum(r.span_s for r in readings),
        unsent=max(r.unsent for r in readings),
        unsent_capped=any(r.unsent_capped for r in readings),
        oldest_age_s=max(ages, default=None),
        written=sum(r.written for r in readings),
        sent=sum(r.sent for r in readings),
        buckets=[sum(counts) for counts in zip(*(r.buckets for r in readings), strict=True)],
    )


def plan_points(readings: Iterable[Reading], *, since: datetime, step: timedelta, gap: timedelta) -> list[RelayPoint]:
    """One point a `step` from `since` on, oldest first; a point without numbers where none was read for `gap`."""
    bins: dict[int, list[Reading]] = {}
    for reading in readings:
        bins.setdefault((reading.at - since) // step, []).append(reading)
    points: list[RelayPoint] = []
    for _, read in sorted(bins.items()):
        point = _point(merge_readings(read))
        if points and point.at - points[-1].at > gap:
            points.append(RelayPoint(at=points[-1].at + (point.at - points[-1].at) / 2))
        points.append(point)
    return points


def _point(reading: Reading) -> RelayPoint:
    span_s = max(0.001, reading.span_s)
    return RelayPoint(
        at=reading.at,
        unsent=reading.unsent,
        unsent_capped=reading.unsent_capped,
        oldest_age_s=reading.oldest_age_s or 0.0,
        written_per_s=reading.written / span_s,
        sent_per_s=reading.sent / span_s,
        latency_p50_ms=quantile_ms(reading.buckets, 0.5),
        latency_p99_ms=quantile_ms(reading.buckets, 0.99),
    )
