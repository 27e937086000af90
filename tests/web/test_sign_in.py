import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.web.conftest import PASSWORD

pytestmark = pytest.mark.django_db


def sign_in(client, name, password, **extra):
    return client.post("/sign-in/", {"username": name, "password": password}, **extra)


def look_of(page):
    return tuple(re.search(rf'data-{name}="(\w+)"', page.text)[1] for name in ("theme", "density"))


def test_an_anonymous_visitor_is_sent_to_sign_in_and_back(client, make_person):
    make_person("v", "viewer")
    sent = client.get("/permissions/")
    assert sent.headers["Location"] == "/sign-in/?next=/permissions/"
    back = client.post(sent.headers["Location"], {"username": "v", "password": PASSWORD, "next": "/permissions/"})
    assert back.headers["Location"] == "/permissions/"


def test_a_wrong_password_says_so_and_keeps_the_name(client, make_person):
    make_person("v", "viewer")
    answer = sign_in(client, "v", "wrong")
    assert answer.status_code == 422
    assert "do not belong together" in answer.text
    assert 'value="v"' in answer.text


def test_after_five_failures_even_the_right_password_waits(client, make_person, settings):
    make_person("v", "viewer")
    for _ in range(settings.SIGN_IN_FAILURES_PER_ACCOUNT):
        assert sign_in(client, "v", "wrong").status_code == 422
    throttled = sign_in(client, "V", PASSWORD)
    assert throttled.status_code == 429
    assert "Wait 5" in throttled.text.replace("\N{NO-BREAK SPACE}", " ") or "Wait 4" in throttled.text
    assert sign_in(client, "v", PASSWORD, REMOTE_ADDR="192.0.2.9").status_code == 302


def test_one_address_cannot_try_many_accounts(client, settings):
    settings.SIGN_IN_FAILURES_PER_ADDRESS = 3
    for n in range(3):
        assert sign_in(client, f"someone-{n}", "x").status_code == 422
    assert sign_in(client, "someone-else", "x").status_code == 429


def test_the_window_ends(client, make_person, settings):
    make_person("v", "viewer")
    settings.SIGN_IN_FAILURES_PER_ACCOUNT = 1
    assert sign_in(client, "v", "wrong").status_code == 422
    assert sign_in(client, "v", PASSWORD).status_code == 429
    settings.SIGN_IN_WINDOW_S = 0
    assert sign_in(client, "v", PASSWORD).status_code == 302


def test_signing_in_clears_the_failures_of_the_account(client, make_person, settings):
    make_person("v", "viewer")
    settings.SIGN_IN_FAILURES_PER_ACCOUNT = 2
    for _ in range(3):
        sign_in(client, "v", "wrong")
        assert sign_in(client, "v", PASSWORD).status_code == 302
        client.post("/sign-out/")


def test_a_switched_off_account_cannot_sign_in(client, make_person):
    make_person("v", "viewer")
    User.objects.update(is_active=False)
    assert sign_in(client, "v", PASSWORD).status_code == 422


def test_signing_out_needs_a_post(as_role):
    viewer = as_role("viewer")
    assert viewer.get("/sign-out/").status_code == 405
    assert viewer.post("/sign-out/").status_code == 302
    assert viewer.get("/permissions/").status_code == 302


def test_the_look_is_kept_and_an_unknown_word_is_the_default(client):
    answer = client.post("/look/", {"theme": "dark", "density": "roomy", "next": "/sign-in/"})
    assert answer.headers["Location"] == "/sign-in/"
    assert look_of(client.get("/sign-in/")) == ("dark", "roomy")
    client.post("/look/", {"theme": "<b>", "density": ""})
    assert look_of(client.get("/sign-in/")) == ("auto", "dense")


def test_the_look_never_leads_to_another_site(client):
    assert client.post("/look/", {"next": "https://example.org/"}).headers["Location"] == "/"


def test_your_permissions_says_yes_and_no_with_the_reason(as_role):
    text = as_role("support").get("/permissions/").text
    assert "Through the group support." in text
    assert "You are in support; this needs on-call or admin." in text
    assert "in no group" in as_role("stranger").get("/permissions/").text


def test_a_form_without_its_token_is_refused_with_words(make_person):
    strict = Client(enforce_csrf_checks=True)
    answer = strict.post("/look/", {"theme": "dark"})
    assert answer.status_code == 403
    assert "out of date" in answer.text
