"""Log tailing instead of polling: the Debezium connector's configuration, what the database needs, and the places.

The columns of `relay_outbox` fit the outbox event router. While a connector publishes, the relay is paused, and
`follow_slot()` moves its places behind the slot, so that partitions are purged and the console says what is unsent.
"""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from django.db import connection, transaction

from relay.errors import RelayError
from relay.store import CLAIM_LOCK

PASSWORD = "${env:SIGNALBOX_CONNECT_PASSWORD}"  # noqa: S105 - resolved by Kafka Connect, which knows the value
HEARTBEAT_MS = 10_000
IDENTIFIER_CHARS = 63
_ROUTER = "transforms.outbox."
_BINARY = "io.debezium.converters.BinaryDataConverter"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_TEXT = "org.apache.kafka.connect.storage.StringConverter"

_MOVE = """
UPDATE relay_checkpoint SET hw = greatest(hw, %s), snapshot = %s::pg_snapshot, late_cursor = 0, late_snapshot = NULL,
    holder = NULL, epoch = epoch + 1, moved_at = clock_timestamp()
"""


class ConnectorError(RelayError):
    """The connector, its slot or the relay is not as the request needs it; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where everything up to now was committed: the log's position, the last outbox position, what was visible."""

    lsn: str
    position: int
    snapshot: str


def build_connector(name: str, database_url: str) -> dict[str, object]:
    """Build the body of Kafka Connect's `POST /connectors`. The password is a placeholder, never the real one.

    Raises:
        ConnectorError: the name cannot name a slot, or the address is not PostgreSQL's.
    """
    slot = slot_name(name)
    at = urlsplit(database_url)
    if at.scheme not in {"postgres", "postgresql"} or not at.hostname or not at.path.strip("/"):
        raise ConnectorError("The database address must look like postgresql://user@host:5432/database.")
    return {
        "name": name,
        "config": {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": at.hostname,
            "database.port": str(at.port or 5432),
            "database.user": unquote(at.username or "signalbox"),
            "database.password": PASSWORD,
            "database.dbname": unquote(at.path.strip("/")),
            "topic.prefix": slot,
            "plugin.name": "pgoutput",
            "slot.name": slot,
            "publication.name": slot,
            "publication.autocreate.mode": "disabled",
            "table.include.list": "public.relay_outbox",
            "snapshot.mode": "no_data",
            "binary.handling.mode": "bytes",
            "tombstones.on.delete": "false",
            # An idle outbox in a busy server would keep the server's log for ever without these.
            "heartbeat.interval.ms": str(HEARTBEAT_MS),
            "heartbeat.action.query": f"SELECT pg_logical_emit_message(false, '{slot}', now()::text)",
            "transforms": "outbox",
            **{_ROUTER + key: value for key, value in _router().items()},
            "key.converter": _BINARY,
            "key.converter.delegate.converter.type": _JSON,
            "value.converter": _BINARY,
            "value.converter.delegate.converter.type": _JSON,
            "header.converter": _TEXT,
        },
    }


def _router() -> dict[str, str]:
    return {
        "type": "io.debezium.transforms.outbox.EventRouter",
        "route.by.field": "topic",
        "route.topic.replacement": "${routedByValue}",
        "route.tombstone.on.empty.payload": "true",
        "table.op.invalid.behavior": "fatal",
        "table.field.event.id": "id",
        "table.field.event.key": "key",
        "table.field.event.payload": "payload",
        "table.fields.additional.placement": (
            "id:header:event-id,type:header:event-type,content_type:header:content-type,headers:header:outbox-headers"
        ),
    }


def build_statements(name: str) -> list[str]:
    """Build the SQL that a superuser, or the table's owner with REPLICATION, runs once.

    The publication names the parent table: partitions that are attached later belong to it by themselves.
    """
    slot = slot_name(name)
    options = "publish = 'insert', publish_via_partition_root = true"
    return [
        f"CREATE PUBLICATION {slot} FOR TABLE relay_outbox WITH ({options})",
        f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
    ]


def slot_name(name: str) -> str:
    """Return the name of the slot and the publication of a connector.

    Raises:
        ConnectorError: a slot cannot have it.
    """
    slot = name.replace("-", "_").replace(".", "_")
    is_plain = slot.isascii() and slot.replace("_", "a").isalnum() and slot == slot.lower() and slot[0].isalpha()
    if not slot or len(slot) > IDENTIFIER_CHARS or not is_plain:
        raise ConnectorError(
            f"The name must be 1 to {IDENTIFIER_CHARS} lower-case letters, digits, '-' and '_', and begin with a "
            "letter: it also names the replication slot."
        )
    return slot


# -- The relay's places ------------------------------------------------------------------------------------
def note_place() -> Place:
    """Note the present: everything that `snapshot` sees lies before `lsn` in the server's log."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT pg_current_snapshot()::text, last_value FROM relay_outbox_position")
        snapshot, position = cursor.fetchone()
        cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
        return Place(lsn=cursor.fetchone()[0], position=position, snapshot=snapshot)


def slot_behind_bytes(name: str, place: Place) -> int:
    """How much of the server's log before `place` the connector has not confirmed; 0 or less = it has all of it.

    Raises:
        ConnectorError: there is no such slot in this database.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_wal_lsn_diff(%s, confirmed_flush_lsn)::bigint FROM pg_replication_slots"
            " WHERE slot_name = %s AND database = current_database()",
            [place.lsn, slot_name(name)],
        )
        row = cursor.fetchone()
    if row is None:
        raise ConnectorError(f"This database has no replication slot {slot_name(name)!r}.")
    return int(row[0])


def follow_slot(name: str, place: Place) -> None:
    """Move the relay's places to `place`: what it saw was published through the slot, what comes later is unsent.

    Raises:
        ConnectorError: the relay is not paused, rows wait set aside, or the slot has not confirmed the place yet.
    """
    behind = slot_behind_bytes(name, place)
    if behind > 0:
        raise ConnectorError(f"The slot has still to confirm {behind:,} bytes of the server's log. Try again later.")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(CLAIM_LOCK)
        cursor.execute("SELECT 1 FROM relay_control WHERE scope = 'all' FOR UPDATE")
        if cursor.fetchone() is None:
            raise ConnectorError("The relay is not paused, so it publishes too. Pause all of it on its page first.")
        cursor.execute("SELECT (SELECT count(*) FROM relay_deferred) + (SELECT count(*) FROM relay_hold)")
        if waiting := cursor.fetchone()[0]:
            raise ConnectorError(
                f"{waiting:,} rows or topics were set aside by the relay before and are in no slot. Resume the relay "
                "until they are sent or skipped, then pause it again."
            )
        cursor.execute(_MOVE, [place.position, place.snapshot])
        cursor.execute("DELETE FROM relay_runner")  # a paused runner claims afresh: it must forget its old places
