"""Quarantined keys: who is blocked, why, and the release; and open breakers."""

import pytest

from console.models import AuditAction, AuditEntry
from dlq.facade import list_breakers, list_quarantined, list_replays
from tests.web.pages import words_of


@pytest.fixture
def key(shop):
    shop.park(1)
    for number in (2, 3):
        shop.consume(shop.record(number))
    (found,) = [k for k in list_quarantined().keys if k.group == shop.group]
    return found


def test_a_key_is_shown_with_its_head_its_cause_and_what_waits(as_role, key):
    page = as_role("viewer").get(f"/quarantine/?group={key.group}")
    words = words_of(page)
    assert key.key_label in words
    assert "tests.first" in words
    assert f"{key.topic} 0 / 0" in words
    assert f"/dead-letters/{key.head.id}/".encode() in page.content
    assert "You are in viewer" in words


def test_a_filter_that_matches_nothing_says_so(as_role, key):
    assert "No key matches" in words_of(as_role("viewer").get("/quarantine/?group=nobody"))


def test_a_release_asks_with_its_scope_and_becomes_a_replay(as_role, key):
    on_call = as_role("on-call")
    asked = on_call.get(f"/quarantine/release/?key={key.id}")
    assert "3 records of this key, the head first" in words_of(asked)
    assert on_call.post("/quarantine/release/", {"key": key.id, "reason": ""}).status_code == 422
    done = on_call.post("/quarantine/release/", {"key": key.id, "reason": "mended"})
    (job,) = list_replays().jobs
    assert (done.status_code, done["Location"]) == (303, f"/replays/{job.id}/")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.reason) == (AuditAction.KEY_RELEASED, "mended")
    assert on_call.get(f"/quarantine/release/?key={key.id}").status_code == 409


def test_a_release_of_many_asks_a_second_person(as_role, key, settings):
    settings.DLQ_SECOND_PERSON_ABOVE = 2
    on_call = as_role("on-call")
    done = on_call.post("/quarantine/release/", {"key": key.id, "reason": "mended"})
    assert "/second-person/" in done["Location"]
    assert not list_replays().jobs


@pytest.mark.parametrize("wrong", ["", "x"])
def test_a_release_without_a_key_is_refused(as_role, wrong):
    assert as_role("on-call").get(f"/quarantine/release/?key={wrong}").status_code == 422


# -- Breakers ----------------------------------------------------------------------------------------------
@pytest.fixture
def breaker(shop, db):
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO dlq_breaker (group_name, handler, state, error_class, opened_at, probe_at) VALUES"
            " (%s, 'charge', 'open', 'TimeoutError', clock_timestamp(), clock_timestamp() + interval '12 s')",
            [shop.group],
        )
    (found,) = [b for b in list_breakers(only_open=True) if b.group == shop.group]
    return found


def test_an_open_breaker_says_what_is_held_and_when_it_is_probed(as_role, breaker):
    words = words_of(as_role("viewer").get("/quarantine/"))
    assert f"The breaker of charge in {breaker.group} is open" in words
    assert "TimeoutError" in words
    assert "Probing in 1" in words


def test_a_breaker_is_closed_once_with_a_reason(as_role, breaker):
    on_call = as_role("on-call")
    named = {"group": breaker.group, "handler": "charge"}
    assert "run again at once" in words_of(on_call.get("/quarantine/breaker/close/", named))
    form = {**named, "seen": breaker.version, "reason": "the vendor is back"}
    assert on_call.post("/quarantine/breaker/close/", {**form, "reason": ""}).status_code == 422
    assert on_call.post("/quarantine/breaker/close/", {**form, "seen": breaker.version + 1}).status_code == 409
    assert on_call.post("/quarantine/breaker/close/", form).status_code == 303
    assert on_call.post("/quarantine/breaker/close/", form).status_code == 409
    assert AuditEntry.objects.get().action == AuditAction.BREAKER_CLOSED
