"""Every URL of the API, every persona: by session and by token. A new URL without a line in `TABLE` fails the test.

A line says the method, what is sent, what those with the permission get, and whether it is an act, which writes one
audit row when allowed and none when denied.
"""

import json
import uuid
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import URLPattern, get_resolver, reverse

from console.models import AuditEntry
from console.permissions import GRANTS, Action
from console.permissions import Group as Role
from console.roles import sync_roles
from console.tokens import make_token

pytestmark = pytest.mark.django_db

STRANGER = "stranger"
ANONYMOUS = "anonymous"
PERSONAS = [*(role.value for role in Role), STRANGER, ANONYMOUS]
SOME_ID = uuid.UUID(int=7)


@dataclass(frozen=True)
class Line:
    """`found`: what those who may get; the acts name what does not exist, so that nothing is changed."""

    args: tuple = ()
    method: str = "GET"
    action: Action = Action.VIEW
    body: dict = field(default_factory=dict)
    found: int = 200


def on_replay(**body):
    """An act on a replay that is not there."""
    return Line(args=(SOME_ID,), method="POST", action=Action.REPLAY_DEAD_LETTERS, body=body, found=404)


def on_policy(found=409, **body):
    """A change made from a version that never was."""
    named = {"subject": "", "version": 99, "reason": "r", **body}
    return Line(args=("consumer",), method="POST", action=Action.SET_RETRY_POLICY, body=named, found=found)


TABLE = {
    "api_schema": [Line()],
    "api_dead_letters": [Line()],
    "api_dead_letter": [Line(args=(SOME_ID,), found=404)],
    "api_restore": [
        Line(args=(SOME_ID,), method="POST", action=Action.DISCARD_DEAD_LETTERS, body={"reason": "r"}, found=404)
    ],
    "api_discard_previews": [
        Line(method="POST", action=Action.DISCARD_DEAD_LETTERS, body={"ids": [str(SOME_ID)]}, found=422)
    ],
    "api_discards": [
        Line(
            method="POST",
            action=Action.DISCARD_DEAD_LETTERS,
            body={"preview_id": str(SOME_ID), "reason": "r"},
            found=409,
        )
    ],
    "api_failure_groups": [Line()],
    "api_failure_group": [Line(args=(7,), found=404)],
    "api_policies": [Line()],
    "api_policy": [Line(args=("consumer",)), on_policy(document={})],
    "api_policy_withdraw": [on_policy(found=422)],
    "api_policy_roll_back": [on_policy(to_version=1, found=422)],
    "api_replay_previews": [
        Line(method="POST", action=Action.REPLAY_DEAD_LETTERS, body={"ids": [str(SOME_ID)]}, found=422)
    ],
    "api_replay_preview": [Line(args=(SOME_ID,), found=404)],
    "api_replays": [
        Line(),
        Line(method="POST", action=Action.REPLAY_DEAD_LETTERS, body={"preview_id": str(SOME_ID)}, found=409),
    ],
    "api_replay": [Line(args=(SOME_ID,), found=404)],
    "api_replay_items": [Line(args=(SOME_ID,), found=404)],
    "api_replay_pause": [on_replay(version=1)],
    "api_replay_resume": [on_replay(version=1)],
    "api_replay_cancel": [on_replay(version=1, reason="r")],
    "api_replay_rate": [on_replay(version=1, rate_per_s=5)],
    "api_replay_failed": [on_replay()],
    "api_second_requests": [Line()],
    "api_second_request": [Line(args=(7,), found=404)],
    "api_second_confirm": [Line(args=(7,), method="POST", found=404)],
    "api_second_refuse": [Line(args=(7,), method="POST", body={"reason": "r"}, found=404)],
    "api_second_withdraw": [Line(args=(7,), method="POST", found=404)],
    "api_quarantined_keys": [Line()],
    "api_quarantined_key": [Line(args=(SOME_ID,), found=404)],
    "api_key_release": [
        Line(args=(SOME_ID,), method="POST", action=Action.RELEASE_KEY, body={"reason": "r"}, found=404)
    ],
    "api_breakers": [Line()],
    "api_breaker_close": [
        Line(
            method="POST",
            action=Action.CLOSE_BREAKER,
            body={"group": "g", "handler": "h", "version": 1, "reason": "r"},
            found=409,
        )
    ],
}
CASES = [(name, line) for name, lines in sorted(TABLE.items()) for line in lines]
IDS = [f"{name}-{line.method}" for name, line in CASES]


def allowed(action):
    return {group.value for grant in GRANTS if grant.action is action for group in grant.groups}


def expected(line):
    may = allowed(line.action)
    return {p: 401 if p == ANONYMOUS else line.found if p in may else 403 for p in PERSONAS}


@pytest.fixture
def person_of(db):
    sync_roles()

    def make(persona):
        person, _ = User.objects.get_or_create(username=f"p-{persona}")
        if persona != STRANGER:
            person.groups.set([Group.objects.get(name=persona)])
        return person

    return make


def ask(client, name, line, **headers):
    url = reverse(name, args=line.args)
    return client.generic(line.method, url, json.dumps(line.body), content_type="application/json", **headers)


def test_every_url_of_the_api_has_a_line():
    names = {p.name for p in get_resolver().url_patterns if isinstance(p, URLPattern) and p.name.startswith("api_")}
    assert names == set(TABLE)


def test_every_method_that_an_address_takes_has_a_line():
    patterns = {p.name: p for p in get_resolver().url_patterns if isinstance(p, URLPattern)}
    for name, lines in TABLE.items():
        taken = {m for m in ("get", "post", "put", "patch", "delete") if hasattr(patterns[name].callback.cls, m)}
        assert taken == {line.method.lower() for line in lines}, name


@pytest.mark.parametrize(("name", "line"), CASES, ids=IDS)
def test_a_session_gets_what_the_table_says(person_of, name, line):
    found = {}
    for persona in PERSONAS:
        client = Client()
        if persona != ANONYMOUS:
            client.force_login(person_of(persona))
        found[persona] = ask(client, name, line).status_code
    assert found == expected(line)
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(("name", "line"), CASES, ids=IDS)
def test_a_token_gets_what_its_person_and_its_actions_allow(person_of, name, line):
    admin = person_of("admin")

    def bearer(*actions):
        made = make_token(admin, name="t", actions=actions, lasts=timedelta(days=1), made_by="test")
        return {"HTTP_AUTHORIZATION": f"Bearer {made.secret}"}

    assert ask(Client(), name, line, **bearer(Action.VIEW, line.action)).status_code == line.found
    others = set(Action) - {line.action}
    assert ask(Client(), name, line, **bearer(*others)).status_code == 403
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(("name", "line"), [c for c in CASES if c[1].method != "GET"])
def test_a_session_needs_the_form_token_for_a_change(person_of, name, line):
    client = Client(enforce_csrf_checks=True)
    client.force_login(person_of("admin"))
    assert ask(client, name, line).status_code == 403
    assert not AuditEntry.objects.exists()
