"""Discard and restore, failure groups and policies by API."""

import pytest

from console.models import AuditAction, AuditEntry
from dlq.facade import PolicyTarget, subject_of
from dlq.models import DeadLetter
from tests.api.test_replays import Caller


@pytest.fixture
def ada(make_person):
    return Caller(make_person("ada", "admin"))


def frozen(caller, shop):
    answer = caller.post("/api/v1/discard-previews/", {"filter": {"group": shop.group}})
    assert answer.status_code == 201
    return answer.json()["id"]


def test_a_frozen_selection_is_discarded_once_and_one_of_it_restored(ada, shop):
    letters = shop.park_many(range(2))
    given = {"preview_id": frozen(ada, shop), "reason": "sent by hand"}
    done = ada.post("/api/v1/discards/", given)
    assert (done.status_code, done.json()["discard"]["discarded"]) == (201, 2)
    assert ada.post("/api/v1/discards/", given).status_code == 409
    restored = ada.post(f"/api/v1/dead-letters/{letters[0]}/restore/", {"reason": "not sent"})
    assert restored.json()["row"]["state"] == "parked"
    assert ada.post(f"/api/v1/dead-letters/{letters[0]}/restore/", {"reason": "again"}).status_code == 409
    assert sorted(DeadLetter.objects.values_list("state", flat=True)) == ["discarded", "parked"]
    assert [e.action for e in AuditEntry.objects.order_by("id")] == [
        AuditAction.DEAD_LETTERS_DISCARDED,
        AuditAction.DEAD_LETTER_RESTORED,
    ]


def test_too_many_to_discard_become_a_request(ada, shop, settings):
    settings.DLQ_SECOND_PERSON_ABOVE = 1
    shop.park_many(range(2))
    done = ada.post("/api/v1/discards/", {"preview_id": frozen(ada, shop), "reason": "sent by hand"})
    assert (done.status_code, done.json()["second_request"]["act"]) == (202, "discard")
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"parked"}


def test_failure_groups_are_listed_and_shown(ada, shop):
    shop.park_many(range(2))
    page = ada.get("/api/v1/failure-groups/", group=shop.group, show="all").json()
    (group,) = page["groups"]
    assert group["error_class"] == "tests.first"
    assert ada.get(f"/api/v1/failure-groups/{group['number']}/").json()["number"] == group["number"]
    assert ada.get("/api/v1/failure-groups/", show="lost").status_code == 422
    assert ada.get("/api/v1/failure-groups/", cursor="not one of ours").status_code == 422


def test_a_policy_is_set_from_what_was_seen_rolled_back_and_withdrawn(ada, shop):
    url, subject = "/api/v1/policies/consumer/", subject_of(PolicyTarget(shop.group, "", ""))
    seen = ada.get(url, subject=subject).json()
    assert seen["version"] == 0
    given = {"subject": subject, "version": 0, "document": {"max_attempts": 4}, "reason": "a slow vendor"}
    done = ada.post(url, given).json()
    assert (done["version"], done["document"]["max_attempts"], done["is_own"]) == (1, 4, True)
    assert done["document"]["base_s"] == seen["document"]["base_s"]
    assert ada.post(url, given).status_code == 409
    second = ada.post(url, {**given, "version": 1, "document": {"max_attempts": 5}}).json()
    assert [v["version"] for v in second["versions"]] == [2, 1]
    back = {"subject": subject, "version": 2, "to_version": 1, "reason": "too many"}
    assert ada.post(f"{url}roll-back/", back).json()["document"]["max_attempts"] == 4
    gone = ada.post(f"{url}withdraw/", {"subject": subject, "version": 3, "reason": "not needed"}).json()
    assert gone["is_own"] is False
    assert AuditEntry.objects.count() == 4
    assert subject in {one["subject"] for one in ada.get("/api/v1/policies/").json()["policies"]}


@pytest.mark.parametrize("document", [{"max_attempts": 0}, {"max_attempts": "x"}, {"unheard_of": 1}])
def test_a_policy_that_cannot_be_is_refused_with_its_field(ada, shop, document):
    given = {"subject": "", "version": 0, "document": document, "reason": "r"}
    assert ada.post("/api/v1/policies/consumer/", given).status_code == 422
    assert not AuditEntry.objects.exists()


def test_an_unknown_scope_is_not_found(ada):
    assert ada.get("/api/v1/policies/sagas/").status_code == 404
