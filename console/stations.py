"""The stations of the line on the Now page: one number each, sampled by the watch, read back for sparklines."""

from collections.abc import Mapping
from enum import StrEnum

from django.conf import settings
from django.db import connection

from console.models import StationSample
from dlq.types import DlqStatus
from relay.types import LagOverview, ProcessView, RelayStatus, Role, TopicSpec


class Station(StrEnum):
    """What is sampled, and its unit. `CRASHES` is no station: it is how the watch knows that crashes rise."""

    API = "api"  # rows appended a second
    OUTBOX = "outbox"  # age of the oldest unsent row, seconds
    RELAY = "relay"  # rows sent a second
    TOPICS = "topics"  # partitions
    CONSUMERS = "consumers"  # the worst lag of a partition, offsets
    DLQ = "dlq"  # open dead letters
    CRASHES = "crashes"  # deaths of consumers, counted since each was first seen


# The greatest value of each piece of time: a short peak stays visible.
_HISTORY = """
SELECT least(%(points)s - 1, floor(extract(epoch FROM at - begin) / (%(minutes)s * 60.0 / %(points)s)))::int AS piece,
       max(value)
FROM console_stationsample, (SELECT clock_timestamp() - make_interval(mins => %(minutes)s) AS begin) AS span
WHERE station = %(station)s AND at >= begin GROUP BY piece
"""


def measure_stations(
    *,
    relay: RelayStatus | None,
    lag: LagOverview | None,
    dlq: DlqStatus | None,
    topics: list[TopicSpec] | None,
    processes: list[ProcessView] | None,
) -> dict[Station, float]:
    """Number of each station whose source could be read; the others are left out."""
    measured: dict[Station, float | None] = {}
    if relay is not None:
        measured[Station.API] = relay.appended_per_s or 0.0
        measured[Station.OUTBOX] = relay.oldest.age_s if relay.oldest else 0.0
        measured[Station.RELAY] = relay.sent_per_s or 0.0
    if topics is not None:
        measured[Station.TOPICS] = float(sum(topic.partitions for topic in topics))
    if lag is not None:
        measured[Station.CONSUMERS] = _worst_lag(lag)
    if dlq is not None:
        measured[Station.DLQ] = float(dlq.open)
    if processes is not None:
        measured[Station.CRASHES] = float(sum(p.crashes for p in processes if p.role is Role.CONSUMER))
    return {station: value for station, value in measured.items() if value is not None}


def record_stations(values: Mapping[Station, float]) -> None:
    """Store one sample a station, all at the same time; one statement."""
    StationSample.objects.bulk_create(StationSample(station=s.value, value=v) for s, v in values.items())


def forget_old_samples() -> int:
    """Delete samples past `STATION_SAMPLE_RETENTION`; how many."""
    with connection.cursor() as cursor:
        for station in Station:
            cursor.execute(
                "DELETE FROM console_stationsample WHERE station = %s"
                " AND at < clock_timestamp() - make_interval(secs => %s)",
                [station.value, settings.STATION_SAMPLE_RETENTION.total_seconds()],
            )
        return int(cursor.rowcount)


def station_history(station: str, *, minutes: int = 60, points: int = 30) -> list[float | None]:
    """The last `minutes` in `points` equal pieces, oldest first: each piece's greatest value, None without a sample.

    Raises:
        ValueError: `station` is none of `Station`, or a bound is below 1 or above 2,880 minutes and 1,000 points.
    """
    if not 1 <= minutes <= 2_880 or not 1 <= points <= 1_000:
        raise ValueError(f"minutes must be 1 to 2,880 and points 1 to 1,000, not {minutes} and {points}")
    asked = {"station": Station(station).value, "minutes": minutes, "points": points}
    with connection.cursor() as cursor:
        cursor.execute(_HISTORY, asked)
        found: dict[int, float] = dict(cursor.fetchall())
    return [found.get(piece) for piece in range(points)]


def crashes_rise(within_s: int) -> int | None:
    """How many consumers died in the last `within_s` seconds by the samples; None without two samples."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), (array_agg(value ORDER BY at DESC))[1] - min(value) FROM console_stationsample"
            " WHERE station = %s AND at > clock_timestamp() - make_interval(secs => %s)",
            [Station.CRASHES.value, within_s],
        )
        count, rise = cursor.fetchone()
    return round(rise) if count > 1 else None


def _worst_lag(overview: LagOverview) -> float | None:
    lags = [p.lag for group in overview.groups for p in group.partitions if p.lag is not None]
    return float(max(lags)) if lags else None
