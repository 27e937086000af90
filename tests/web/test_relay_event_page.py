"""Where an event went, and the relay over time: what the pages say, and what they refuse."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from dlq.relay_parking import park_row
from relay.facade import declare_topic, get_event_trace, publish
from relay.types import Aspect, EventState, EventTrace, Landing, RowToPark, TopicSpec, Verdict
from tests.web.pages import EVIL, NOW, words_of

pytestmark = pytest.mark.django_db

SENT = EventTrace(
    as_of=NOW,
    position=88_412,
    shard=7,
    event_id=UUID("01890000-0000-7000-8000-00000000abcd"),
    topic="claim-events",
    type="claim.opened",
    key_label="key#3fa81c20",
    key_bytes=17,
    payload_bytes=1_400,
    content_type="application/json",
    headers=["tenant"],
    wanted_partition=None,
    created_at=NOW - timedelta(seconds=3),
    age_s=3.0,
    state=EventState.SENT,
    is_deferred=False,
    verdict=Verdict(aspect=Aspect.OK, word="sent", reason="partition 3, offset 1,204"),
    landings=[Landing(partition=3, offset=1_204, acked_at=NOW - timedelta(seconds=2), runner="relay-1")],
)


@pytest.fixture
def viewer(as_role):
    return as_role("viewer")


@pytest.fixture
def show(monkeypatch):
    """Let the page read this trace: for events that are in Kafka."""

    def put(**changes):
        monkeypatch.setattr("console.views.relay_events.get_event_trace", lambda _: replace(SENT, **changes))

    return put


@pytest.fixture
def event():
    topic = declare_topic(TopicSpec(name=f"event-{uuid4().hex[:10]}")).name
    with transaction.atomic():
        return publish(
            topic,
            key="customer-ada-4471",
            type="claim.opened",
            payload={"iban": "XX44 secret"},
            headers={"tenant": "secret-tenant"},
        )


# -- One event ---------------------------------------------------------------------------------------------
def test_a_sent_event_has_its_partition_and_offset_and_who_sent_it(viewer, show):
    show()
    words = words_of(viewer.get(f"/relay/events/{SENT.event_id}/"))
    assert "Sent, partition 3, offset 1,204" in words or "sent, partition 3, offset 1,204" in words
    assert "Partition 3 Offset 1,204" in words
    assert "at most 1.0 s after the insert" in words
    assert "Sent by relay-1" in words
    assert "position 88,412, shard 7" in words
    assert "1.4 kB, application/json" in words


def test_an_event_that_lies_twice_says_that_consumers_apply_it_once(viewer, show):
    show(landings=[SENT.landings[0], replace(SENT.landings[0], offset=1_300)])
    words = words_of(viewer.get(f"/relay/events/{SENT.event_id}/"))
    assert "It lies 2 times, as after a crash" in words
    assert "Offset 1,300" in words


def test_a_sent_event_whose_place_is_not_known_says_why(viewer, show):
    show(landings=[], landing_words="Kafka has deleted the records of that time already.")
    assert "Kafka has deleted the records of that time" in words_of(viewer.get(f"/relay/events/{SENT.event_id}/"))


def test_a_waiting_event_says_why_and_shows_no_contents(viewer, event):
    response = viewer.get(f"/relay/events/{event.id}/")
    words = words_of(response)
    assert "Why it waits Waiting for a relay: none is alive." in words
    assert "Own headers tenant" in words
    for hidden in (b"customer-ada-4471", b"secret", b"XX44"):
        assert hidden not in response.content
    assert "The payload and the headers' values are not shown here" in words


def test_what_can_be_done_for_a_waiting_event_is_offered_to_those_who_may(as_role, show):
    show(state=EventState.WAITING, is_deferred=True, verdict=Verdict(aspect=Aspect.WARN, word="waiting", reason="r"))
    address = f"/relay/events/{SENT.event_id}/"
    assert b'href="/relay/row/skip/?position=88412' in as_role("on-call").get(address).content
    refused = as_role("viewer").get(address)
    assert b'href="/relay/row/skip/' not in refused.content
    assert "this needs on-call or admin" in words_of(refused)


def test_an_unknown_event_says_what_that_can_mean(viewer):
    response = viewer.get(f"/relay/events/{uuid4()}/")
    assert response.status_code == 404
    words = words_of(response)
    assert "No row of the outbox has this event id" in words
    assert "rolled back" in words
    assert "7 d" in words


def test_an_event_is_found_by_its_id_or_its_position(viewer, event):
    there = f"/relay/events/{event.id}/"
    position = get_event_trace(event.id).position
    assert viewer.get("/relay/events/", {"event": f" {event.id} "}).url == there
    assert viewer.get("/relay/events/", {"event": str(position)}).url == there
    assert viewer.get("/relay/events/", {"event": f"{position:,}"}).url == there
    assert viewer.get("/relay/events/", {"event": "999,999,999,999"}).status_code == 404


@pytest.mark.parametrize("asked", ["", "abc", "-1", "9" * 40, EVIL, "\0", "1e5", "٣"])
def test_what_names_no_event_is_refused_in_words(viewer, asked):
    response = viewer.get("/relay/events/", {"event": asked})
    assert response.status_code == 422
    assert "Type an event id" in words_of(response)
    assert EVIL.encode() not in response.content


def test_texts_of_an_event_are_escaped(viewer, show):
    show(
        topic=EVIL,
        type=EVIL,
        key_label=EVIL,
        content_type=EVIL,
        headers=[EVIL],
        landing_words=EVIL,
        verdict=Verdict(aspect=Aspect.OK, word=EVIL, reason=EVIL),
        landings=[replace(SENT.landings[0], runner=EVIL)],
    )
    assert EVIL.encode() not in viewer.get(f"/relay/events/{SENT.event_id}/").content


# -- Over time ---------------------------------------------------------------------------------------------
def write_samples(minutes=30):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM relay_sample")
        cursor.execute(
            "INSERT INTO relay_sample SELECT 'sample', at, at, 5, n, false, n, 50, 40, array_fill(1::bigint, ARRAY[35])"
            " FROM (SELECT n, clock_timestamp() - n * interval '5 s' AS at FROM generate_series(1, %s) n) s",
            [minutes * 12],
        )


def test_the_relay_page_has_four_charts_with_a_table_each(viewer):
    write_samples()
    response = viewer.get("/relay/")
    words = words_of(response)
    for title in ("Unsent rows, greatest", "Age of the oldest unsent row", "Written and sent", "From insert to"):
        assert title in words
    assert response.content.count(b"The same as a table") >= 4
    assert response.content.count(b"chart-line") >= 6


def test_without_a_sample_the_charts_say_that_nothing_is_known(viewer):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM relay_sample")
    assert "Nothing is known between" in words_of(viewer.get("/relay/history/"))


def test_the_data_of_a_chart_are_those_of_the_samples(viewer):
    write_samples()
    rate = viewer.get("/relay/history/data/", {"figure": "rate", "window": "1h"}).json()
    found = {line["name"]: {value for value in line["values"] if value is not None} for line in rate["series"]}
    assert found == {"sent": {8.0}, "written": {10.0}}


def test_a_window_can_be_chosen_and_one_that_cannot_be_is_refused(viewer):
    write_samples()
    until = datetime.now(UTC).replace(microsecond=0)
    chosen = {"since": (until - timedelta(minutes=10)).isoformat(), "until": until.isoformat(), "figure": "unsent"}
    found = viewer.get("/relay/history/data/", chosen).json()["series"][0]
    assert max(v for v in found["values"] if v is not None) <= 121
    for address in ("/relay/", "/relay/history/", "/relay/history/data/"):
        assert viewer.get(address, {"since": "yesterday", "until": "now"}).status_code == 422
    assert viewer.get("/relay/history/data/", {"figure": "no-such"}).status_code == 422


def test_a_row_that_its_policy_parked_leads_to_its_dead_letter(viewer, event):
    trace = get_event_trace(event.id)
    row = RowToPark(
        position=trace.position,
        shard=trace.shard,
        event_id=event.id,
        topic=trace.topic,
        type=trace.type,
        key=event.key,
        value=b"1",
        headers=(("event-id", str(event.id).encode()),),
        published_ms=0,
        attempts=3,
        code="MSG_SIZE_TOO_LARGE",
        error="too large",
        permanent=True,
    )
    with connection.cursor() as cursor:  # as the relay does: parked, and the shard's place passes the row
        park_row(cursor, row)
        cursor.execute("UPDATE relay_checkpoint SET hw = %s, late_floor = %s", [trace.position, trace.position])
    response = viewer.get(f"/relay/events/{event.id}/")
    words = words_of(response)
    assert "parked: the relay gave it up" in words
    assert "it never reached the topic" in words
    letter = re.search(r"/dead-letters/([0-9a-f-]{36})/", response.content.decode())[1]
    assert str(event.id) in words_of(viewer.get(f"/dead-letters/{letter}/"))
