"""Latencies in buckets: small to store, good to about a third of a value. Pure."""

from bisect import bisect_left
from collections.abc import Sequence

EDGES_MS = (
    1, 1.5, 2, 3, 4, 5, 7, 10, 13, 17, 22, 30, 40, 50, 65, 85, 110, 150, 200, 260, 340, 450, 600, 800, 1_000, 1_500,
    2_000, 3_000, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000,
)  # fmt: skip
SIZE = len(EDGES_MS) + 1


def bucket_of(latency_ms: float) -> int:
    """The index of the bucket; what is below 0 (clocks differ) counts as 0."""
    return bisect_left(EDGES_MS, latency_ms)


def quantile_ms(buckets: Sequence[int], q: float) -> float | None:
    """The upper edge of the bucket that holds quantile `q`; None = nothing was counted."""
    total = sum(buckets)
    if not total:
        return None
    seen = 0
    for edge, count in zip((*EDGES_MS, EDGES_MS[-1]), buckets, strict=True):
        seen += count
        if seen >= q * total:
            return float(edge)
    return float(EDGES_MS[-1])
