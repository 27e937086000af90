"""Commands on dead letters and replays: the same acts as the pages, for an account with its permissions."""

import json
from io import StringIO
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command

from console.models import ApiToken, AuditAction, AuditEntry
from console.roles import sync_roles
from console.tokens import find_person
from dlq.facade import list_quarantined, list_replays

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def people(db):
    sync_roles()
    for name, role in (("ron", "on-call"), ("ada", "admin"), ("vic", "viewer")):
        User.objects.create_user(name).groups.set(Group.objects.filter(name=role))


def run(*words):
    out = StringIO()
    call_command(*(str(word) for word in words), stdout=out, stderr=StringIO())
    return out.getvalue()


def refused(*words):
    with pytest.raises(CommandError) as error:
        run(*words)
    return error.value.returncode, str(error.value)


def preview_of(shop):
    return json.loads(run("dead_letters", "preview", "--group", shop.group, "--actor", "ron", "--json"))["id"]


def test_the_list_names_what_is_parked_and_hides_contents(shop):
    shop.park_many(range(3))
    words = run("dead_letters", "list", "--group", shop.group, "--limit", 2)
    assert words.count("parked") == 2
    cursor = words.rsplit("--cursor ", 1)[1].strip()
    assert run("dead_letters", "list", "--group", shop.group, "--cursor", cursor).count("parked") == 1
    letter = shop.letters()[0]
    assert '"n": 0' not in run("dead_letters", "show", letter.pk)


def test_a_preview_is_started_once_and_audited(shop):
    shop.park_many(range(2))
    words = run("dead_letters", "preview", "--group", shop.group, "--actor", "ron", "--rate", 50)
    assert "2  can be replayed" in words
    found = words.split()[1]
    assert "2 dead letters (waiting for a consumer" in run("dead_letters", "replay", found, "--actor", "ron")
    assert refused("dead_letters", "replay", found, "--actor", "ron")[0] == 4
    assert AuditEntry.objects.get().action == AuditAction.REPLAY_STARTED


@pytest.mark.parametrize(("actor", "code"), [("vic", 3), ("nobody", 2)])
def test_the_actors_permissions_decide(shop, actor, code):
    shop.park(1)
    assert refused("dead_letters", "preview", "--group", shop.group, "--actor", actor)[0] == code
    assert not AuditEntry.objects.exists()


def test_everything_is_not_meant_by_saying_nothing(shop):
    assert "Name dead letters" in refused("dead_letters", "preview", "--actor", "ron")[1]
    assert refused("dead_letters", "preview", uuid4(), "--group", "g", "--actor", "ron")[0] == 2


@pytest.mark.parametrize("words", [("list", "--since", "soon"), ("list", "--cursor", "x"), ("show", uuid4())])
def test_what_cannot_be_meant_ends_with_a_code(words):
    assert refused("dead_letters", *words)[0] in {2, 4}


def test_a_job_is_watched_and_held(shop):
    shop.park_many(range(2))
    run("dead_letters", "replay", preview_of(shop), "--actor", "ron")
    job = list_replays().jobs[0]
    assert "waiting" in run("replay_job", "show", job.id)
    assert "paused" in run("replay_job", "pause", job.id, "--actor", "ron")
    assert refused("replay_job", "resume", job.id, "--actor", "ron", "--seen", job.version)[0] == 4
    assert "waiting" in run("replay_job", "resume", job.id, "--actor", "ron")
    run("replay_job", "rate", job.id, 5, "--actor", "ron")
    assert json.loads(run("replay_job", "show", job.id, "--json"))["rate_per_s"] == 5
    run("replay_job", "rate", job.id, "max", "--actor", "ron")
    assert refused("replay_job", "cancel", job.id, "--actor", "vic", "--reason", "r")[0] == 3
    assert refused("replay_job", "cancel", job.id, "--actor", "ron")[0] == 2
    assert "cancelled" in run("replay_job", "cancel", job.id, "--actor", "ron", "--reason", "r")
    assert run("replay_job", "items", job.id).count("skipped") == 2
    assert str(job.id) in run("replay_job", "list")
    assert refused("replay_job", "show", uuid4())[0] == 4


def test_too_many_ask_for_a_second_person(shop, settings):
    settings.DLQ_SECOND_PERSON_ABOVE = 1
    shop.park_many(range(2))
    words = run("dead_letters", "replay", preview_of(shop), "--actor", "ron", "--reason", "mended")
    assert "nothing is replayed yet" in words
    assert not list_replays().jobs


def test_a_selection_is_discarded_and_one_of_it_restored(shop):
    letter = shop.park(1)
    found = preview_of(shop)
    assert refused("dead_letters", "discard", found, "--actor", "vic", "--reason", "r")[0] == 3
    assert "1 discarded" in run("dead_letters", "discard", found, "--actor", "ron", "--reason", "sent by hand")
    assert run("dead_letters", "list", "--group", shop.group).strip() == "None."
    assert "parked again" in run("dead_letters", "restore", letter, "--actor", "ron", "--reason", "not sent")
    assert refused("dead_letters", "restore", letter, "--actor", "ron", "--reason", "r")[0] == 4


def test_a_quarantined_key_is_released(shop):
    shop.park(1)
    (key,) = list_quarantined().keys
    assert key.key_label in run("dead_letters", "keys", "--group", shop.group)
    assert "replay" in run("dead_letters", "release", key.id, "--actor", "ron", "--reason", "mended")
    assert AuditEntry.objects.get().action == AuditAction.KEY_RELEASED


def test_a_token_is_made_printed_once_listed_and_revoked():
    secret = run("api_token", "create", "ron", "--name", "pager", "--action", "view_console", "--actor", "ada").strip()
    assert find_person(secret).get_username() == "ron"
    prefix = ApiToken.objects.get().prefix
    listed = run("api_token", "list")
    assert prefix in listed
    assert secret not in listed
    run("api_token", "revoke", prefix, "--actor", "ada")
    assert find_person(secret) is None
    assert "revoked" in run("api_token", "list")


def test_only_who_may_makes_tokens():
    words = ("api_token", "create", "ron", "--name", "n", "--action", "view_console", "--actor", "ron")
    assert refused(*words)[0] == 3
