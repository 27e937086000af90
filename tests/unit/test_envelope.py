import json

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
