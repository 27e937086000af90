"""Writes of the relay: pause and resume, topics, housekeeping."""

import structlog
from django.conf import settings
from django.db import connection, transaction

from relay.housekeeping import find_duplicate_ids, purge_outbox
from relay.incidents import close_incident, close_other_incidents, open_incident
from relay.kafka.topics import create_missing_topics
from relay.signals import relay_changed
from relay.topics import list_topics
from relay.types import IncidentKind

log = structlog.get_logger(__name__)

_PAUSE = """
INSERT INTO relay_control (scope, paused_by, reason) VALUES ('all', %s, %s)
ON CONFLICT (scope) DO NOTHING
"""


def pause_relay(*, actor: str, reason: str) -> bool:
    """Stop publishing on every runner within a second; events wait in the outbox. False = it was paused already."""
    with connection.cursor() as cursor:
        cursor.execute(_PAUSE, [actor[:150], reason[:500]])
        paused = bool(cursor.rowcount)
    _announce()
    return paused


def resume_relay(*, actor: str) -> bool:
    """Publish again. False = it was not paused."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM relay_control WHERE scope = 'all'")
        resumed = bool(cursor.rowcount)
    log.info("relay.resumed", actor=actor)
    _announce()
    return resumed


def ensure_topics() -> list[str]:
    """Create declared topics that are missing on the broker; never alter one. The names that were created.

    Raises:
        TopicSetupError: the cluster was not reached, or refused a topic.
    """
    return create_missing_topics(list_topics())


def keep_house() -> None:
    """Partitions ahead and behind, repeated ids, old rows, incidents whose cause is gone. Safe to run twice."""
    made = _ensure_partitions()
    forgotten = _forget()
    _close_incidents()
    find_duplicate_ids()
    dropped = purge_outbox()
    if made or forgotten or dropped:
        log.info("relay.housekeeping", partitions_made=made, rows_forgotten=forgotten, partitions_dropped=dropped)


def _ensure_partitions() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relay_outbox_ensure_partitions(%s, %s)",
            [settings.RELAY_PARTITION_ROWS, settings.RELAY_PARTITIONS_AHEAD],
        )
        made: int = cursor.fetchone()[0]
        cursor.execute(
            "SELECT count(*) FROM relay_outbox_partition"
            " WHERE from_position > (SELECT last_value FROM relay_outbox_position)"
        )
        ahead: int = cursor.fetchone()[0]
    if ahead > settings.RELAY_PARTITIONS_LOW:
        close_incident(IncidentKind.RELAY_PARTITIONS_LOW, "outbox")
        return made
    open_incident(
        IncidentKind.RELAY_PARTITIONS_LOW,
        "outbox",
        title=f"Only {ahead} partitions of the outbox are left",
        meaning="When the last one is full, publish() fails.",
        action="See why relay.housekeeping cannot create tables (its error is on the System page), or run it by hand.",
    )
    return made


def _forget() -> int:
    old = (
        (
            "DELETE FROM relay_stat WHERE at < clock_timestamp() - make_interval(secs => %s)",
            settings.RELAY_STAT_RETENTION_S,
        ),
        (
            "DELETE FROM relay_range WHERE last_acked_at < clock_timestamp() - make_interval(secs => %s)",
            settings.RELAY_RANGE_RETENTION.total_seconds(),
        ),
        (
            "DELETE FROM relay_skipped WHERE skipped_at < clock_timestamp() - make_interval(secs => %s)",
            settings.RELAY_SKIPPED_RETENTION.total_seconds(),
        ),
        (
            """DELETE FROM relay_runner r WHERE expires_at < clock_timestamp() - make_interval(secs => %s)
            AND NOT EXISTS (SELECT 1 FROM relay_checkpoint c WHERE c.holder = r.id)""",
            settings.RELAY_RUNNER_SHOWN_S,
        ),
    )
    rows = 0
    with connection.cursor() as cursor:
        for statement, seconds in old:
            cursor.execute(statement, [seconds])
            rows += cursor.rowcount
    return rows


def _close_incidents() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT topic FROM relay_deferred WHERE failed")
        close_other_incidents(IncidentKind.RELAY_ROW_FAILED, [topic for (topic,) in cursor.fetchall()])
        cursor.execute("SELECT DISTINCT topic FROM relay_hold EXCEPT SELECT topic FROM relay_pause WHERE key IS NULL")
        close_other_incidents(IncidentKind.RELAY_TOPIC_FAILED, [topic for (topic,) in cursor.fetchall()])
        cursor.execute("SELECT 1 FROM relay_runner WHERE circuit_open_since IS NOT NULL LIMIT 1")
        if cursor.fetchone() is None:
            close_incident(IncidentKind.RELAY_CLUSTER_DOWN, "kafka")


def _announce() -> None:
    transaction.on_commit(lambda: relay_changed.send(sender=None), robust=True)
