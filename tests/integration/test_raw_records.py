import uuid

import pytest

from relay.facade import ForeignRecordNotSent, TopicNotRead, produce_foreign_record, read_whole_topic
from tests.topics import create_topic, delete_topics


@pytest.fixture
def topic():
    name = f"raw-{uuid.uuid4().hex[:8]}"
    yield create_topic(name, 3)
    delete_topics([name])


def test_a_foreign_record_arrives_byte_for_byte(topic):
    headers = [("event-id", b"not-a-uuid"), ("event-id", None), ("x", b"\x00\xff")]
    produce_foreign_record(topic, key=b"k", value=b"\xff\x00", headers=headers)
    produce_foreign_record(topic, key=None, value=None)
    produce_foreign_record(topic, key=b"k", value=b"")
    read = {(r.key, r.value, tuple(r.headers)) for r in read_whole_topic(topic)}
    assert read == {(b"k", b"\xff\x00", tuple(headers)), (None, None, ()), (b"k", b"", ())}


def test_a_topic_is_read_whole_and_each_key_in_order(topic):
    for number in range(40):
        produce_foreign_record(topic, key=str(number % 7).encode(), value=str(number).encode())
    records = list(read_whole_topic(topic))
    assert len(records) == 40
    for key in {r.key for r in records}:
        mine = [(r.offset, int(r.value)) for r in records if r.key == key]
        assert mine == sorted(mine)


def test_an_empty_topic_is_read_to_its_end_at_once(topic):
    assert list(read_whole_topic(topic)) == []


def test_a_topic_that_does_not_exist_is_an_error_that_names_it():
    with pytest.raises(TopicNotRead, match="no-such-topic"):
        list(read_whole_topic("no-such-topic"))


def test_a_record_that_the_broker_does_not_take_is_an_error(settings):
    settings.RAW_PRODUCE_WITHIN_S = 1
    with pytest.raises(ForeignRecordNotSent, match="no-such-topic"):
        produce_foreign_record("no-such-topic", key=None, value=b"x")
