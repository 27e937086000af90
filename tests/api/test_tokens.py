"""Tokens of the API: what they open, when they end, and that nobody can read one back."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.test import Client

from console.actions.base import ActDenied, BadInput, StaleAct
from console.actions.tokens import make_api_token, revoke_api_token
from console.models import ApiToken, AuditAction, AuditEntry

pytestmark = pytest.mark.django_db
LIST = "/api/v1/dead-letters/"


@pytest.fixture
def admin(make_person):
    return make_person("ada", "admin")


@pytest.fixture
def made(admin, make_person):
    make_person("ron", "on-call")
    return make_api_token(admin, person="ron", name="pager", actions=["view_console"], days=3)


def get(secret, url=LIST):
    return Client().get(url, HTTP_AUTHORIZATION=f"Bearer {secret}")


def test_a_token_opens_what_it_was_made_for_and_is_stored_by_its_digest(made):
    assert get(made.secret).status_code == 200
    row = ApiToken.objects.get()
    assert row.used_at is not None
    assert made.secret.split("_")[2] not in str(row.__dict__)


def test_making_a_token_is_audited_without_its_secret(made):
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_name) == (AuditAction.API_TOKEN_MADE, "ada")
    assert entry.detail == {"person": "ron", "name": "pager", "actions": ["view_console"], "days": 3}
    assert made.secret not in str(entry.__dict__)


@pytest.mark.parametrize("secret", ["", "sbx_", "sbx_00000000_" + "a" * 43, "a b", "é"])
def test_a_token_that_is_not_one_is_refused_even_beside_a_session(secret, as_role):
    client = as_role("admin")
    answer = client.get(LIST, HTTP_AUTHORIZATION=f"Bearer {secret}")
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == "Bearer"
    assert answer["Content-Type"] == "application/problem+json"


def test_an_expired_token_opens_nothing(made):
    ApiToken.objects.update(expires_at=Now())
    assert get(made.secret).status_code == 401


def test_a_revoked_token_opens_nothing_and_is_revoked_once(made, admin):
    revoke_api_token(admin, made.row.prefix)
    assert get(made.secret).status_code == 401
    with pytest.raises(StaleAct):
        revoke_api_token(admin, made.row.prefix)


def test_a_token_dies_with_the_account(made):
    person = made.row.person
    person.is_active = False
    person.save()
    assert get(made.secret).status_code == 401


def test_a_token_does_not_outgrow_its_person(made):
    made.row.person.groups.clear()
    assert get(made.secret).status_code == 403


def test_only_admins_make_tokens(made):
    with pytest.raises(ActDenied):
        make_api_token(made.row.person, person="ron", name="x", actions=["view_console"], days=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"person": "nobody"},
        {"name": " "},
        {"name": "x" * 81},
        {"actions": ["everything"]},
        {"days": 0},
        {"days": 9_999},
    ],
)
def test_a_token_that_cannot_be_is_not_made(admin, make_person, wrong):
    make_person("ron", "on-call")
    with pytest.raises(BadInput):
        make_api_token(admin, **{"person": "ron", "name": "n", "actions": ["view_console"], "days": 1, **wrong})
    assert not ApiToken.objects.exists()


def test_use_is_noted_once_in_a_while(made):
    get(made.secret)
    first = ApiToken.objects.get().used_at
    get(made.secret)
    assert ApiToken.objects.get().used_at == first
    ApiToken.objects.update(used_at=Now() - timedelta(hours=1))
    get(made.secret)
    assert ApiToken.objects.get().used_at > first - timedelta(minutes=1)
