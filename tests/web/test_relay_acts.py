"""Acts on the relay: a question that names scope and consequence, then the act with its audit row, or a refusal."""

import json
from uuid import uuid4

import pytest
from django.db import connection, transaction

from console.actions import relay as acts
from console.models import AuditEntry
from relay.facade import declare_topic, list_pauses, list_skipped, pause_key, pause_topic, publish
from relay.types import TopicSpec
from tests.web.pages import words_of

pytestmark = pytest.mark.django_db

KEY = "customer-ada-4471"
WHY = "the consumers are being moved"


@pytest.fixture
def topic():
    return declare_topic(TopicSpec(name=f"acts-{uuid4().hex[:10]}")).name


@pytest.fixture
def engineer(as_role):
    return as_role("on-call")


def publish_row(topic, key=KEY):
    with transaction.atomic():
        return publish(topic, key=key, type="claim.opened", payload=1)


def set_aside(event, *, failed=True, attempts=3):
    """As the relay does when Kafka refuses the row."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_deferred (shard, position, topic, key, event_id, attempts, failed, due_at, error)"
            " SELECT shard, position, topic, key, id, %s, %s, CASE WHEN NOT %s THEN clock_timestamp() + '1 h'::interval"
            " END, 'MSG_SIZE_TOO_LARGE' FROM relay_outbox WHERE id = %s",
            [attempts, failed, failed, event.id],
        )


def is_due(event):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT due_at <= clock_timestamp() AND NOT failed FROM relay_deferred WHERE event_id = %s", [event.id]
        )
        return cursor.fetchone()[0]


def audited():
    return [(e.action, e.object_id, e.reason) for e in AuditEntry.objects.order_by("id")]


def label_of(topic, key=KEY):
    return next(p.key_label for p in list_pauses() if (p.topic, p.key) == (topic, key.encode()))


# -- Topics ------------------------------------------------------------------------------------------------
def test_a_topic_is_paused_with_a_reason_and_resumed(engineer, topic):
    publish_row(topic)
    question = engineer.get("/relay/topic/pause/", {"topic": topic, "next": "/relay/waiting/"})
    words = words_of(question)
    assert f"Pause {topic}" in words
    assert "Every other topic goes on" in words
    assert "Unsent now 1 row" in words
    assert AuditEntry.objects.count() == 0
    done = engineer.post("/relay/topic/pause/", {"topic": topic, "reason": WHY, "next": "/relay/waiting/"})
    assert (done.status_code, done.url) == (303, "/relay/waiting/")
    words = words_of(engineer.get("/relay/"))
    assert f"{topic} on-call-person" in words
    assert WHY in words
    assert WHY in words_of(engineer.get("/relay/topic/resume/", {"topic": topic}))
    assert engineer.post("/relay/topic/resume/", {"topic": topic}).status_code == 303
    assert list_pauses() == []
    assert audited() == [("relay.topic_paused", topic, WHY), ("relay.topic_resumed", topic, "")]


def test_who_comes_second_is_told_what_the_first_one_did(engineer, topic):
    pause_topic(topic, actor="ada", reason="broker upgrade")
    for response in (
        engineer.get("/relay/topic/pause/", {"topic": topic}),
        engineer.post("/relay/topic/pause/", {"topic": topic, "reason": WHY}),
    ):
        assert response.status_code == 409
        assert "paused already, by ada: broker upgrade" in words_of(response)
    engineer.post("/relay/topic/resume/", {"topic": topic})
    assert engineer.post("/relay/topic/resume/", {"topic": topic}).status_code == 409
    assert [action for action, *_ in audited()] == ["relay.topic_resumed"]


def test_every_waiting_key_of_a_topic_is_made_due(engineer, topic):
    events = [publish_row(topic, key=f"k{n}") for n in range(3)]
    for event in events:
        set_aside(event, failed=event is events[0])
    words = words_of(engineer.get("/relay/topic/retry/", {"topic": topic}))
    assert "Keys that wait 3 Of them failed 1" in words
    assert engineer.post("/relay/topic/retry/", {"topic": topic}).status_code == 303
    assert all(is_due(event) for event in events)
    assert AuditEntry.objects.get().detail == {"rows": 3}
    assert engineer.post("/relay/topic/retry/", {"topic": f"{topic}-other"}).status_code == 409


# -- Keys and rows -----------------------------------------------------------------------------------------
def test_the_key_of_a_row_is_paused_and_resumed_without_being_shown(engineer, topic):
    event = publish_row(topic)
    question = engineer.get("/relay/key/pause/", {"position": event.position})
    assert "also those that are yet to come" in words_of(question)
    assert engineer.post("/relay/key/pause/", {"position": event.position, "reason": WHY}).status_code == 303
    label = label_of(topic)
    page = engineer.get("/relay/")
    assert f"{label} of {topic}" in words_of(page)
    again = engineer.get("/relay/key/resume/", {"topic": topic, "key_label": label})
    assert engineer.post("/relay/key/resume/", {"topic": topic, "key_label": label}).status_code == 303
    assert list_pauses() == []
    assert engineer.post("/relay/key/resume/", {"topic": topic, "key_label": label}).status_code == 409
    assert [action for action, *_ in audited()] == ["relay.key_paused", "relay.key_resumed"]
    everything = json.dumps(list(AuditEntry.objects.values("object_id", "detail", "reason")))
    for shown in (question.content, page.content, again.content, everything.encode()):
        assert KEY.encode() not in shown


def test_a_key_without_rows_is_paused_by_typing_it(engineer, topic):
    assert "As the application writes it" in words_of(engineer.get("/relay/key/pause/"))
    given = {"topic": topic, "key": KEY, "reason": WHY}
    assert engineer.post("/relay/key/pause/", given).status_code == 303
    assert [(p.topic, p.key) for p in list_pauses()] == [(topic, KEY.encode())]


def test_a_row_without_a_key_has_none_to_pause(engineer, topic):
    event = publish_row(topic, key=None)
    response = engineer.post("/relay/key/pause/", {"position": event.position, "reason": WHY})
    assert response.status_code == 422
    assert "has no key" in words_of(response)


def test_a_failed_key_is_retried_now(engineer, topic):
    event = publish_row(topic)
    set_aside(event)
    words = words_of(engineer.get("/relay/key/retry/", {"position": event.position}))
    assert "Cause MSG_SIZE_TOO_LARGE Tried 3 times Rows of the key that wait 1" in words
    assert engineer.post("/relay/key/retry/", {"position": event.position}).status_code == 303
    assert is_due(event)
    assert [action for action, *_ in audited()] == ["relay.key_retried"]


def test_retrying_what_was_sent_meanwhile_says_so(engineer, topic):
    event = publish_row(topic)
    response = engineer.post("/relay/key/retry/", {"position": event.position})
    assert response.status_code == 409
    assert "sent or skipped meanwhile" in words_of(response)
    assert audited() == []


def test_a_row_is_skipped_for_good_with_a_reason(engineer, topic):
    event = publish_row(topic)
    set_aside(event)
    question = words_of(engineer.get("/relay/row/skip/", {"position": event.position}))
    assert "no consumer will see it" in question
    assert "It cannot be undone" in question
    assert engineer.post("/relay/row/skip/", {"position": event.position, "reason": WHY}).status_code == 303
    (row,) = list_skipped(1)
    assert (row.event_id, row.skipped_by, row.reason) == (event.id, "on-call-person", WHY)
    assert audited() == [("relay.row_skipped", str(event.id), WHY)]
    assert "Rows that people skipped lately" in words_of(engineer.get("/relay/"))
    assert "skipped by on-call-person" in words_of(engineer.get(f"/relay/events/{event.id}/"))
    assert engineer.post("/relay/row/skip/", {"position": event.position, "reason": WHY}).status_code == 409


# -- Refusals ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "address",
    [
        "/relay/topic/pause/",
        "/relay/topic/pause/?topic=no-such-topic",
        "/relay/topic/resume/?topic=%00",
        "/relay/key/retry/?position=abc",
        "/relay/key/retry/?position=99999999999999999999999",
        "/relay/row/skip/",
        "/relay/key/resume/?topic=x",
    ],
)
def test_an_address_that_names_nothing_is_refused_in_words(engineer, address):
    response = engineer.get(address)
    assert response.status_code == 422
    assert "This cannot be done as it stands" in words_of(response)


def test_a_row_that_is_gone_is_said_to_be_gone(engineer):
    response = engineer.get("/relay/key/retry/?position=99999999999999")
    assert response.status_code == 409
    assert "No row is at position" in words_of(response)


def test_who_may_not_sees_the_question_with_the_reason_and_changes_nothing(as_role, topic):
    viewer = as_role("viewer")
    question = viewer.get("/relay/topic/pause/", {"topic": topic})
    assert question.status_code == 200
    assert "this needs on-call or admin" in words_of(question)
    assert b'aria-disabled="true"' in question.content
    assert viewer.post("/relay/topic/pause/", {"topic": topic, "reason": WHY}).status_code == 403
    assert viewer.post("/relay/topic/pause/", {"topic": "no-such", "reason": WHY}).status_code == 403
    assert list_pauses() == []


def test_a_missing_reason_keeps_the_question(engineer, topic):
    response = engineer.post("/relay/topic/pause/", {"topic": topic, "reason": ""})
    assert response.status_code == 422
    assert "Say why" in words_of(response)
    assert f'value="{topic}"' in response.content.decode()


def test_an_act_whose_audit_row_cannot_be_written_is_not_done(engineer, topic, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("the audit is full")

    monkeypatch.setattr(acts, "record_act", fail)
    with pytest.raises(RuntimeError, match="the audit is full"):
        engineer.post("/relay/topic/pause/", {"topic": topic, "reason": WHY})
    assert list_pauses() == []


def test_the_way_back_stays_within_the_console(engineer, topic):
    given = {"topic": topic, "reason": WHY, "next": "https://elsewhere.example/"}
    assert engineer.post("/relay/topic/pause/", given).url == "/relay/"


def test_two_keys_of_one_topic_are_paused_apart(engineer, topic):
    pause_key(topic, b"one", actor="ada", reason="r")
    pause_key(topic, b"two", actor="ada", reason="r")
    label = label_of(topic, "one")
    engineer.post("/relay/key/resume/", {"topic": topic, "key_label": label})
    assert [p.key for p in list_pauses()] == [b"two"]
