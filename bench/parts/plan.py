"""How much a run measures: short (`--quick`) or in full. Every size and duration of the bench."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Rows are counts, `_s` are seconds."""

    is_quick: bool
    rows: int
    repeats: int
    old_rows: int
    blocked_keys: int
    rows_a_blocked_key: int
    latency_s: int
    celery_s: int
    doorbell_s: int
    doorbell_pairs: int
    snapshot_age_s: int
    peer_rows: int
    peer_s: int
    check_rows: int
    check_kills: int
    publish_rows: int


QUICK = Plan(
    is_quick=True,
    rows=30_000,
    repeats=2,
    old_rows=100_000,
    blocked_keys=200,
    rows_a_blocked_key=20,
    latency_s=4,
    celery_s=4,
    doorbell_s=3,
    doorbell_pairs=1,
    snapshot_age_s=2,
    peer_rows=3_000,
    peer_s=2,
    check_rows=2_000,
    check_kills=3,
    publish_rows=1_000,
)
FULL = Plan(
    is_quick=False,
    rows=200_000,
    repeats=5,
    old_rows=5_000_000,
    blocked_keys=1_000,
    rows_a_blocked_key=100,
    latency_s=60,
    celery_s=180,
    doorbell_s=20,
    doorbell_pairs=3,
    snapshot_age_s=600,
    peer_rows=20_000,
    peer_s=15,
    check_rows=100_000,
    check_kills=30,
    publish_rows=10_000,
)
