"""Discard and restore on the pages: what was marked is frozen, asked with its scope, done once and audited."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from console.models import AuditEntry, SecondRequest
from tests.integration.test_discards import park, state_of  # noqa: F401 - a fixture
from tests.integration.test_failure_groups import run
from tests.web.pages import words_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def on_call(as_role):
    return as_role("on-call")


def actions():
    return list(AuditEntry.objects.order_by("id").values_list("action", flat=True))


def test_marked_ones_are_discarded_after_a_question_with_a_reason_and_restored_again(on_call, park):  # noqa: F811
    one, two, three = park(3)
    asked = on_call.post("/dead-letters/discard/", {"ids": [one, two], "next": "/dead-letters/?topic=x"})
    question = asked["Location"]
    words = words_of(on_call.get(question))
    assert "Discard 2 dead letters" in words
    assert "Restorable until" in words
    assert on_call.post(question, {"reason": " "}).status_code == 422
    answer = on_call.post(question, {"reason": "test data", "next": "/dead-letters/?topic=x"})
    assert (answer.status_code, answer["Location"]) == (303, "/dead-letters/?topic=x")
    assert [state_of(letter) for letter in (one, two, three)] == ["discarded", "discarded", "parked"]
    assert on_call.post(question, {"reason": "again"}).status_code == 409

    page = words_of(on_call.get(f"/dead-letters/{one}/"))
    assert "Discarded by on-call-person" in page
    assert "with 1 others: test data" in page
    assert on_call.get(f"/dead-letters/{one}/restore/").status_code == 200
    assert on_call.post(f"/dead-letters/{one}/restore/", {"reason": "needed"}).status_code == 303
    assert on_call.post(f"/dead-letters/{one}/restore/", {"reason": "needed"}).status_code == 409
    assert state_of(one) == "parked"
    assert actions() == ["dlq.discarded", "dlq.restored"]


def test_all_that_match_are_frozen_by_their_filter(on_call, park):  # noqa: F811
    letters = park(3, group="workers")
    park(1, group="others")
    asked = on_call.post("/dead-letters/discard/", {"scope": "matching", "query": "group=workers"})
    (late,) = park(1, group="workers")
    assert "1 more match now" in words_of(on_call.get(asked["Location"]))
    on_call.post(asked["Location"], {"reason": "test data"})
    assert {state_of(letter) for letter in letters} == {"discarded"}
    assert state_of(late) == "parked"


def test_too_many_wait_for_a_second_person_and_are_discarded_when_that_one_confirms(on_call, park, settings):  # noqa: F811
    settings.DLQ_SECOND_PERSON_ABOVE = 2
    letters = park(3)
    asked = on_call.post("/dead-letters/discard/", {"ids": letters})
    assert "a second person confirms it" in words_of(on_call.get(asked["Location"]))
    on_call.post(asked["Location"], {"reason": "test data"})
    assert {state_of(letter) for letter in letters} == {"parked"}
    waiting = SecondRequest.objects.get()
    assert on_call.post(f"/second-person/{waiting.pk}/confirm/").status_code == 403

    other = User.objects.create_user("other")
    other.groups.set(Group.objects.filter(name="on-call"))
    client = Client()
    client.force_login(other)
    assert client.get(f"/second-person/{waiting.pk}/").status_code == 200
    assert client.post(f"/second-person/{waiting.pk}/confirm/").status_code == 303
    assert {state_of(letter) for letter in letters} == {"discarded"}
    assert run("SELECT actor, second FROM dlq_discard") == [("on-call-person", "other")]


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        ({}, 422, "Nothing is selected"),
        ({"ids": ["x"]}, 422, "no dead letter"),
        ({"scope": "matching", "query": "state=lost"}, 422, "state can be"),
        ({"scope": "matching", "query": "topic=nothing"}, 422, "Nothing matches"),
    ],
)
def test_what_cannot_be_selected_is_refused_in_words(on_call, data, status, said):
    answer = on_call.post("/dead-letters/discard/", data)
    assert answer.status_code == status
    assert said in words_of(answer)


def test_a_viewer_sees_the_buttons_with_the_reason_and_may_not(as_role, park):  # noqa: F811
    (one,) = park(1)
    viewer = as_role("viewer")
    for url in ("/dead-letters/", f"/dead-letters/{one}/"):
        assert "this needs on-call or admin" in words_of(viewer.get(url))
    assert viewer.post("/dead-letters/discard/", {"ids": [one]}).status_code == 403
    assert state_of(one) == "parked"
