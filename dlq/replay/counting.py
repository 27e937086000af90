"""Exact counts of a replay, in the transaction of what they count; spread over slots so that threads do not wait."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

FAILED_SAME, FOLLOWED = "failed_same", "followed"
SLOTS = 64

_ADD = """
INSERT INTO dlq_replay_count AS c (job_id, what, slot, n)
SELECT %s, what, %s, n FROM unnest(%s::text[], %s::bigint[]) AS new (what, n) ORDER BY what
ON CONFLICT (job_id, what, slot) DO UPDATE SET n = c.n + excluded.n
"""
_READ = "SELECT what, sum(n)::bigint FROM dlq_replay_count WHERE job_id = %s GROUP BY what"


def add_counts(cursor: Any, job_id: UUID, slot: int, counts: Mapping[str, int]) -> None:
    """Add to the counts of a job; late in the transaction, since it locks rows until the commit."""
    cursor.execute(_ADD, [job_id, slot % SLOTS, list(counts), list(counts.values())])


def read_counts(cursor: Any, job_id: UUID) -> dict[str, int]:
    """Return what was counted so far."""
    cursor.execute(_READ, [job_id])
    return dict(cursor.fetchall())
