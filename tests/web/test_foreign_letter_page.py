"""An imported dead letter on the pages: where it came from, what could not be read, nothing that it holds."""

import re

import pytest
from django.db import transaction

from dlq import foreign
from dlq.domain.foreign import read_foreign_letter
from dlq.services import keep_stops, park_foreign
from relay.types import ConsumerRecord, PartitionRef
from tests.unit.test_foreign_headers import CONNECT, SPRING, changed
from tests.web.pages import words_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(as_role):
    return as_role("viewer")


@pytest.fixture
def put():
    """Import one record without a broker; its dead letter's id."""
    offsets = iter(range(100))

    def park(headers):
        offset = next(offsets)
        record = ConsumerRecord(
            place=PartitionRef("orders-dlt", 1), offset=offset, leader_epoch=0, timestamp_ms=1_700_000_000_999,
            key=b"customer-ada-4471", value=b"secret-payload", headers=headers,
        )  # fmt: skip
        letter = read_foreign_letter(headers, topic="orders-dlt", frames_limit=20)
        failure = foreign._describe(letter)
        with transaction.atomic():
            new = park_foreign(letter.group or "foreign", letter.handler, record, failure, topic_id="t")
            keep_stops({new: letter.origins})
        return new

    return park


def page(viewer, letter):
    return words_of(viewer.get(f"/dead-letters/{letter}/"))


def test_the_page_shows_where_it_came_from_and_where_it_lay(viewer, put):
    words = page(viewer, put(SPRING))
    assert re.search(r"Original place orders 3, offset 4\D?294\D?967\D?313 ", words)
    assert "as the headers of Spring for Kafka tell, for billing" in words
    assert "Imported from orders-dlt 1, offset 0" in words
    assert "which billing could not handle, was imported at" in words
    assert "java.lang.IllegalStateException" in words
    assert "Pay.java:12 com.shop.Pay.charge" in words
    assert "imported from orders-dlt" in words


def test_the_page_says_what_could_not_be_read(viewer, put):
    words = page(viewer, put(changed(CONNECT, "__connect.errors.offset", b"many")))
    assert "not known in full: orders 3" in words
    assert "Remark: __connect.errors.offset is no decimal number (4 bytes)." in words
    assert "stage VALUE_CONVERTER" in words


def test_the_page_links_the_other_dead_letters_of_the_same_record(viewer, put):
    first, second = put(SPRING), put(SPRING)
    assert f'href="/dead-letters/{second}/"' in viewer.get(f"/dead-letters/{first}/").content.decode()
    assert f'href="/dead-letters/{first}/"' in viewer.get(f"/dead-letters/{second}/").content.decode()


def test_the_list_tells_imported_ones_apart(viewer, put):
    put(SPRING)
    assert "orders-dlt imported 1 / 0" in words_of(viewer.get("/dead-letters/"))


def test_no_content_and_no_foreign_text_is_on_the_pages(viewer, put):
    letter = put(SPRING)
    for response in (viewer.get("/dead-letters/"), viewer.get(f"/dead-letters/{letter}/")):
        for secret in (b"4471", b"4111", b"secret-payload", b"Listener failed"):
            assert secret not in response.content
