"""Acts on failure groups: check -> service -> audit, in one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import User
from django.db import transaction

from console.actions.base import Actor, BadInput, StaleAct, require
from console.audit import record_act
from console.models import AuditAction
from console.permissions import Action
from dlq import facade
from dlq.facade import BadGroupChange, FailureGroup, NoSuchGroup, StaleGroup


def require_group(number: int) -> FailureGroup:
    """The group of this number.

    Raises:
        StaleAct: there is none, or it was merged into another one.
    """
    found = facade.get_failure_group(number)
    if found is not None:
        return found.group
    head = facade.find_group(number)
    raise StaleAct(
        f"There is no failure group G-{number}." if head is None else f"G-{number} was merged into G-{head}."
    )


@transaction.atomic
def describe_group(actor: Actor, number: int, *, name: str, owner: str, note: str, seen: int) -> None:
    """Keep what people call a group, who looks after it and what is known of it.

    Raises:
        ActDenied, BadInput (a text that is too long), StaleAct (it was changed, or is gone).
    """
    person = require(actor, Action.TRIAGE_GROUPS)
    with _refusals():
        facade.describe_group(
            number, name=name, owner=owner, note=note, expected_version=seen, actor=person.get_username()
        )
    _record(person, AuditAction.GROUP_DESCRIBED, number, name=name[:120], owner=owner[:150], note_chars=len(note))


@transaction.atomic
def snooze_group(actor: Actor, number: int, *, for_s: float, seen: int) -> None:
    """Leave a group out of what needs a look for so many seconds.

    Raises:
        ActDenied, BadInput (too short or long), StaleAct.
    """
    person = require(actor, Action.TRIAGE_GROUPS)
    with _refusals():
        facade.snooze_group(number, for_s=for_s, expected_version=seen, actor=person.get_username())
    _record(person, AuditAction.GROUP_SNOOZED, number, for_s=for_s)


@transaction.atomic
def mark_group_fixed(actor: Actor, number: int, *, fixed_in: str, seen: int) -> None:
    """Say in which version the cause of a group is mended.

    Raises:
        ActDenied, BadInput (no version), StaleAct.
    """
    person = require(actor, Action.TRIAGE_GROUPS)
    with _refusals():
        facade.mark_group_fixed(number, fixed_in=fixed_in, expected_version=seen, actor=person.get_username())
    _record(person, AuditAction.GROUP_FIXED, number, fixed_in=fixed_in.strip())


@transaction.atomic
def reopen_group(actor: Actor, number: int, *, seen: int) -> None:
    """Take back that a group is snoozed or fixed.

    Raises:
        ActDenied, StaleAct.
    """
    person = require(actor, Action.TRIAGE_GROUPS)
    with _refusals():
        facade.reopen_group(number, expected_version=seen, actor=person.get_username())
    _record(person, AuditAction.GROUP_REOPENED, number)


@transaction.atomic
def merge_group(actor: Actor, number: int, *, into: int, seen: int) -> None:
    """Make a group part of another one.

    Raises:
        ActDenied, BadInput (no such other group, or too many fingerprints), StaleAct.
    """
    person = require(actor, Action.TRIAGE_GROUPS)
    with _refusals():
        facade.merge_group(number, into=into, expected_version=seen, actor=person.get_username())
    _record(person, AuditAction.GROUP_MERGED, number, into=into)


@transaction.atomic
def split_group(actor: Actor, number: int, *, of: int, seen: int) -> None:
    """Make a fingerprint that was merged into `of` a group of its own again.

    Raises:
        ActDenied, StaleAct.
    """
    person = require(actor, Action.TRIAGE_GROUPS)
    with _refusals():
        facade.split_group(number, of=of, expected_version=seen, actor=person.get_username())
    _record(person, AuditAction.GROUP_SPLIT, number, of=of)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (StaleGroup, NoSuchGroup) as stale:
        raise StaleAct(str(stale)) from stale
    except BadGroupChange as bad:
        raise BadInput(bad.field, str(bad)) from bad


def _record(person: User, action: AuditAction, number: int, **detail: str | float) -> None:
    record_act(person, action, kind="failure group", object_id=f"G-{number}", reason="", **detail)
