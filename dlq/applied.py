"""How many records of a stretch a group has applied: what its dedupe rows will skip when it reads them again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection

# The newest rows by the index on `applied_at`, at most a named number: never a scan of the whole table.
_COUNT = """
WITH newest AS MATERIALIZED (
    SELECT group_name, topic, partition, log_offset FROM dlq_applied ORDER BY applied_at DESC LIMIT %(limit)s
), spans AS (
    SELECT * FROM unnest(%(partitions)s::integer[], %(froms)s::bigint[], %(befores)s::bigint[])
        AS span (partition, first, before)
)
SELECT spans.partition, count(newest.log_offset), (SELECT count(*) FROM newest)
FROM spans LEFT JOIN newest ON newest.group_name = %(group)s AND newest.topic = %(topic)s
    AND newest.partition = spans.partition
    AND newest.log_offset >= spans.first AND newest.log_offset < spans.before
GROUP BY spans.partition
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedCount:
    """Records a partition that were applied. Not `exact`: there are at least so many, older rows were not looked at."""

    by_partition: Mapping[int, int]
    exact: bool

    @property
    def total(self) -> int:
        """Over all partitions."""
        return sum(self.by_partition.values())


def count_applied(group: str, topic: str, spans: Mapping[int, tuple[int, int]]) -> AppliedCount:
    """Count the dedupe rows of `group` in [first, before) of each partition, among the newest `APPLIED_COUNT_ROWS`."""
    if not spans:
        return AppliedCount(by_partition={}, exact=True)
    limit = settings.APPLIED_COUNT_ROWS
    asked: dict[str, Any] = {
        "group": group,
        "topic": topic,
        "limit": limit,
        "partitions": list(spans),
        "froms": [first for first, _ in spans.values()],
        "befores": [before for _, before in spans.values()],
    }
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, asked)
        rows = cursor.fetchall()
    looked_at = max((row[2] for row in rows), default=0)
    return AppliedCount(by_partition={row[0]: row[1] for row in rows}, exact=looked_at < limit)
