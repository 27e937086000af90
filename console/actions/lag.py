"""Acts on consumer groups: check -> service -> audit, in one transaction."""

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db import transaction

from console.actions.base import BadInput, StaleAct, require, take_turn
from console.audit import record_act
from console.models import AuditAction
from console.permissions import Action
from relay import facade


@transaction.atomic
def set_allowed_lag(
    actor: User | AbstractBaseUser | AnonymousUser, group: str, value: int, *, seen: int | None = None
) -> None:
    """Set how many offsets a partition of `group` may lag behind and still be called ok.

    `seen` is the value that the person's form showed; None = the act does not depend on it.

    Raises:
        ActDenied, BadInput (out of range), StaleAct (no pass found such a group, or the value is no longer `seen`).
    """
    person = require(actor, Action.SET_ALLOWED_LAG)
    if not 0 <= value <= settings.LAG_ALLOWED_MAX:
        raise BadInput("value", f"A whole number from 0 to {settings.LAG_ALLOWED_MAX:,}; this is {value:,}.")
    take_turn(f"lag:{group}")
    if all(known.group != group for known in facade.get_lag_overview().groups):
        raise StaleAct(f"The last pass found no consumer group called {group}, so there is no lag to allow.")
    before = facade.get_allowed_lag(group)
    if seen is not None and before != seen:
        raise StaleAct(f"The allowed lag of {group} is {before:,} now, not {seen:,}: somebody has set it.")
    facade.set_allowed_lag(group, value, actor=person.get_username())
    record_act(person, AuditAction.LAG_ALLOWED_SET, kind="group", object_id=group, before=before, after=value)
