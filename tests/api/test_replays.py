"""Replays by API: the way of the pages, with the same previews, permissions and audit."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest
import yaml
from django.test import Client
from django.urls import get_resolver

from console.models import AuditAction, AuditEntry
from console.permissions import Action
from console.tokens import make_token
from dlq.facade import list_quarantined, list_replays

PREVIEWS = "/api/v1/replay-previews/"
REPLAYS = "/api/v1/replays/"


class Caller:
    """Calls by a bearer token."""

    def __init__(self, person):
        made = make_token(person, name="script", actions=list(Action), lasts=timedelta(days=1), made_by="t")
        self.headers = {"HTTP_AUTHORIZATION": f"Bearer {made.secret}"}
        self.client = Client(enforce_csrf_checks=True)

    def get(self, url, **query):
        return self.client.get(url, query, **self.headers)

    def post(self, url, body=None):
        return self.client.post(url, json.dumps(body or {}), content_type="application/json", **self.headers)


@pytest.fixture
def ron(make_person):
    return Caller(make_person("ron", "on-call"))


def preview(caller, shop, **more):
    answer = caller.post(PREVIEWS, {"filter": {"group": shop.group}, "rate_per_s": 50, **more})
    assert answer.status_code == 201, answer.content
    return answer.json()


def start(caller, found, **more):
    return caller.post(REPLAYS, {"preview_id": found["id"], "reason": "mended", **more})


def test_a_preview_is_the_token_that_starts_a_replay_once(ron, shop):
    shop.park_many(range(2))
    found = preview(ron, shop)
    assert found["counts"] == [{"verdict": "eligible", "count": 2, "words": "can be replayed"}]
    assert found["scope"].startswith(f"Replay 2\N{NO-BREAK SPACE}dead letters of {shop.group}")
    assert len(found["samples"]) == 2
    begun = start(ron, found)
    assert begun.status_code == 201
    job = begun.json()["replay"]
    assert (job["total"], job["reason"], job["waiting_for"]) == (2, "mended", f"waiting for a consumer of {shop.group}")
    again = start(ron, found)
    assert (again.status_code, again["Content-Type"]) == (409, "application/problem+json")
    assert ron.get(f"{PREVIEWS}{found['id']}/").json()["job_id"] == job["id"]


def test_an_act_by_token_says_so_in_the_audit(ron, shop):
    shop.park_many(range(2))
    start(ron, preview(ron, shop))
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_name) == (AuditAction.REPLAY_STARTED, "ron")
    assert entry.detail["token"].endswith(" script")


def test_a_replay_is_held_by_the_version_that_was_seen(ron, shop):
    shop.park_many(range(3))
    job = start(ron, preview(ron, shop)).json()["replay"]
    url = f"{REPLAYS}{job['id']}/"
    paused = ron.post(f"{url}pause/", {"version": job["version"]}).json()
    assert paused["state"] == "paused"
    assert ron.post(f"{url}pause/", {"version": job["version"]}).status_code == 409
    resumed = ron.post(f"{url}resume/", {"version": paused["version"]}).json()
    changed = ron.post(f"{url}rate/", {"version": resumed["version"], "rate_per_s": 5}).json()
    assert changed["rate_per_s"] == 5
    refused = ron.post(f"{url}cancel/", {"version": changed["version"]})
    assert (refused.status_code, refused.json()["field"]) == (422, "reason")
    ended = ron.post(f"{url}cancel/", {"version": changed["version"], "reason": "wrong ones"}).json()
    assert (ended["state"], ended["skipped"]) == ("cancelled", 3)
    items = ron.get(f"{url}items/", outcome="skipped", limit=2).json()
    assert [item["outcome"] for item in items["items"]] == ["skipped", "skipped"]
    assert len(ron.get(f"{url}items/", cursor=items["next_cursor"]).json()["items"]) == 1
    assert ron.get(REPLAYS).json()["jobs"][0]["id"] == job["id"]


def test_too_many_become_a_request_that_a_token_cannot_confirm(ron, make_person, shop, settings):
    settings.DLQ_SECOND_PERSON_ABOVE = 1
    shop.park_many(range(2))
    asked = start(ron, preview(ron, shop))
    assert asked.status_code == 202
    request = asked.json()["second_request"]
    assert (request["state"], request["asked_by"], request["count"]) == ("waiting", "ron", 2)
    other = Caller(make_person("ada", "admin"))
    url = f"/api/v1/second-requests/{request['id']}/"
    assert other.post(f"{url}confirm/").status_code == 403
    assert not list_replays().jobs
    assert ron.post(f"{url}withdraw/").json()["state"] == "withdrawn"
    assert other.get("/api/v1/second-requests/").json()["requests"][0]["state"] == "withdrawn"


def test_a_second_person_confirms_by_session(ron, make_person, shop, settings):
    settings.DLQ_SECOND_PERSON_ABOVE = 1
    shop.park_many(range(2))
    request = start(ron, preview(ron, shop)).json()["second_request"]
    client = Client()
    client.force_login(make_person("ada", "admin"))
    confirmed = client.post(f"/api/v1/second-requests/{request['id']}/confirm/", content_type="application/json")
    assert (confirmed.status_code, confirmed.json()["decided_by"]) == (200, "ada")
    assert str(list_replays().jobs[0].id) == confirmed.json()["outcome"]


def test_a_key_is_released(ron, shop):
    shop.park(1)
    shop.consume(shop.record(2))
    keys = ron.get("/api/v1/quarantined-keys/", group=shop.group).json()["keys"]
    (key,) = list_quarantined().keys
    assert [(k["id"], k["letters"]) for k in keys] == [(str(key.id), 2)]
    url = f"/api/v1/quarantined-keys/{key.id}/"
    assert ron.get(url).json()["head"]["id"] == str(key.head.id)
    released = ron.post(f"{url}release/", {"reason": "mended"})
    assert released.status_code == 201
    assert AuditEntry.objects.get().action == AuditAction.KEY_RELEASED


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"ids": []}, 422),
        ({"ids": ["x"]}, 422),
        ({"ids": [str(uuid4())], "filter": {}}, 422),
        ({"filter": {"state": "lost"}}, 422),
        ({"filter": {"since": "soon"}}, 422),
        ({"ids": [str(uuid4())], "rate_per_s": 0}, 422),
        ({"ids": [str(uuid4())] * 901}, 422),
    ],
)
def test_a_selection_that_cannot_be_is_a_problem_with_words(ron, body, status):
    answer = ron.post(PREVIEWS, body)
    assert answer.status_code == status
    problem = answer.json()
    assert problem["status"] == status
    assert problem["request_id"] == answer["X-Request-ID"]
    assert problem["detail"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ("{", "application/json", 400),
        ("[]", "application/json", 400),
        ("x=1", "application/x-www-form-urlencoded", 415),
        ('{"ids": "' + "a" * 1_100_000 + '"}', "application/json", 413),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(ron, body, kind, status):
    answer = ron.client.post(PREVIEWS, body, content_type=kind, **ron.headers)
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "501"}, {"cursor": "x"}, {"state": "lost"}])
def test_a_list_that_cannot_be_meant_is_refused(ron, query):
    assert ron.get("/api/v1/dead-letters/", **query).status_code == 422


def test_the_list_is_paged_by_cursor_and_has_no_contents(ron, shop):
    shop.park_many(range(3))
    first = ron.get("/api/v1/dead-letters/", group=shop.group, limit=2)
    rest = ron.get("/api/v1/dead-letters/", group=shop.group, limit=2, cursor=first.json()["next_cursor"])
    ids = [row["id"] for page in (first, rest) for row in page.json()["rows"]]
    assert sorted(ids) == sorted(str(letter.pk) for letter in shop.letters())
    assert b'{\\"n\\"' not in first.content
    one = ron.get(f"/api/v1/dead-letters/{ids[0]}/").json()
    assert one["value"]["length"] == len('{"n": 0, "key": "k0"}')


def test_the_document_names_every_call(ron):
    document = yaml.safe_load(ron.get("/api/schema/").content)
    routes = [str(p.pattern) for p in get_resolver().url_patterns if str(p.pattern).startswith("api/v1/")]
    assert len(document["paths"]) == len(routes)
    ids = [call["operationId"] for path in document["paths"].values() for call in path.values()]
    assert len(ids) == len(set(ids))
    assert {"token", "session"} == set(document["components"]["securitySchemes"])


def test_an_unknown_address_is_a_problem_too(ron):
    answer = ron.get("/api/v1/nothing/")
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert answer.json()["request_id"] == answer["X-Request-ID"]
