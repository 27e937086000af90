"""Acts on the relay: check -> service -> audit, in one transaction."""

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db import transaction

from console.actions.base import StaleAct, require, require_reason, take_turn
from console.audit import record_act
from console.models import AuditAction
from console.permissions import Action
from relay import facade

Actor = User | AbstractBaseUser | AnonymousUser


@transaction.atomic
def pause_relay(actor: Actor, *, reason: str) -> None:
    """Stop publishing until somebody resumes; rows wait and lose nothing.

    Raises:
        ActDenied, BadInput (no reason), StaleAct (it is paused already).
    """
    person = require(actor, Action.PAUSE_RELAY)
    reason = require_reason(reason)
    take_turn("relay")
    status = facade.get_relay_status()
    if status.paused_by is not None:
        raise StaleAct(f"The relay is paused already, by {status.paused_by}: {status.paused_reason}")
    facade.pause_relay(actor=person.get_username(), reason=reason)
    record_act(person, AuditAction.RELAY_PAUSED, kind="relay", object_id="relay", reason=reason)


@transaction.atomic
def resume_relay(actor: Actor) -> None:
    """Publish again.

    Raises:
        ActDenied, StaleAct (it is not paused).
    """
    person = require(actor, Action.RESUME_RELAY)
    take_turn("relay")
    status = facade.get_relay_status()
    if status.paused_by is None:
        raise StaleAct("The relay is not paused: somebody has resumed it already.")
    facade.resume_relay(actor=person.get_username())
    record_act(person, AuditAction.RELAY_RESUMED, kind="relay", object_id="relay", paused_by=status.paused_by)
