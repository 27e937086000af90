"""Policies from the command line: the same acts as the pages, for an account with its permissions."""

import json
from io import StringIO
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command

from console.models import AuditEntry
from console.roles import sync_roles
from dlq.facade import PolicyTarget, get_retry_policy
from relay.facade import declare_topic, get_relay_policy
from relay.types import TopicSpec

pytestmark = pytest.mark.django_db

WHY = ("--actor", "ada", "--reason", "the bank is slow")


@pytest.fixture(autouse=True)
def people(db):
    sync_roles()
    for name, role in (("ron", "on-call"), ("ada", "admin")):
        User.objects.create_user(name).groups.set(Group.objects.filter(name=role))


@pytest.fixture
def group():
    return f"group-{uuid4().hex[:10]}"


def run(*words):
    out = StringIO()
    call_command("policy", *(str(word) for word in words), stdout=out, stderr=StringIO())
    return out.getvalue()


def refused(*words):
    with pytest.raises(CommandError) as error:
        run(*words)
    return error.value.returncode, str(error.value)


def test_a_policy_is_set_shown_rolled_back_and_withdrawn(group, tmp_path):
    said = run("set", group, "--value", "max_attempts=4", "--value", 'overrides={"KeyError": "transient"}', *WHY)
    assert "Attempts: 10 -> 4" in said
    assert "Version 1 is in force" in said
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(json.loads(run("show", group, "--json")) | {"ordering": "block"}))
    assert "Version 2 is in force" in run("set", group, "--document", file, *WHY)
    assert get_retry_policy(PolicyTarget(group)).policy.overrides == {"KeyError": "transient"}
    assert "block: its key waits" in run("show", group)
    assert f"{group}  4 attempts, block  its own, version 2" in run("list")
    assert "as version 3" in run("rollback", group, "--to", 1, *WHY)
    assert "the settings' values counts" in run("withdraw", group, *WHY)
    actions = list(AuditEntry.objects.order_by("id").values_list("action", "actor_name", "reason"))
    assert actions == [
        (action, "ada", "the bank is slow")
        for action in ("policy.set", "policy.set", "policy.rolled_back", "policy.withdrawn")
    ]


def test_a_simulation_says_its_headline_and_its_limits(group):
    said = run("simulate", group, "--value", "max_attempts=20", "--days", 3)
    assert "No record that this policy would count for has failed and ended in the last 3" in said
    assert "- That a failure was over is read from" in said


def test_a_topic_of_the_relay_has_the_same_command():
    topic = declare_topic(TopicSpec(name=f"policies-{uuid4().hex[:10]}")).name
    run("set", topic, "--scope", "relay-topic", "--value", "max_attempts=3", "--value", "on_failed=park", *WHY)
    assert (get_relay_policy(topic).max_attempts, get_relay_policy(topic).on_failed) == (3, "park")
    assert "park: it becomes a dead letter" in run("show", topic, "--scope", "relay-topic")
    assert refused("simulate", topic, "--scope", "relay-topic", "--value", "max_attempts=3")[0] == 2
    assert refused("withdraw", topic, "--scope", "relay-topic", *WHY)[0] == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("set", "G", "--value", "max_attempts=0", *WHY), 2),
        (("set", "G", "--value", "max_attempts", *WHY), 2),
        (("set", "G", "--value", "colour=red", *WHY), 2),
        (("set", "G", "--document", "/no/such/file", *WHY), 2),
        (("set", "G", *WHY), 2),
        (("set", "G", "--value", "max_attempts=3", "--seen", "7", *WHY), 4),
        (("set", "G", "--value", "max_attempts=3", "--actor", "ron", "--reason", "x"), 3),
        (("set", "G", "--value", "max_attempts=3", "--actor", "nobody", "--reason", "x"), 2),
        (("set", "G", "--value", "max_attempts=3", "--actor", "ada", "--reason", " "), 2),
        (("set", "a//b", "--value", "max_attempts=3", *WHY), 2),
        (("rollback", "G", "--to", "5", *WHY), 2),
        (("withdraw", "G", *WHY), 2),
        (("simulate", "G", "--value", "max_attempts=3", "--days", "99"), 2),
        (("show", "no-such-topic", "--scope", "relay-topic"), 2),
    ],
)
def test_what_cannot_be_is_refused_with_a_code_and_changes_nothing(group, words, code):
    found, text = refused(*(group if word == "G" else word for word in words))
    assert found == code
    assert len(text) > 10
    assert get_retry_policy(PolicyTarget(group)).own_version == 0
    assert AuditEntry.objects.count() == 0
