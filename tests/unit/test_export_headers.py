"""Headers of an exported dead letter, read by decoders that know only what Spring and Connect document."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.export import ExportFacts, export_headers
from dlq.domain.foreign import read_foreign_letter
from dlq.types import Family
from tests.unit.test_foreign_headers import CONNECT, OWN, SPRING

LIMIT = 16 * 1024
FACTS = ExportFacts(
    dead_letter="0192", topic="orders", partition=3, offset=4294967313, timestamp_ms=1_700_000_000_123, group="billing",
    handler="shop.pay.charge", attempts=4, error_class="shop.pay.Refused", message="raised at pay.py:7",
    stack="pay.py:7",
)  # fmt: skip


def decode_spring(headers):
    """As a listener of Spring reads a record of its dead-letter topic."""
    told = dict(headers)
    return {
        "topic": told["kafka_dlt-original-topic"].decode(),
        "partition": struct.unpack(">i", told["kafka_dlt-original-partition"])[0],
        "offset": struct.unpack(">q", told["kafka_dlt-original-offset"])[0],
        "timestamp": struct.unpack(">q", told["kafka_dlt-original-timestamp"])[0],
        "group": told["kafka_dlt-original-consumer-group"].decode(),
        "class": told.get("kafka_dlt-exception-fqcn", b"").decode(),
        "message": told.get("kafka_dlt-exception-message", b"").decode(),
        "stack": told.get("kafka_dlt-exception-stacktrace", b"").decode(),
    }


def decode_connect(headers):
    """As a reader of Connect's dead-letter queue does: everything is text."""
    told = {name.removeprefix("__connect.errors."): value.decode() for name, value in headers if "__connect." in name}
    return {
        "topic": told["topic"],
        "partition": int(told["partition"]),
        "offset": int(told["offset"]),
        "class": told.get("exception.class.name", ""),
        "message": told.get("exception.message", ""),
        "stack": told.get("exception.stacktrace", ""),
    }


READERS = {Family.SPRING: decode_spring, Family.CONNECT: decode_connect}


def export(original=(), facts=FACTS, family=Family.SPRING, limit=LIMIT):
    return export_headers(original, facts, family, limit_bytes=limit)


def changed(**fields):
    return ExportFacts(**{name: fields.get(name, getattr(FACTS, name)) for name in FACTS.__slots__})


@pytest.mark.parametrize("family", READERS)
def test_other_programs_read_where_and_why_it_failed(family):
    told = READERS[family](export(family=family)[1])
    assert (told["topic"], told["partition"], told["offset"]) == ("orders", 3, 4294967313)
    assert (told["class"], told["message"], told["stack"]) == ("shop.pay.Refused", "raised at pay.py:7", "pay.py:7")
    if family is Family.SPRING:
        assert (told["timestamp"], told["group"]) == (1_700_000_000_123, "billing")


def test_the_exact_bytes_of_springs_numbers():
    told = dict(export()[1])
    assert told["kafka_dlt-original-partition"] == b"\x00\x00\x00\x03"
    assert told["kafka_dlt-original-offset"] == b"\x00\x00\x00\x01\x00\x00\x00\x11"
    assert told["kafka_dlt-original-timestamp"] == b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"
    none = dict(export(facts=changed(timestamp_ms=None))[1])
    assert none["kafka_dlt-original-timestamp"] == b"\xff" * 8
    assert none["kafka_dlt-original-timestamp-type"] == b"NoTimestampType"


@pytest.mark.parametrize("family", READERS)
def test_signalbox_reads_back_what_it_wrote(family):
    letter = read_foreign_letter(export(family=family)[1], topic="dlq", frames_limit=20)
    assert [o.family for o in letter.origins] == [Family.SIGNALBOX, family]
    assert {(o.topic, o.partition, o.offset) for o in letter.origins} == {("orders", 3, 4294967313)}
    assert all(o.complaints == () for o in letter.origins)
    assert (letter.group, letter.handler, letter.attempts) == ("billing", "shop.pay.charge", 4)


def test_the_records_own_headers_stay_and_earlier_ones_of_the_two_families_give_way():
    own = [("event-id", b"1"), ("x", None), ("x", b"\xff")]
    kept, added = export([*own[:1], *SPRING, *SPRING, *CONNECT, *OWN, *own[1:]])
    assert kept == [*own[:1], *CONNECT, *own[1:]]
    names = [name for name, _ in added]
    assert len(names) == len(set(names))


def test_what_does_not_fit_is_shed_stack_first_then_message_then_class_never_the_place():
    facts = changed(stack="s" * 900, message="m" * 900, error_class="c" * 900)
    shed = {}
    for limit in (10_000, 5_000, 3_500, 100):
        told = decode_spring(export(facts=facts, limit=limit)[1])
        shed[limit] = [name for name in ("stack", "message", "class") if not told[name]]
        assert (told["topic"], told["partition"], told["offset"]) == ("orders", 3, 4294967313)
    assert shed == {
        10_000: [], 5_000: ["stack"], 3_500: ["stack", "message"], 100: ["stack", "message", "class"],
    }  # fmt: skip


@given(
    st.builds(
        ExportFacts, dead_letter=st.text(), topic=st.just("t"), partition=st.integers(0, 2**31 - 1),
        offset=st.integers(0, 2**63 - 1), timestamp_ms=st.none() | st.integers(0, 2**62), group=st.text(),
        handler=st.text(), attempts=st.integers(1, 2**31 - 1), error_class=st.text(), message=st.text(),
        stack=st.text(),
    ),
    st.sampled_from(list(READERS)),
)  # fmt: skip
def test_every_fact_can_be_written_and_the_place_is_read_back(facts, family):
    told = READERS[family](export(facts=facts, family=family)[1])
    assert (told["topic"], told["partition"], told["offset"]) == ("t", facts.partition, facts.offset)
