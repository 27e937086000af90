"""What the console answers to input that no page of its own sends: always in words, never a 500, nothing changed."""

import pytest
from django.conf import settings

from console.models import AuditEntry
from relay.facade import get_allowed_lag, get_relay_status
from tests.web.pages import EVIL, know_group, words_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def known_group(monkeypatch):
    know_group(monkeypatch, "claim-workers")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("", "Say why"),
        (" \n ", "Say why"),
        ("x" * (settings.AUDIT_REASON_CHARS + 1), "At most 500 characters; this has 501"),
        ("a\0b", "a character that cannot be shown"),
        ("a\x1b[31mb", "a character that cannot be shown"),
        ("pay \N{RIGHT-TO-LEFT OVERRIDE}001", "a character that cannot be shown"),
    ],
)
def test_a_reason_that_cannot_be_kept_is_refused_and_the_relay_goes_on(as_role, reason, said):
    answer = as_role("on-call").post("/relay/pause/", {"reason": reason, "next": "/relay/"})
    assert answer.status_code == 422
    assert said in words_of(answer)
    assert get_relay_status().paused_by is None
    assert not AuditEntry.objects.exists()


def test_a_reason_may_have_lines_marks_and_emoji(as_role):
    reason = "first line\r\nsecond \N{FAMILY}\N{ZERO WIDTH JOINER}\N{NO-BREAK SPACE}line"
    assert as_role("on-call").post("/relay/pause/", {"reason": reason}).status_code == 303
    assert get_relay_status().paused_reason == reason


def test_pausing_twice_says_who_was_faster_and_resuming_twice_too(as_role):
    person = as_role("on-call")
    assert person.post("/relay/resume/").status_code == 409
    assert person.post("/relay/pause/", {"reason": EVIL}).status_code == 303
    again = person.post("/relay/pause/", {"reason": "again"})
    assert again.status_code == 409
    assert "paused already, by on-call-person" in words_of(again)
    assert EVIL not in again.text
    assert AuditEntry.objects.count() == 1


@pytest.mark.parametrize("name", ["a\0b", "g" * 5_000])
def test_the_allowed_lag_of_a_name_that_no_group_has_is_refused(as_role, known_group, name):
    answer = as_role("admin").post("/lag/allowed/", {"group": name, "value": "5"})
    assert answer.status_code == 422
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("name", ["", "never-seen"])
def test_the_allowed_lag_of_a_group_that_no_pass_found_is_refused(as_role, known_group, name):
    answer = as_role("admin").post("/lag/allowed/", {"group": name, "value": "5"})
    assert answer.status_code == 409
    assert "no consumer group called" in words_of(answer)
    assert get_allowed_lag(name) == settings.LAG_ALLOWED_DEFAULT
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    "address", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "///evil.example"]
)
def test_an_act_never_leads_to_another_site(as_role, address):
    assert as_role("on-call").post("/relay/pause/", {"reason": "r", "next": address}).headers["Location"] == "/relay/"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("before=-1", "must be the number of an entry"),
        ("before=" + "9" * 20, "must be the number of an entry"),
        ("before=" + "9" * 5_000, "must be the number of an entry"),
        ("after=x", "must be the number of an entry"),
        ("actor=%00", "a character that cannot be shown"),
        ("actor=" + "x" * 300, "at most 249"),
        ("action=none", "There is no act called"),
    ],
)
def test_an_audit_address_that_cannot_be_meant_is_refused_in_words(as_role, query, said):
    answer = as_role("viewer").get(f"/audit/?{query}")
    assert answer.status_code == 422
    assert said in words_of(answer)
    assert "sys." not in answer.text


def test_a_form_address_opened_as_a_page_says_that_nothing_was_sent(as_role):
    answer = as_role("on-call").get("/lag/allowed/")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert "your form was not sent: nothing was changed" in words_of(answer)


@pytest.mark.parametrize("address", ["/", "/relay/", "/lag/", "/dead-letters/", "/system/", "/audit/", "/healthz"])
def test_a_head_request_answers_as_a_get_does(as_role, address):
    answer = as_role("viewer").head(address)
    assert (answer.status_code, answer.content) == (200, b"")


def test_a_foreign_host_name_is_refused_in_words(client):
    answer = client.get("/sign-in/", headers={"host": "evil.example"})
    assert answer.status_code == 400
    assert "not one that this console answers to" in words_of(answer)
    assert "evil.example" not in answer.text
