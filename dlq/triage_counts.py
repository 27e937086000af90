"""Fold what the triggers on dead letters append: sums stay what they are, rows become few.

Each statement takes rows away and adds their sum in one transaction, skips what another one has in hand, and is bounded
by `DLQ_FOLD_ROWS`; running it twice, or dying in between, changes no sum.
"""

from typing import Any

from django.conf import settings
from django.db import connection

_COUNTS = """
WITH gone AS (
    DELETE FROM dlq_group_count WHERE id IN (
        SELECT id FROM dlq_group_count WHERE NOT is_folded ORDER BY id LIMIT %(rows)s FOR UPDATE SKIP LOCKED)
    RETURNING fingerprint, topic, group_name, state, n, last_at),
folded AS (
    INSERT INTO dlq_group_count AS c (fingerprint, topic, group_name, state, n, last_at, is_folded)
    SELECT fingerprint, topic, group_name, state, sum(n), max(last_at), true FROM gone
    GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (fingerprint, topic, group_name, state) WHERE is_folded
    DO UPDATE SET n = c.n + excluded.n, last_at = greatest(c.last_at, excluded.last_at))
SELECT count(*) FROM gone
"""
# From grain to grain: what was appended into ten minutes, ten minutes of some hours ago into hours.
_BUCKETS = """
WITH gone AS (
    DELETE FROM dlq_group_bucket WHERE id IN (
        SELECT id FROM dlq_group_bucket WHERE grain = %(grain)s AND bucket < %(before)s::timestamptz
        ORDER BY bucket LIMIT %(rows)s FOR UPDATE SKIP LOCKED)
    RETURNING fingerprint, bucket, n),
folded AS (
    INSERT INTO dlq_group_bucket AS b (fingerprint, bucket, grain, n)
    SELECT fingerprint, date_bin(%(step)s::interval, bucket, '2000-01-01+00'), %(grain)s + 1, sum(n) FROM gone
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (fingerprint, grain, bucket) WHERE grain > 0 DO UPDATE SET n = b.n + excluded.n)
SELECT count(*) FROM gone
"""
_NOW = "SELECT date_trunc('hour', clock_timestamp() - make_interval(hours => 4), 'UTC')"
_FORGET = """
DELETE FROM dlq_group_bucket WHERE id IN (
    SELECT id FROM dlq_group_bucket
    WHERE grain = 2 AND bucket < clock_timestamp() - make_interval(secs => %s) LIMIT %s)
"""


def fold_counts() -> None:
    """Fold everything that was appended, and forget buckets beyond `DLQ_GROUP_BUCKET_RETENTION`."""
    with connection.cursor() as cursor:
        cursor.execute(_NOW)
        hours_before = cursor.fetchone()[0]
    _fold(_COUNTS, {})
    _fold(_BUCKETS, {"grain": 0, "before": "infinity", "step": "10 minutes"})
    _fold(_BUCKETS, {"grain": 1, "before": hours_before, "step": "1 hour"})
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [settings.DLQ_GROUP_BUCKET_RETENTION.total_seconds(), settings.DLQ_FOLD_ROWS])


def _fold(sql: str, values: dict[str, Any]) -> None:
    for _ in range(settings.DLQ_FOLD_ROUNDS):
        with connection.cursor() as cursor:
            cursor.execute(sql, {**values, "rows": settings.DLQ_FOLD_ROWS})
            if cursor.fetchone()[0] < settings.DLQ_FOLD_ROWS:
                return
