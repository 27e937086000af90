import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain import envelope
from relay.errors import BadHeaders

names = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1).filter(
    lambda n: n.lower() not in envelope.RESERVED_HEADERS
)


@given(st.lists(st.tuples(names, st.none() | st.binary()), max_size=20))
def test_headers_come_back_byte_exactly_in_their_order(headers):
    checked = envelope.normalise_headers(headers, 64)
    assert envelope.load_headers(json.loads(envelope.store_headers(checked))) == headers


def test_line_breaks_that_the_database_writes_into_base64_are_read():
    assert envelope.load_headers([["h", "/w\nA="]]) == [("h", b"\xff\x00")]


@pytest.mark.parametrize("stored", [{}, None, "x", [["h"]], [[1, "eA=="]], [["", "eA=="]], [["h", 5]], [["h", "%%"]]])
def test_stored_headers_of_another_form_are_refused(stored):
    with pytest.raises(BadHeaders):
        envelope.load_headers(stored)


def test_the_wire_size_bounds_the_plain_size():
    headers = [("é", b"12"), ("b", None)]
    assert envelope.count_bytes(b"k", b"vv", headers) == 3 + 4 + 1
    assert envelope.count_wire_bytes(b"k", b"vv", headers) == 8 + 90 + 20


plain = st.text(st.characters(exclude_categories=("Cs",)), max_size=200)


@given(plain, plain, st.binary(min_size=1), st.binary(), st.integers(0, 1_500))
def test_what_surely_fits_fits_when_it_is_counted(event_type, content_type, key, value, limit):
    headers = envelope.build_headers(
        event_id=UUID(int=1), event_type=event_type, published_ms=10**13, content_type=content_type
    )
    exact = envelope.count_wire_bytes(key, value, headers)
    surely = envelope.fits_surely(limit, len(key) + len(value), event_type=event_type, content_type=content_type)
    assert not surely or exact <= limit


def test_a_small_record_surely_fits_a_usual_topic():
    assert envelope.fits_surely(1_000_000, 500, event_type="refund.proposed", content_type="application/json")
