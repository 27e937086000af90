import datetime as dt
import json
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, connection, transaction

from dlq.domain.envelope import TYPE_LIMIT
from relay import publishing
from relay.errors import (
    BadHeaders,
    BadKey,
    BadPayload,
    NotInTransaction,
    PublishError,
    RecordTooLarge,
    TopicConflict,
    UnknownTopic,
)
from relay.facade import declare_topic, get_topic, list_topics, publish, publish_many
from relay.types import EventDraft, TopicSpec
from tests.relay_helpers import make_topic

pytestmark = pytest.mark.django_db

TOPIC = "publish-checks"
SCHEMA = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "number"}}}


@pytest.fixture(autouse=True)
def _topic():
    declare_topic(TopicSpec(name=TOPIC, max_bytes=1_000, schemas={"refund.proposed": SCHEMA}))


def stored(event):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT key, payload, headers::text, content_type, partition, shard, xid = pg_current_xact_id()"
            " FROM relay_outbox WHERE id = %s",
            [event.id],
        )
        return cursor.fetchone()


def test_an_event_is_stored_as_it_will_be_sent():
    event = publish(TOPIC, key="case-1", type="case.opened", payload={"name": "Zoë", "n": 1}, partition=2)
    key, payload, headers, content_type, partition, shard, own_xid = stored(event)
    assert (bytes(key), bytes(payload).decode()) == (b"case-1", '{"name":"Zoë","n":1}')
    assert (headers, content_type, partition, own_xid) == ("[]", "application/json", 2, True)
    assert 0 <= shard < 64
    assert event.id.version == 7


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("é", "é".encode()),
        (b"\x00\xff", b"\x00\xff"),
        (42, b"42"),
        (UUID("01980000-0000-7000-8000-000000000001"), b"01980000-0000-7000-8000-000000000001"),
        (None, None),
    ],
)
def test_a_key_becomes_bytes_by_the_documented_rule(key, expected):
    event = publish(TOPIC, key=key, type="t", payload=1)
    got = stored(event)[0]
    assert (None if got is None else bytes(got)) == expected == event.key


@pytest.mark.parametrize(
    "key", [1.5, True, object(), [], "", b"", "\ud800", pytest.param(10**5000, id="too many digits")]
)
def test_a_key_of_the_wrong_type_is_refused_and_writes_nothing(key):
    with pytest.raises(BadKey, match="key"):
        publish(TOPIC, key=key, type="t", payload=1)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM relay_outbox WHERE topic = %s", [TOPIC])
        assert cursor.fetchone() == (0,)


def test_the_key_must_be_said_even_when_there_is_none():
    with pytest.raises(TypeError, match="key"):
        publish(TOPIC, type="t", payload=1)


@pytest.mark.django_db(transaction=True)
def test_publishing_outside_a_transaction_says_why():
    with pytest.raises(NotInTransaction, match=r"transaction\.atomic"):
        publish(TOPIC, key="k", type="t", payload=1)
    with pytest.raises(NotInTransaction):
        publish_many([EventDraft(topic=TOPIC, key="k", type="t", payload=1)])


def test_an_unknown_topic_is_refused_with_the_way_to_declare_it():
    with pytest.raises(UnknownTopic, match="declare_topic"):
        publish("never-declared", key="k", type="t", payload=1)


@pytest.mark.parametrize("payload", [{"x": object()}, {"x": float("nan")}, {1: {2, 3}}, {"x": "\ud800"}])
def test_a_payload_that_is_no_json_is_refused(payload):
    with pytest.raises(BadPayload):
        publish(TOPIC, key="k", type="t", payload=payload)


def test_bytes_and_tombstones_go_as_they_are():
    assert bytes(stored(publish(TOPIC, key="k", type="t", payload=b"\x00\x01"))[1]) == b"\x00\x01"
    assert stored(publish(TOPIC, key="k", type="t", payload=None))[1] is None
    assert bytes(stored(publish(TOPIC, key="k", type="t", payload=b""))[1]) == b""


def test_dates_decimals_and_ids_are_written_as_text():
    value = {"at": dt.date(2026, 11, 30), "sum": Decimal("1.10"), "id": UUID(int=1)}
    event = publish(TOPIC, key="k", type="t", payload=value)
    assert json.loads(bytes(stored(event)[1])) == {"at": "2026-11-30", "sum": "1.10", "id": str(UUID(int=1))}


def test_size_counts_key_value_and_headers():
    publish(TOPIC, key="k", type="t", payload=b"x" * 800)
    for too_large in (
        {"payload": b"x" * 1_000},
        {"payload": b"x" * 800, "headers": {"h": "y" * 200}},
        {"payload": b"x" * 800, "key": "k" * 200},
    ):
        with pytest.raises(RecordTooLarge, match="1,000"):
            publish(TOPIC, **{"key": "k", "type": "t", **too_large})


def test_headers_keep_order_and_duplicates_byte_exactly():
    event = publish(TOPIC, key="k", type="t", payload=1, headers=[("b", b"\xff\x00"), ("a", "ü"), ("b", None)])
    assert json.loads(stored(event)[2]) == [["b", "/wA="], ["a", "w7w="], ["b", None]]


@pytest.mark.parametrize(
    "headers",
    [{"h": 1}, {1: "x"}, {"": "x"}, {"event-id": "x"}, {"Event-Type": "x"}, ["ab", 3], [("a", "b", "c")],
     5, {"h": "\ud800"}, {f"h{n}": "" for n in range(65)}],
)  # fmt: skip
def test_malformed_headers_are_refused(headers):
    with pytest.raises(BadHeaders):
        publish(TOPIC, key="k", type="t", payload=1, headers=headers)


@pytest.mark.parametrize("event_type", ["", None, 5, "x" * 201, "a\x00b", "a\nb", "\ud800"])
def test_a_bad_type_is_refused(event_type):
    with pytest.raises(PublishError, match="type"):
        publish(TOPIC, key="k", type=event_type, payload=1)


@pytest.mark.parametrize("partition", [-1, 2**31, "1", True])
def test_a_bad_partition_is_refused(partition):
    with pytest.raises(PublishError, match="partition"):
        publish(TOPIC, key="k", type="t", payload=1, partition=partition)


def test_a_schema_of_the_type_is_checked_without_quoting_the_payload():
    publish(TOPIC, key="k", type="refund.proposed", payload={"amount": 1})
    with pytest.raises(BadPayload, match=r"\$\.amount") as caught:
        publish(TOPIC, key="k", type="refund.proposed", payload={"amount": "a secret"})
    assert "secret" not in str(caught.value)
    with pytest.raises(BadPayload, match="not bytes"):
        publish(TOPIC, key="k", type="refund.proposed", payload=b"{}")


def test_many_events_keep_their_order():
    drafts = [EventDraft(topic=TOPIC, key=n % 3, type="t", payload={"n": n}) for n in range(2_500)]
    events = publish_many(iter(drafts), strict=True)
    positions = [e.position for e in events]
    assert positions == sorted(positions)
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM relay_outbox WHERE topic = %s ORDER BY position", [TOPIC])
        assert [i for (i,) in cursor.fetchall()] == [e.id for e in events]


def test_a_type_that_publish_takes_is_one_that_consumers_read():
    assert publishing._TYPE_CHARS == TYPE_LIMIT


def test_when_one_of_many_events_is_refused_none_is_written(settings):
    settings.PUBLISH_CHUNK_ROWS = 2
    drafts = [EventDraft(topic=TOPIC, key=key, type="t", payload=1) for key in ("a", "b", "c", "d", 1.5)]
    with pytest.raises(BadKey):
        publish_many(drafts)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM relay_outbox WHERE topic = %s", [TOPIC])
        assert cursor.fetchone() == (0,)


def test_strict_needs_a_key_and_locks_it():
    with pytest.raises(BadKey, match="strict"):
        publish(TOPIC, key=None, type="t", payload=1, strict=True)
    publish(TOPIC, key="k", type="t", payload=1, strict=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert cursor.fetchone() == (1,)


def test_rows_of_one_key_share_a_shard_and_rows_without_key_spread():
    keyed = {stored(publish(TOPIC, key="same", type="t", payload=n))[5] for n in range(20)}
    spread = {stored(publish(TOPIC, key=None, type="t", payload=n))[5] for n in range(20)}
    assert (len(keyed), len(spread)) == (1, 20)


@pytest.mark.parametrize(
    "statement",
    ["UPDATE relay_outbox SET type = 'x'", "DELETE FROM relay_outbox", "TRUNCATE relay_outbox",
     "DELETE FROM relay_outbox_p1", "TRUNCATE relay_outbox_p1"],
)  # fmt: skip
def test_the_table_refuses_anything_but_inserts(statement):
    publish(TOPIC, key="k", type="t", payload=1)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_plain_sql_needs_topic_and_type_only():
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO relay_outbox (topic, type, payload) VALUES (%s, 't', 'x') RETURNING id", [TOPIC])
        assert isinstance(cursor.fetchone()[0], UUID)


def test_declaring_a_topic_twice_differently_is_refused():
    name = f"twice-{uuid4()}"
    spec = TopicSpec(name=name)
    assert declare_topic(spec) == declare_topic(TopicSpec(name=name)) == get_topic(name)
    assert spec in list_topics()
    with pytest.raises(TopicConflict):
        declare_topic(TopicSpec(name=name, partitions=7))


def test_a_partition_beyond_the_declared_ones_fails_at_the_call():
    topic = make_topic(partitions=3, create=False)
    with transaction.atomic():
        assert publish(topic, key="k", type="t", payload=1, partition=2).position
        with pytest.raises(PublishError, match=r"Partition 3 .* declared with 3 \(0 to 2\)"):
            publish(topic, key="k", type="t", payload=1, partition=3)
