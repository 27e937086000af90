"""Log tailing on the real schema: the publication, a slot, the connector's configuration, Kafka's own partitioner."""

import json
import struct
import subprocess
from uuid import uuid4

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from console.stack import kafka
from relay.connector import ConnectorError, build_connector, build_statements, follow_slot, note_place, slot_name
from relay.facade import pause_relay, publish, publish_many, resume_relay
from relay.types import EventDraft
from tests.relay_helpers import (
    count_unsent,
    database_url,
    event_id,
    make_topic,
    open_connection,
    publish_keys,
    read_topic,
    run_relay_until_drained,
    running_relay,
    skip_to_now,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()
    yield
    skip_to_now()


@pytest.fixture
def connector():
    """The name of a connector whose publication and slot exist."""
    name = f"tail-{uuid4().hex[:8]}"
    with psycopg.connect(database_url(), autocommit=True) as conn:
        for statement in build_statements(name):
            conn.execute(statement)
        yield name
        conn.execute("SELECT pg_drop_replication_slot(%s)", [slot_name(name)])
        conn.execute(f"DROP PUBLICATION {slot_name(name)}")


def changes(name):
    """Every change in the slot, confirmed: (relation, {column: text})."""
    with psycopg.connect(database_url(), autocommit=True) as conn:
        conn.execute("SET synchronous_commit = on")  # a slot gives what is flushed
        conn.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        rows = conn.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
            " 'publication_names', %s)",
            [slot_name(name), slot_name(name)],
        ).fetchall()
    relations, found = {}, []
    for (message,) in rows:
        if message[:1] == b"R":
            relations[struct.unpack(">I", message[1:5])[0]] = read_relation(message)
        elif message[:1] == b"I":
            relation, columns = relations[struct.unpack(">I", message[1:5])[0]]
            found.append((relation, dict(zip(columns, read_tuple(message[6:]), strict=True))))
    return found


def read_relation(message):
    schema, table, rest = message[5:].split(b"\0", 2)
    (count,) = struct.unpack(">H", rest[1:3])
    names, rest = [], rest[3:]
    for _ in range(count):
        name, rest = rest[1:].split(b"\0", 1)
        names.append(name.decode())
        rest = rest[8:]  # type and modifier
    return f"{schema.decode()}.{table.decode()}", names


def read_tuple(data):
    (count,) = struct.unpack(">H", data[:2])
    values, at = [], 2
    for _ in range(count):
        kind, at = data[at : at + 1], at + 1
        if kind == b"t":
            (size,) = struct.unpack(">I", data[at : at + 4])
            values.append(data[at + 4 : at + 4 + size].decode())
            at += 4 + size
        else:
            values.append(None)
    return values


def test_rows_of_every_partition_come_from_the_slot_as_rows_of_the_outbox_in_commit_order(connector):
    topic = make_topic(create=False)
    with open_connection() as slow:
        slow.execute("INSERT INTO relay_outbox (topic, key, type) VALUES (%s, 'slow', 't')", [topic])
        with transaction.atomic():
            quick = publish(topic, key="k", type="thing.done", payload={"n": 1}, headers={"traceparent": "00"})
        slow.commit()
    with transaction.atomic():
        publish(topic, key="gone", type="t", payload=1)
        transaction.set_rollback(True)
    found = [row for relation, row in changes(connector) if relation == "public.relay_outbox"]
    assert [bytes.fromhex(row["key"][2:]) for row in found] == [b"k", b"slow"]
    row = found[0]
    config = build_connector(connector, database_url())["config"]
    router = {name.removeprefix("transforms.outbox."): value for name, value in config.items()}
    assert row[router["table.field.event.id"]] == str(quick.id)
    assert row[router["route.by.field"]] == topic
    assert bytes.fromhex(row[router["table.field.event.payload"]][2:]) == b'{"n":1}'
    placed = [place.split(":") for place in router["table.fields.additional.placement"].split(",")]
    assert {header: row[column] for column, _, header in placed if header != "outbox-headers"} == {
        "event-id": str(quick.id),
        "event-type": "thing.done",
        "content-type": "application/json",
    }
    assert config["table.include.list"] == "public.relay_outbox"
    assert (config["slot.name"], config["publication.name"]) == (slot_name(connector),) * 2


def test_a_partition_that_is_attached_later_is_in_the_publication(connector):
    topic = f"far-{uuid4().hex[:8]}"
    with connection.cursor() as cursor:  # below every place, so that no relay looks there
        cursor.execute("CREATE TABLE outbox_of_this_test (LIKE relay_outbox INCLUDING ALL)")
        cursor.execute(
            "ALTER TABLE relay_outbox ATTACH PARTITION outbox_of_this_test FOR VALUES FROM (-1000000) TO (-999999)"
        )
        try:
            cursor.execute(
                "INSERT INTO relay_outbox (position, topic, key, type) VALUES (-1000000, %s, 'k', 't')", [topic]
            )
            found = [(relation, row["topic"]) for relation, row in changes(connector)]
            assert found == [("public.relay_outbox", topic)]
        finally:
            cursor.execute("DROP TABLE outbox_of_this_test")


def test_the_places_follow_the_slot_and_a_paused_relay_goes_on_where_the_slot_ended(connector):
    topic = make_topic(partitions=1)
    with running_relay() as runner, open_connection() as slow:
        wait_until(lambda: len(runner.engine.shards) == 64)
        pause_relay(actor="test", reason="log tailing publishes")
        wait_until(lambda: runner.state.startswith("paused"))
        publish_keys(topic, keys=3, rows=30)
        slow.execute("INSERT INTO relay_outbox (topic, key, type) VALUES (%s, 'slow', 't')", [topic])
        place = note_place()
        with pytest.raises(ConnectorError, match="has still to confirm"):
            follow_slot(connector, place)
        assert count_unsent() == 30
        assert len(changes(connector)) == 30  # the connector publishes them
        follow_slot(connector, place)
        assert count_unsent() == 0
        slow.commit()
        after = publish_keys(topic, keys=1, rows=1)
        assert count_unsent() == 2
        resume_relay(actor="test")
        wait_until(lambda: count_unsent() == 0)
    sent = [event_id(message) for message in read_topic(topic)]
    assert len(sent) == 2
    assert after[b"k0"][0] in sent


def test_the_places_do_not_move_while_the_relay_publishes_or_rows_are_set_aside(connector):
    place = note_place()
    changes(connector)
    with pytest.raises(ConnectorError, match="is not paused"):
        follow_slot(connector, place)
    pause_relay(actor="test", reason="r")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_deferred (shard, position, topic, key, event_id) VALUES (0, 1, 't', 'k', %s)", [uuid4()]
        )
    with pytest.raises(ConnectorError, match="1 rows or topics were set aside"):
        follow_slot(connector, place)
    with pytest.raises(CommandError, match="no replication slot 'nobody'"):
        call_command("outbox_connector", "--name", "nobody", "--follow")


def test_the_command_prints_the_configuration_and_never_a_password(capsys):
    call_command("outbox_connector", "--name", "my-outbox", "--database-url", "postgresql://bo%40b:s3cret@db:6543/shop")
    out, said = capsys.readouterr()
    printed = json.loads(out)
    assert "s3cret" not in out + said
    config = printed["config"]
    assert printed["name"] == "my-outbox"
    assert [config[f"database.{part}"] for part in ("hostname", "port", "user", "dbname")] == [
        "db",
        "6543",
        "bo@b",
        "shop",
    ]
    assert config["database.password"].startswith("${")
    assert all(isinstance(value, str) for value in config.values())
    assert all(words in said for words in ("wal_level=logical", "REPLICATION", "publish_via_partition_root"))


@pytest.mark.parametrize("name", ["", "Outbox", "1st", "a" * 64, "a b", "a;drop", "ä"])
def test_a_name_that_no_slot_can_have_is_refused(name):
    with pytest.raises(CommandError, match="replication slot"):
        call_command("outbox_connector", "--name", name)


@pytest.mark.parametrize("url", ["mysql://a@b/c", "postgresql:///c", "postgresql://a@b", "nonsense"])
def test_an_address_that_is_not_postgresqls_is_refused(url):
    with pytest.raises(CommandError, match="must look like"):
        call_command("outbox_connector", "--database-url", url)


def test_a_thousand_keys_have_the_partition_that_kafkas_own_producer_gives_them():
    ours, theirs = make_topic("ours", partitions=7), make_topic("theirs", partitions=7)
    keys = [f"key-{n}" if n % 3 else f"schlüssel-{n}-" + "x" * (n % 50) for n in range(1_000)]
    with transaction.atomic():
        publish_many(EventDraft(topic=ours, key=key, type="t", payload=1) for key in keys)
    run_relay_until_drained()
    command = kafka.tool_command(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", settings.KAFKA_BOOTSTRAP_SERVERS, "--topic", theirs),
        *("--property", "parse.key=true", "--property", "key.separator=|"),
    )
    lines = "".join(f"{key}|1\n" for key in keys)
    subprocess.run(command, input=lines.encode(), check=True, timeout=60, capture_output=True)
    partitions = [{m.key(): m.partition() for m in read_topic(topic)} for topic in (ours, theirs)]
    assert partitions[0] == partitions[1]
    assert len(partitions[0]) == 1_000
    assert set(partitions[0].values()) == set(range(7))
