import json

import pytest
from django.conf import settings
from django.db import transaction

from relay.facade import get_relay_status, publish, publish_many
from relay.types import EventDraft
from tests.relay_helpers import (
    count_unsent,
    event_id,
    first_occurrences,
    make_topic,
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


def test_a_committed_event_is_published_with_its_headers_byte_exactly():
    topic = make_topic()
    with transaction.atomic():
        event = publish(
            topic, key="case-1", type="case.opened", payload={"a": "Zoë"}, headers=[("h", b"\xff"), ("h", None)]
        )
    run_relay_until_drained()
    (message,) = read_topic(topic)
    assert (message.key(), json.loads(message.value())) == (b"case-1", {"a": "Zoë"})
    headers = message.headers()
    assert [n for n, _ in headers] == ["event-id", "event-type", "published-at", "content-type", "h", "h"]
    assert headers[0][1] == str(event.id).encode()
    assert headers[1][1] == b"case.opened"
    assert headers[3][1] == b"application/json"
    assert headers[4:] == [("h", b"\xff"), ("h", None)]


def test_every_key_keeps_its_order_over_many_rounds():
    topic = make_topic(partitions=6)
    with transaction.atomic():
        events = publish_many(
            EventDraft(topic=topic, key=f"k{n % 97}", type="t", payload={"n": n}) for n in range(5_000)
        )
    run_relay_until_drained()
    messages = read_topic(topic)
    assert len(messages) == 5_000
    expected = {}
    for event in events:
        expected.setdefault(event.key, []).append(str(event.id))
    assert first_occurrences(messages) == expected


def test_a_rolled_back_event_is_never_published():
    topic = make_topic()
    with transaction.atomic():
        publish(topic, key="k", type="t", payload=1)
        transaction.set_rollback(True)
    with transaction.atomic():
        kept = publish(topic, key="k", type="t", payload=2)
    run_relay_until_drained()
    assert [event_id(m) for m in read_topic(topic)] == [str(kept.id)]


def test_the_status_says_what_waits_and_why_then_that_it_is_caught_up():
    topic = make_topic()
    with transaction.atomic():
        events = [publish(topic, key=f"k{n}", type="t", payload=n) for n in range(30)]
    status = get_relay_status()
    assert (status.unsent.value, status.unsent.capped) == (30, False)
    assert (status.oldest.event_id, status.oldest.topic) == (events[0].id, topic)
    assert status.oldest.why == "waiting for a relay: none is alive"
    assert status.verdict.word == "silent"
    assert [(t.topic, t.unsent.value) for t in status.unsent_by_topic] == [(topic, 30)]
    with running_relay() as runner:
        wait_until(lambda: count_unsent() == 0)
        wait_until(lambda: get_relay_status().sent_per_s)
        status = get_relay_status()
        assert (status.verdict.word, status.oldest, status.unsent.value) == ("caught up", None, 0)
        assert [(r.name, len(r.shards)) for r in status.runners] == [(runner.name, 64)]
        assert status.latency_p50_ms is not None
        assert {s.holder for s in status.shards} == {runner.name}
        assert status.partitions_ahead >= settings.RELAY_PARTITIONS_LOW
        assert status.appended_per_s > 0
