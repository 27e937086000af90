"""Every URL, every persona: a new URL without a line in `TABLE` fails the test.

A line says what each persona gets for GET, and for a POST what is posted, which permission lets it through and whether
it is an operator act, which writes exactly one audit row when allowed and none when denied.
"""

import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.test import Client
from django.urls import URLPattern, get_resolver, reverse

from console.models import AuditEntry
from console.permissions import GRANTS, Action
from console.permissions import Group as Role
from console.roles import sync_roles
from dlq import facade as dlq
from relay import facade
from relay.types import IncidentKind, TopicSpec
from tests.web.pages import know_group

pytestmark = pytest.mark.django_db

STRANGER = "stranger"
ANONYMOUS = "anonymous"
PERSONAS = [*(role.value for role in Role), STRANGER, ANONYMOUS]
MAY_VIEW = {role.value for role in Role}


@dataclass(frozen=True)
class Line:
    """`get` and `post`: persona -> status; `post` None: the URL takes no POST (405)."""

    args: tuple = ()
    query: str = ""
    get: dict = field(default_factory=dict)
    post: dict | None = None
    data: dict = field(default_factory=dict)
    is_act: bool = False


def statuses(allowed, status, denied=403):
    """`allowed` personas get `status`, the other signed-in ones `denied`, an anonymous one is sent to sign in."""
    return {p: 302 if p == ANONYMOUS else status if p in allowed else denied for p in PERSONAS}


def groups_with(action):
    return {group.value for grant in GRANTS if grant.action is action for group in grant.groups}


def everyone(status):
    return dict.fromkeys(PERSONAS, status)


def signed_in(status):
    return statuses(set(PERSONAS) - {ANONYMOUS}, status)


def page(*args, found=200):
    return Line(args=args, get=statuses(MAY_VIEW, found))


def act(action, *args, status=303, **data):
    """An operator act: no GET, the permission decides, one audit row."""
    return Line(args=args, get=signed_in(405), post=statuses(groups_with(action), status), data=data, is_act=True)


def asked(action, found=200, query="", **data):
    """An operator act whose GET asks before it: everybody who sees pages may read the question."""
    post = statuses(groups_with(action), 303)
    return Line(query=query, get=statuses(MAY_VIEW, found), post=post, data=data, is_act=True)


def on_no_group(**data):
    """An act on a failure group that is not there: everybody is told so, and only some may ask for it."""
    post = statuses(groups_with(Action.TRIAGE_GROUPS), 409)
    return Line(args=(7,), get=statuses(MAY_VIEW, 409), post=post, data={"seen": "0", **data})


def held_replay(status, *, get=405, **data):
    """An act on a replay that is not there: those who may are told so, and nothing is audited."""
    asked = signed_in(405) if get == 405 else statuses(MAY_VIEW, get)
    post = statuses(groups_with(Action.REPLAY_DEAD_LETTERS), status)
    return Line(args=(uuid.UUID(int=7),), get=asked, post=post, data=data)


TOPIC = facade.declare_topic(TopicSpec(name="urls-topic")).name
WHY = "the broker is being moved"
SETS_POLICIES = statuses(groups_with(Action.SET_RETRY_POLICY), 303)
A_POLICY = {
    "max_attempts": "4",
    "unknown_attempts": "2",
    "base_s": "5",
    "factor": "2",
    "max_s": "60",
    "jitter": "0.2",
    "retry_after_max_s": "60",
    "ordering": "block",
    "overrides": "",
    "seen": "0",
    "reason": WHY,
}

TABLE = {
    "now": page(),
    "relay": page(),
    "lag": page(),
    "lag_history_data": Line(query="?group=claim-workers&topic=claims", get=statuses(MAY_VIEW, 404)),
    "rewind": Line(query="?group=claim-workers", get=statuses(MAY_VIEW, 200)),
    "rewind_apply": Line(
        get=signed_in(405), post=statuses(groups_with(Action.REWIND_GROUP), 422), data={"token": "x", "reason": "r"}
    ),
    "data_loss": page(7, found=404),
    "data_loss_settle": Line(
        args=(7,),
        get=signed_in(405),
        post=statuses(groups_with(Action.SETTLE_DATA_LOSS), 409),
        data={"choice": "first", "seen": "", "reason": "r"},
    ),
    "group_stop": Line(
        get=signed_in(405),
        post=statuses(groups_with(Action.SWITCH_GROUP), 422),
        data={"group": "nobody", "reason": "r"},
    ),
    "group_start": Line(
        get=signed_in(405), post=statuses(groups_with(Action.SWITCH_GROUP), 422), data={"group": "nobody"}
    ),
    "lag_history": Line(query="?group=claim-workers", get=statuses(MAY_VIEW, 404)),
    "dead_letters": page(),
    "dead_letter": page(uuid.UUID(int=7), found=404),
    "dead_letters_discard": Line(
        get=signed_in(405), post=statuses(groups_with(Action.DISCARD_DEAD_LETTERS), 422), data={"ids": []}
    ),
    "dead_letters_discard_ask": Line(
        args=(uuid.UUID(int=7),),
        get=statuses(MAY_VIEW, 409),
        post=statuses(groups_with(Action.DISCARD_DEAD_LETTERS), 409),
        data={"reason": WHY},
    ),
    "dead_letter_restore": Line(
        args=(uuid.UUID(int=7),),
        get=statuses(MAY_VIEW, 409),
        post=statuses(groups_with(Action.DISCARD_DEAD_LETTERS), 409),
        data={"reason": WHY},
    ),
    "failure_groups": page(),
    "failure_group": page(7, found=404),
    "failure_group_describe": Line(
        args=(7,), get=signed_in(405), post=statuses(groups_with(Action.TRIAGE_GROUPS), 409), data={"seen": "0"}
    ),
    "failure_group_snooze": on_no_group(**{"for": "3600"}),
    "failure_group_fixed": on_no_group(fixed_in="2.0"),
    "failure_group_reopen": on_no_group(),
    "failure_group_merge": on_no_group(into="G-8"),
    "failure_group_split": Line(
        args=(7,),
        query="?part=8",
        get=statuses(MAY_VIEW, 409),
        post=statuses(groups_with(Action.TRIAGE_GROUPS), 409),
        data={"seen": "0", "part": "8"},
    ),
    "policies": page(),
    "policy": page("consumer"),
    "policy_errors": page(),
    "policy_edit": Line(
        args=("consumer",), get=statuses(MAY_VIEW, 200), post=SETS_POLICIES, data=A_POLICY, is_act=True
    ),
    "policy_withdraw": asked(
        Action.SET_RETRY_POLICY, query="?scope=consumer", found=409, scope="consumer", seen="1", reason=WHY
    ),
    "policy_roll_back": asked(
        Action.SET_RETRY_POLICY,
        query="?scope=consumer&version=1",
        found=422,
        scope="consumer",
        version="1",
        seen="2",
        reason=WHY,
    ),
    "replay_preview": Line(get=signed_in(405), post=statuses(groups_with(Action.REPLAY_DEAD_LETTERS), 422)),
    "replay_preview_page": page(uuid.UUID(int=7), found=404),
    "replay_start": held_replay(404),
    "replays": page(),
    "replay": page(uuid.UUID(int=7), found=404),
    "replay_pause": held_replay(409, seen="1"),
    "replay_resume": held_replay(409, seen="1"),
    "replay_cancel": held_replay(409, get=409, seen="1", reason="r"),
    "replay_rate": held_replay(409, get=409, seen="1", rate_per_s="5"),
    "replay_failed": held_replay(409),
    "second_request": page(7, found=404),
    "second_confirm": Line(args=(7,), get=signed_in(405), post=statuses(MAY_VIEW, 404)),
    "second_refuse": Line(args=(7,), get=signed_in(405), post=statuses(MAY_VIEW, 404), data={"reason": "r"}),
    "second_withdraw": Line(args=(7,), get=signed_in(405), post=statuses(MAY_VIEW, 404)),
    "quarantined": page(),
    "key_release": Line(
        query="?key=00000000-0000-0000-0000-000000000007",
        get=statuses(MAY_VIEW, 409),
        post=statuses(groups_with(Action.RELEASE_KEY), 409),
        data={"key": "00000000-0000-0000-0000-000000000007", "reason": "r"},
    ),
    "breaker_close": Line(
        query="?group=g&handler=h",
        get=statuses(MAY_VIEW, 409),
        post=statuses(groups_with(Action.CLOSE_BREAKER), 409),
        data={"group": "g", "handler": "h", "seen": "1", "reason": "r"},
    ),
    "system": page(),
    "audit": page(),
    "runbook": page("relay-silent"),
    "permissions": Line(get=signed_in(200)),
    "incident_acknowledge": act(Action.ACKNOWLEDGE_INCIDENT, "INCIDENT"),
    "relay_history": page(),
    "relay_history_data": page(),
    "relay_waiting": page(),
    "relay_find": Line(query="?event=9000000000000000", get=statuses(MAY_VIEW, 404)),
    "relay_event": page(uuid.UUID(int=7), found=404),
    "relay_pause": asked(Action.PAUSE_RELAY, reason=WHY),
    "relay_resume": asked(Action.RESUME_RELAY, found=409),
    "relay_topic_pause": asked(Action.PAUSE_TOPIC, query=f"?topic={TOPIC}", topic=TOPIC, reason=WHY),
    "relay_topic_resume": asked(Action.PAUSE_TOPIC, found=409, query=f"?topic={TOPIC}", topic=TOPIC),
    "relay_topic_retry": asked(Action.RETRY_ROWS, found=409, query=f"?topic={TOPIC}", topic=TOPIC),
    "relay_key_pause": asked(Action.PAUSE_TOPIC, topic=TOPIC, key="k", reason=WHY),
    "relay_key_resume": asked(
        Action.PAUSE_TOPIC, found=409, query=f"?topic={TOPIC}&key_label=x", topic=TOPIC, key_label="LABEL"
    ),
    "relay_key_retry": asked(Action.RETRY_ROWS, found=422, position="POSITION"),
    "relay_row_skip": asked(Action.SKIP_ROW, found=422, position="POSITION", reason=WHY),
    "lag_allowed": act(Action.SET_ALLOWED_LAG, group="claim-workers", topic="claims", seen="50", value="75"),
    "healthz": Line(get=everyone(200)),
    "readyz": Line(get=everyone(200)),
    "login": Line(get={**signed_in(302), ANONYMOUS: 200}, post={**signed_in(302), ANONYMOUS: 422}),
    "logout": Line(get=signed_in(405), post=everyone(302)),
    "look": Line(get=everyone(405), post=everyone(302)),
}


def urls():
    """Those of the API have a table of their own: test_api_urls.py."""
    found = {p.name: p for p in get_resolver().url_patterns if isinstance(p, URLPattern)}
    return {name: p for name, p in found.items() if not name.startswith("api_")}


def test_every_url_has_a_name_and_a_line():
    assert all(isinstance(p, URLPattern) for p in get_resolver().url_patterns), "an include() hides URLs from this test"
    assert set(urls()) == set(TABLE)


@contextmanager
def undone():
    """Undo what happens inside, so that each persona meets the same state."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def client_of():
    sync_roles()

    def make(persona):
        client = Client()
        if persona != ANONYMOUS:
            person = User.objects.create_user(f"p-{persona}")
            if persona != STRANGER:
                person.groups.add(Group.objects.get(name=persona))
            client.force_login(person)
        return client

    return make


@pytest.fixture(autouse=True)
def known_group(monkeypatch):
    """The group that `lag_allowed` is about, as if a pass had found it."""
    know_group(monkeypatch, "claim-workers")


def address(name, line):
    facade.open_incident(IncidentKind.BEAT_SILENT, "beat", title="Beat is silent", meaning="m", action="a")
    (incident, *_) = facade.list_open_incidents()
    return reverse(name, args=[incident.id if arg == "INCIDENT" else arg for arg in line.args])


def prepared(name, line):
    """Bring about what an act needs, and name it in what is posted."""
    data = dict(line.data)
    if name == "relay_resume":
        facade.pause_relay(actor="somebody", reason="a test")
    if name == "relay_topic_resume":
        facade.pause_topic(TOPIC, actor="somebody", reason="a test")
    if name == "relay_key_resume":
        facade.pause_key(TOPIC, b"k", actor="somebody", reason="a test")
        data["key_label"] = facade.label_key(b"k")
    if name in {"policy_withdraw", "policy_roll_back"}:
        for version in range(1 if name == "policy_withdraw" else 2):
            document = dlq.get_retry_policy(dlq.PolicyTarget()).policy.as_json() | {"max_attempts": 5 + version}
            dlq.set_retry_policy(
                dlq.PolicyTarget(), document, expected_version=version, actor="somebody", reason="a test"
            )
    if name in {"relay_topic_retry", "relay_key_retry", "relay_row_skip"}:
        event = facade.publish(TOPIC, key="k", type="t", payload=1)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO relay_deferred (shard, position, topic, key, event_id, failed)"
                " SELECT shard, position, topic, key, id, true FROM relay_outbox WHERE id = %s",
                [event.id],
            )
        data["position"] = event.position
    return data


@pytest.mark.parametrize("name", sorted(TABLE))
def test_get_answers_as_the_table_says(client_of, name):
    line = TABLE[name]
    url = address(name, line) + line.query
    found = {persona: client_of(persona).get(url).status_code for persona in PERSONAS}
    assert found == line.get
    assert AuditEntry.objects.count() == 0


@pytest.mark.parametrize("name", sorted(n for n, line in TABLE.items() if line.post is None))
def test_a_page_takes_no_post(client_of, name):
    line = TABLE[name]
    found = {persona: client_of(persona).post(address(name, line)).status_code for persona in PERSONAS}
    assert set(found.values()) <= {405, 302, 403}
    assert found["admin"] == 405
    assert AuditEntry.objects.count() == 0


@pytest.mark.parametrize("name", sorted(n for n, line in TABLE.items() if line.post is not None))
def test_a_post_is_permitted_as_the_table_says_and_audited_once(client_of, name):
    line = TABLE[name]
    found, audited = {}, {}
    for persona in PERSONAS:
        client = client_of(persona)
        with undone():
            data = prepared(name, line)
            found[persona] = client.post(address(name, line), data).status_code
            audited[persona] = list(AuditEntry.objects.values_list("actor_name", flat=True))
    assert found == line.post
    done = {persona for persona, status in line.post.items() if line.is_act and status == 303}
    assert audited == {persona: [f"p-{persona}"] if persona in done else [] for persona in PERSONAS}


@pytest.mark.parametrize("name", sorted(n for n, line in TABLE.items() if line.post is not None))
def test_a_post_without_the_form_token_changes_nothing(client_of, name):
    line = TABLE[name]
    strict = client_of("admin")
    strict.handler.enforce_csrf_checks = True
    assert strict.post(address(name, line), line.data).status_code == 403
    assert AuditEntry.objects.count() == 0


def test_every_action_is_used_by_a_page_or_an_act():
    used = {
        Action.PAUSE_TOPIC,
        Action.RETRY_ROWS,
        Action.SKIP_ROW,
        Action.SET_RELAY_POLICY,
        Action.VIEW,
        Action.ACKNOWLEDGE_INCIDENT,
        Action.PAUSE_RELAY,
        Action.RESUME_RELAY,
        Action.SET_ALLOWED_LAG,
        Action.REWIND_GROUP,
        Action.SWITCH_GROUP,
        Action.SETTLE_DATA_LOSS,
        Action.REPLAY_DEAD_LETTERS,
        Action.RELEASE_KEY,
        Action.DISCARD_DEAD_LETTERS,
        Action.TRIAGE_GROUPS,
        Action.CLOSE_BREAKER,
        Action.MANAGE_API_TOKENS,
        Action.SET_RETRY_POLICY,
    }
    assert used == set(Action)
