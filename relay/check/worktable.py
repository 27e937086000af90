"""The checker's side of the database: a work table of its own, and what the outbox and the relay's places say."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.conf import settings
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from relay.check.judge import Row

# Deliberately not the reader's own statement: per shard, what its stored place does not cover.
_WAITS = """
SELECT EXISTS (SELECT 1 FROM relay_deferred WHERE topic = %(topic)s)
    OR EXISTS (SELECT 1 FROM relay_hold WHERE topic = %(topic)s)
    OR EXISTS (
        SELECT 1 FROM relay_checkpoint c CROSS JOIN LATERAL (
            (SELECT 1 FROM relay_outbox o
             WHERE o.shard = c.shard AND o.position > c.hw AND o.position > %(first)s AND o.position <= %(last)s
               AND o.topic = %(topic)s LIMIT 1)
            UNION ALL
            (SELECT 1 FROM relay_outbox o
             WHERE o.shard = c.shard AND o.position > %(first)s AND o.position <= %(last)s AND o.topic = %(topic)s
               AND (o.xid >= pg_snapshot_xmax(c.snapshot) OR o.xid = ANY(ARRAY(SELECT pg_snapshot_xip(c.snapshot))))
             LIMIT 1)) waiting)
"""
_ACKNOWLEDGED = "SELECT coalesce(sum(sent), 0) FROM relay_range WHERE topic = %s AND from_position > %s"
_COMMITTED = """
SELECT id::text, key, payload FROM relay_outbox
WHERE shard = %s AND position > %s AND position <= %s AND topic = %s ORDER BY position
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTable:
    """One run's table of keys, in a schema of its own; `first` is the outbox's position before the run."""

    run: str
    topic: str
    first: int

    @property
    def schema(self) -> str:
        """The schema's name."""
        return f"signalbox_check_{self.run}"

    def create(self, keys: int) -> None:
        """Make the schema and a row for each key."""
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {self.schema}")
            cursor.execute(
                f"CREATE TABLE {self.schema}.key (key integer PRIMARY KEY, rows integer NOT NULL DEFAULT 0)"
                " WITH (fillfactor = 50)"
            )
            cursor.execute(f"INSERT INTO {self.schema}.key (key) SELECT generate_series(0, %s - 1)", [keys])
            cursor.execute(f"ANALYZE {self.schema}.key")

    def drop(self) -> None:
        """Remove the schema; safe to call when it was never made."""
        with connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")

    def lock(self, cursor: CursorWrapper, keys: list[int]) -> dict[int, int]:
        """Lock keys in their order, as a service locks its aggregate; how many rows each has."""
        statement = f"SELECT key, rows FROM {self.schema}.key WHERE key = ANY(%s) ORDER BY key FOR UPDATE"  # noqa: S608
        cursor.execute(statement, [keys])
        return dict(cursor.fetchall())

    def store(self, cursor: CursorWrapper, counts: dict[int, int]) -> None:
        """Write how many rows the locked keys have now."""
        statement = (
            f"UPDATE {self.schema}.key k SET rows = v.rows FROM unnest(%s::int[], %s::int[]) AS v (key, rows)"  # noqa: S608
            " WHERE k.key = v.key"
        )
        cursor.execute(statement, [list(counts), list(counts.values())])

    def read_written(self) -> dict[int, int]:
        """How many rows each key committed."""
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT key, rows FROM {self.schema}.key WHERE rows > 0")  # noqa: S608
            return dict(cursor.fetchall())

    def read_rows(self) -> dict[str, Row]:
        """The committed rows of this run by event id, from the outbox; some 300 bytes of memory a row."""
        return {event_id: row for event_id, row in self._rows() if row is not None}

    def _rows(self) -> Iterator[tuple[str, Row | None]]:
        last = last_position()
        for shard in range(settings.RELAY_SHARDS):
            with connection.cursor() as cursor:
                cursor.execute(_COMMITTED, [shard, self.first, last, self.topic])
                for event_id, key, payload in cursor.fetchall():
                    yield event_id, read_row(self.run, bytes(key), bytes(payload))

    def is_drained(self) -> bool:
        """Tell whether the relay's stored places cover every row of this run, with none deferred or held."""
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")  # young partitions have no statistics yet
            cursor.execute(_WAITS, {"topic": self.topic, "first": self.first, "last": last_position()})
            waits: bool = cursor.fetchone()[0]
        return not waits

    def count_acknowledged(self) -> int:
        """How many records Kafka acknowledged for this run so far, repeats included."""
        with connection.cursor() as cursor:
            cursor.execute(_ACKNOWLEDGED, [self.topic, self.first])
            return int(cursor.fetchone()[0])


def last_position() -> int:
    """The last position that the outbox gave out; 0 = none yet."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value - (NOT is_called)::int FROM relay_outbox_position")
        return int(cursor.fetchone()[0])


def who_paused() -> str | None:
    """Who paused the whole relay; None = nobody."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT paused_by FROM relay_control WHERE scope = 'all'")
        row = cursor.fetchone()
    return row[0] if row else None


def payload_of(run: str, row: Row) -> bytes:
    """The value of a row: says its run, key and number, padded to a usual size."""
    return f"{run} {row.key} {row.number} ".encode().ljust(200, b".")


def read_row(run: str, key: bytes | None, value: bytes | None) -> Row | None:
    """Read the row back from a record; None = not one of this run, or not as it was written."""
    parts = (value or b"").split(b" ", 3)
    if len(parts) != 4 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    row = Row(int(parts[1]), int(parts[2]))
    return row if key == b"%d" % row.key and value == payload_of(run, row) else None
