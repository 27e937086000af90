"""Personas: people with the groups that `manage.py sync_roles` makes, and one without any."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from console.roles import sync_roles

PASSWORD = "only-for-tests-9"


@pytest.fixture
def make_person(db):
    sync_roles()

    def make(name, *groups):
        person = User.objects.create_user(name, password=PASSWORD)
        person.groups.set(Group.objects.filter(name__in=groups))
        return person

    return make


@pytest.fixture
def as_role(make_person):
    """A signed-in client of a new person in one group ("stranger": in none)."""

    def sign_in(role):
        client = Client()
        person = make_person(f"{role}-person", *([] if role == "stranger" else [role]))
        client.force_login(person)
        client.person = person
        return client

    return sign_in
