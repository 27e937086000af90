"""Failure groups: exact counts whoever writes dead letters, windows, what people say of a group, merge and split."""

import pytest
from django.db import connection

pytestmark = pytest.mark.django_db

FILL = """
INSERT INTO dlq_dead_letter (id, group_name, handler, topic, partition, log_offset, key_label, event_type,
  failure_class, error_class, error_message, stack, fingerprint, attempts, state, parked_at)
SELECT gen_random_uuid(), 'workers', 'triage', 'topic-' || mod(n, 2), 0, n, 'key#' || mod(n, 50), 'claim.opened',
  'permanent', 'Error' || mod(n, %(causes)s), '', '', to_char(mod(n, %(causes)s), 'FM0000'), 1, 'parked',
  clock_timestamp() - make_interval(secs => n * %(every_s)s)
FROM generate_series(%(first)s, %(last)s) n
"""


def fill(last, *, first=1, causes=3, every_s=1.0):
    with connection.cursor() as cursor:
        cursor.execute(FILL, {"first": first, "last": last, "causes": causes, "every_s": every_s})


def run(sql, values=()):
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall() if cursor.description else cursor.rowcount


COUNTED = "SELECT fingerprint, topic, state, sum(n)::int FROM dlq_group_count GROUP BY 1, 2, 3 HAVING sum(n) <> 0"
THERE = "SELECT fingerprint, topic, state, count(*)::int FROM dlq_dead_letter GROUP BY 1, 2, 3"
BUCKETED = "SELECT fingerprint, sum(n)::int FROM dlq_group_bucket GROUP BY 1 HAVING sum(n) <> 0"
PARKED = "SELECT fingerprint, count(*)::int FROM dlq_dead_letter GROUP BY 1"


def assert_counts_are_right():
    assert sorted(run(COUNTED)) == sorted(run(THERE))
    assert sorted(run(BUCKETED)) == sorted(run(PARKED))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE dlq_dead_letter SET state = 'applied' WHERE log_offset < 20",
        "UPDATE dlq_dead_letter SET state = 'discarded', attempts = attempts + 1 WHERE fingerprint = '0001'",
        "UPDATE dlq_dead_letter SET fingerprint = 'new' WHERE log_offset BETWEEN 5 AND 9",
        "UPDATE dlq_dead_letter SET parked_at = parked_at - interval '3 h' WHERE log_offset > 50",
        "UPDATE dlq_dead_letter SET event_type = 'x'",
        "UPDATE dlq_dead_letter SET state = 'applied' WHERE false",
        "DELETE FROM dlq_dead_letter WHERE mod(log_offset, 4) = 0",
        "TRUNCATE dlq_dead_letter CASCADE",
    ],
)
def test_counts_follow_whatever_is_done_to_dead_letters(change):
    fill(60)
    assert_counts_are_right()
    run(change)
    assert_counts_are_right()
