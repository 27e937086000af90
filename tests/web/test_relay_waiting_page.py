"""The list of waiting rows: every one with why it waits, by topic, by state, by the key of a row, page by page."""

import re
from uuid import uuid4

import pytest
from django.db import connection, transaction

from relay.facade import declare_topic, pause_key, publish
from relay.types import TopicSpec
from tests.web.pages import EVIL, words_of

pytestmark = pytest.mark.django_db

EVENT = re.compile(rb'href="/relay/events/([0-9a-f-]{36})/"')


@pytest.fixture
def viewer(as_role):
    return as_role("viewer")


@pytest.fixture
def topic():
    return declare_topic(TopicSpec(name=f"waits-{uuid4().hex[:10]}")).name


def publish_rows(topic, keys):
    with transaction.atomic():
        return [publish(topic, key=key, type="claim.opened", payload={"secret": 4471}) for key in keys]


def set_aside(events):
    """As the relay does: the first one failed, the others are behind it."""
    with connection.cursor() as cursor:
        for event in events:
            cursor.execute(
                "INSERT INTO relay_deferred (shard, position, topic, key, event_id, attempts, failed, error)"
                " SELECT shard, position, topic, key, id, %s, %s, %s FROM relay_outbox WHERE id = %s",
                [3, True, "MSG_SIZE_TOO_LARGE", event.id] if event is events[0] else [0, False, "", event.id],
            )


def listed(response):
    return [found.decode() for found in EVENT.findall(response.content)]


def ids(events):
    return [str(event.id) for event in events]


def test_every_waiting_row_of_a_topic_is_listed_with_why(viewer, topic):
    events = publish_rows(topic, ["customer-ada", None, "customer-bob"])
    response = viewer.get("/relay/waiting/", {"topic": topic})
    assert listed(response) == ids(events)
    words = words_of(response)
    assert words.count("waiting for a relay: none is alive") == 3
    assert b"customer-ada" not in response.content
    assert b"4471" not in response.content


def test_the_rows_of_one_key_are_listed_by_naming_one_of_them(viewer, topic):
    events = publish_rows(topic, ["ada", "bob", "ada"])
    response = viewer.get("/relay/waiting/", {"of": events[0].position})
    assert listed(response) == [str(events[0].id), str(events[2].id)]
    assert f"on {topic}" in words_of(response)
    assert b"Pause this key" in response.content


def test_failed_rows_are_apart_from_those_behind_them(viewer, topic):
    events = publish_rows(topic, ["ada", "ada", "bob"])
    set_aside(events[:2])
    failed = viewer.get("/relay/waiting/", {"topic": topic, "state": "failed"})
    assert listed(failed) == ids(events[:1])
    assert "MSG_SIZE_TOO_LARGE" in words_of(failed)
    behind = viewer.get("/relay/waiting/", {"topic": topic, "state": "behind"})
    assert listed(behind) == ids(events[1:2])


def test_acts_are_offered_where_they_can_be_done_and_refused_with_the_reason_where_not(as_role, topic):
    events = publish_rows(topic, ["ada", "bob"])
    set_aside(events[:1])
    mine = as_role("on-call").get("/relay/waiting/", {"topic": topic})
    assert mine.content.count(b'href="/relay/row/skip/') == 1
    assert mine.content.count(b'href="/relay/key/retry/') == 1
    others = as_role("viewer").get("/relay/waiting/", {"topic": topic})
    assert b'href="/relay/row/skip/' not in others.content
    assert "this needs on-call or admin" in words_of(others)


def test_a_paused_key_names_who_paused_it(viewer, topic):
    publish_rows(topic, ["ada"])
    pause_key(topic, b"ada", actor="grace", reason="a bad customer record")
    words = words_of(viewer.get("/relay/waiting/", {"topic": topic, "state": "paused"}))
    assert "grace" in words
    assert "a bad customer record" in words


def test_the_pages_together_have_every_row_once_in_order(viewer, topic, settings):
    settings.LIST_PAGE_ROWS = 4
    events = publish_rows(topic, [f"k{n}" for n in range(11)])
    found, address = [], f"/relay/waiting/?topic={topic}"
    for _ in range(10):
        response = viewer.get(address)
        found += listed(response)
        more = re.search(r'href="(\?[^"]*cursor=[^"]*)"\s+rel="next"', response.content.decode())
        if not more:
            break
        address = "/relay/waiting/" + more[1].replace("&amp;", "&")
    assert found == ids(events)


def test_an_empty_list_says_what_that_means(viewer, topic):
    assert "No waiting row matches" in words_of(viewer.get("/relay/waiting/", {"topic": topic}))


@pytest.mark.parametrize(
    "query",
    [
        {"state": "no-such"},
        {"of": "abc"},
        {"of": "9" * 30},
        {"of": "999999999999"},
        {"cursor": "no-such"},
        {"topic": "\0"},
        {"topic": "x" * 300},
        {"topic": EVIL, "state": EVIL},
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_in_words(viewer, query):
    response = viewer.get("/relay/waiting/", query)
    assert response.status_code == 422
    assert "This address cannot be read" in words_of(response)
    assert EVIL.encode() not in response.content


def test_a_page_takes_few_queries(viewer, topic, django_assert_max_num_queries):
    publish_rows(topic, [f"k{n}" for n in range(60)])
    with django_assert_max_num_queries(40, connection=connection):
        viewer.get("/relay/waiting/", {"topic": topic})
