"""Acts on tokens of the API: check -> store -> audit, in one transaction."""

from collections.abc import Sequence
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from console.actions.base import Actor, BadInput, StaleAct, require
from console.audit import record_act
from console.models import ApiToken, AuditAction
from console.permissions import Action
from console.tokens import MadeToken, make_token, revoke_token
from console.words import join_words

NAME_CHARS = 80


@transaction.atomic
def make_api_token(actor: Actor, *, person: str, name: str, actions: Sequence[str], days: int) -> MadeToken:
    """Make a token for `person` that may `actions` (codenames), for so many days. Its secret is in the answer only.

    Raises:
        ActDenied, BadInput (nobody is called so, an unknown action, no name, or it would last too long).
    """
    maker = require(actor, Action.MANAGE_API_TOKENS)
    owner = User.objects.filter(username=person, is_active=True).first()
    if owner is None:
        raise BadInput("person", f"Nobody who can sign in is called {person!r}.")
    if not 0 < len(name.strip()) <= NAME_CHARS or not name.isprintable():
        raise BadInput("name", f"Say in 1 to {NAME_CHARS} characters what the token is for.")
    if not 1 <= days <= settings.API_TOKEN_DAYS_MAX:
        raise BadInput("days", f"A token lasts from 1 to {settings.API_TOKEN_DAYS_MAX} days; this is {days}.")
    made = make_token(
        owner,
        name=name.strip(),
        actions=[_action(text) for text in actions],
        lasts=timedelta(days=days),
        made_by=maker.get_username(),
    )
    facts = {"person": owner.get_username(), "name": made.row.name, "actions": made.row.actions, "days": days}
    record_act(maker, AuditAction.API_TOKEN_MADE, kind="token", object_id=made.row.prefix, **facts)
    return made


@transaction.atomic
def revoke_api_token(actor: Actor, prefix: str) -> ApiToken:
    """End a token at once.

    Raises:
        ActDenied, StaleAct (there is no such token, or it is revoked already).
    """
    person = require(actor, Action.MANAGE_API_TOKENS)
    row = revoke_token(prefix)
    if row is None:
        raise StaleAct(f"There is no token {prefix} that still lives.")
    owner = row.person.get_username()
    record_act(person, AuditAction.API_TOKEN_REVOKED, kind="token", object_id=prefix, person=owner, name=row.name)
    return row


def _action(text: str) -> Action:
    try:
        return Action(text)
    except ValueError as error:
        raise BadInput("actions", f"{text!r} is no action. Known: {join_words([a.value for a in Action])}.") from error
