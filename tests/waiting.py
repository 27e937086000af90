"""Tools of the tests of waiting records: policies of a line, what waits, and letting it be due."""

from dataclasses import replace

from django.db import connection

from dlq.policies import default_policy
from relay.facade import save_policy
from relay.types import PolicyScope


def set_policy(line, version=0, **fields):
    """Give the line's group a policy of its own; what is not named is as the settings say."""
    document = replace(default_policy(), **fields).as_json()
    save_policy(
        PolicyScope.CONSUMER, line.group, document=document, expected_version=version, actor="test", reason="a test"
    )


def waiting(line):
    """Return (offset, attempts, stored) of what waits, in order."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT log_offset, attempts, stored FROM dlq_waiting WHERE group_name = %s ORDER BY partition, log_offset",
            [line.group],
        )
        return cursor.fetchall()


def make_due(line):
    """Let what waits in the database be due now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE dlq_waiting SET due_at = clock_timestamp() WHERE group_name = %s AND due_at IS NOT NULL",
            [line.group],
        )


def attempts_noted(line):
    """Return (offset, number, outcome) of the recorded tries, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT log_offset, number, outcome FROM dlq_attempt WHERE group_name = %s ORDER BY id", [line.group]
        )
        return cursor.fetchall()


def unaccounted(line, partition):
    """Return the offsets below the committed one that are neither applied, nor parked, nor stored as waiting."""
    committed = line.committed(partition)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT o FROM generate_series(0, %(committed)s - 1) AS o
            WHERE NOT EXISTS (SELECT FROM dlq_applied WHERE group_name = %(group)s AND topic = %(topic)s
                              AND partition = %(partition)s AND log_offset = o)
              AND NOT EXISTS (SELECT FROM dlq_dead_letter WHERE group_name = %(group)s AND topic = %(topic)s
                              AND partition = %(partition)s AND log_offset = o)
              AND NOT EXISTS (SELECT FROM dlq_waiting WHERE group_name = %(group)s AND topic = %(topic)s
                              AND partition = %(partition)s AND log_offset = o AND stored)
            """,
            {"committed": committed, "group": line.group, "topic": line.topic, "partition": partition},
        )
        return [offset for (offset,) in cursor.fetchall()]


def by_key(rows):
    """Group (key, number) by key, in order."""
    found = {}
    for key, number in rows:
        found.setdefault(key, []).append(number)
    return found
