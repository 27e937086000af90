from contextlib import suppress
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.domain.envelope import Undecodable, find_event_id, read_envelope, read_event
from dlq.originals import decode_headers, encode_headers
from relay.types import ConsumerRecord, PartitionRef

EVENT_ID = uuid4()
GOOD = (("event-id", str(EVENT_ID).encode()), ("event-type", b"thing.done"))


def record(headers=GOOD, value=b'{"n": 1}', key=b"k"):
    place = PartitionRef("t", 0)
    return ConsumerRecord(
        place=place, offset=0, leader_epoch=None, timestamp_ms=None, key=key, value=value, headers=headers
    )


def test_the_headers_of_an_event_are_read():
    headers = (*GOOD, ("published-at", b"1700000000123"), ("traceparent", b"00-aa-bb-01"), ("x", None))
    found = read_envelope(record(headers))
    assert (found.event_id, found.event_type, found.traceparent) == (EVENT_ID, "thing.done", "00-aa-bb-01")
    assert found.published_at.isoformat() == "2023-11-14T22:13:20.123000+00:00"


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (None, "not UTF-8"),
        ((), "event-id is missing"),
        (GOOD[1:], "event-id is missing"),
        (GOOD[:1], "event-type is missing"),
        ((("event-id", b"nope"), GOOD[1]), "event-id is not a UUID"),
        ((("event-id", b"\xff\xfe"), GOOD[1]), "event-id is not a UUID"),
        ((("event-id", None), GOOD[1]), "event-id is null"),
        ((*GOOD, GOOD[0]), "event-id is there 2 times"),
        ((GOOD[0], ("event-type", b"")), "event-type must be"),
        ((GOOD[0], ("event-type", b"\xff")), "event-type is not UTF-8"),
        ((GOOD[0], ("event-type", b"a\0b")), "event-type must be"),
        ((GOOD[0], ("event-type", b"x" * 201)), "event-type must be"),
        ((*GOOD, ("published-at", b"yesterday")), "published-at is not"),
        ((*GOOD, ("published-at", b"9" * 15)), "published-at is beyond"),
        ((*GOOD, ("published-at", None)), "published-at is null"),
    ],
)
def test_a_malformed_header_is_named_in_a_fixed_text(headers, words):
    with pytest.raises(Undecodable, match=words):
        read_envelope(record(headers))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"NaN", "not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b"1" * 5_000, "not JSON"),
    ],
)
def test_a_value_that_is_not_json_is_refused_without_being_quoted(value, words):
    with pytest.raises(Undecodable, match=words):
        read_event(record(value=value), read_envelope(record()), "json")


def test_a_tombstone_reaches_the_handler_as_none_and_bytes_are_left_alone():
    assert read_event(record(value=None), read_envelope(record()), "json").payload is None
    raw = read_event(record(value=b"\xff"), read_envelope(record()), "bytes")
    assert (raw.value, raw.payload) == (b"\xff", None)


HEADERS = st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=20)), max_size=6).map(tuple)


@given(HEADERS, st.none() | st.binary(max_size=60))
def test_no_record_whatever_makes_the_decoder_raise_anything_else(headers, value):
    found = find_event_id(record(headers))
    assert found is None or isinstance(found, UUID)
    for headers_tried in (headers, GOOD + headers):
        with suppress(Undecodable):
            read_event(record(headers_tried, value), read_envelope(record(headers_tried)), "json")


@given(HEADERS)
def test_stored_headers_come_back_byte_for_byte(headers):
    assert decode_headers(encode_headers(headers)) == headers
