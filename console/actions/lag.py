"""Acts on consumer groups: check -> service -> audit, in one transaction."""

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from console.actions.base import Actor, BadInput, StaleAct, require, require_reason, take_turn
from console.audit import record_act
from console.models import AuditAction
from console.permissions import Action
from console.rewind_token import SeenRewind, read_rewind
from console.words import join_words
from dlq import facade as dlq
from dlq.types import LossChoice
from relay import facade
from relay.types import RewindOutcome

FAILED_NAMED = 20


@transaction.atomic
def set_allowed_lag(actor: Actor, group: str, value: int, *, seen: int | None = None) -> None:
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


def rewind_group(actor: Actor, token: str, *, reason: str) -> list[RewindOutcome]:
    """Do the rewind of a preview, when nothing has changed since; what became of each partition.

    Kafka takes no part in a transaction, so the audit row is committed first: a crash afterwards leaves an order
    without an outcome, never an outcome without an order. What did not succeed gets a second row.

    Raises:
        ActDenied, BadInput (the reason or the token), StaleAct (the group has members, or stands elsewhere by now),
        RewindUnavailable (it cannot be told what is committed).
    """
    person = require(actor, Action.REWIND_GROUP)
    reason = require_reason(reason)
    seen = read_rewind(token)
    _require_unchanged(seen)
    with transaction.atomic():
        _record_rewind(person, AuditAction.GROUP_REWOUND, seen, reason, moves=seen.moves)
    wanted = {partition: after for partition, _, after in seen.moves}
    before = {partition: committed for partition, committed, _ in seen.moves}
    try:
        outcomes = facade.apply_rewind(seen.group, seen.topic, wanted, before)
    except facade.RewindError as error:
        _record_failure(person, seen, reason, error=str(error)[: settings.LAG_ERROR_CHARS])
        if isinstance(error, facade.GroupActive):
            raise StaleAct(str(error)) from error
        raise
    failed = [(o.partition, o.now, o.error[:60]) for o in outcomes if not o.ok]
    if failed:
        _record_failure(person, seen, reason, failed=failed[:FAILED_NAMED], failed_in_all=len(failed))
    return outcomes


@transaction.atomic
def stop_group(actor: Actor, group: str, *, reason: str) -> None:
    """Let the consumers of a group of Signalbox finish what runs, leave the group and wait.

    Raises:
        ActDenied, BadInput (the reason, or the group is not of Signalbox), StaleAct (it is stopped already).
    """
    person = require(actor, Action.SWITCH_GROUP)
    reason = require_reason(reason)
    try:
        dlq.stop_group(group, actor=person.get_username(), reason=reason)
    except dlq.UnknownGroup as unknown:
        raise BadInput("group", str(unknown)) from unknown
    except dlq.AlreadyStopped as stale:
        raise StaleAct(str(stale)) from stale
    record_act(person, AuditAction.GROUP_STOPPED, kind="group", object_id=group, reason=reason)


@transaction.atomic
def start_group(actor: Actor, group: str) -> None:
    """Let the consumers of a stopped group join it again.

    Raises:
        ActDenied, BadInput (the group is not of Signalbox), StaleAct (it is not stopped).
    """
    person = require(actor, Action.SWITCH_GROUP)
    try:
        dlq.start_group(group, actor=person.get_username())
    except dlq.UnknownGroup as unknown:
        raise BadInput("group", str(unknown)) from unknown
    except dlq.NotStopped as stale:
        raise StaleAct(str(stale)) from stale
    record_act(person, AuditAction.GROUP_STARTED, kind="group", object_id=group)


@transaction.atomic
def settle_data_loss(
    actor: Actor,
    loss_id: int,
    choice: str,
    *,
    seen: str,
    reason: str,
    offset: int | None = None,
) -> None:
    """Choose where a group goes on after records were lost to it. `seen`: the choice that the person's page showed.

    `offset` goes with the choice of an offset, and only with it.

    Raises:
        ActDenied, BadInput (the reason or the choice), StaleAct (it is settled, or somebody chose meanwhile).
    """
    person = require(actor, Action.SETTLE_DATA_LOSS)
    reason = require_reason(reason)
    if choice not in set(LossChoice) - {LossChoice.NONE} or seen not in set(LossChoice):
        raise BadInput("choice", "Choose where the group goes on.")
    loss = dlq.get_loss(loss_id)
    if loss is None:
        raise StaleAct("There is no such loss (any more).")
    try:
        dlq.choose_after_loss(
            loss_id,
            LossChoice(choice),
            seen=LossChoice(seen),
            actor=person.get_username(),
            reason=reason,
            offset=offset,
        )
    except dlq.BadLossChoice as bad:
        raise BadInput("offset", str(bad)) from bad
    except dlq.StaleLoss as stale:
        raise StaleAct(str(stale)) from stale
    record_act(
        person,
        AuditAction.DATA_LOSS_SETTLED,
        kind="group",
        object_id=loss.group,
        reason=reason,
        partition=str(loss.place),
        lost=[loss.first_lost, loss.first_kept],
        choice=choice,
        offset=offset,
    )


def _require_unchanged(seen: SeenRewind) -> None:
    who = facade.read_group_members(seen.group)
    if who.members:
        names = join_words([name for name, _ in who.members[:FAILED_NAMED]])
        raise StaleAct(f"{seen.group} has members again: {names}. Stop them, then preview the rewind again.")
    now = facade.read_committed(seen.group, seen.topic, [partition for partition, _, _ in seen.moves])
    changed = [
        f"partition {partition} stands at {_offset(now[partition][0])} now, not at {_offset(before)}"
        for partition, before, _ in seen.moves
        if now[partition][0] != before
    ]
    changed += [
        f"partition {partition} begins at {_offset(now[partition][1])} now, after {after:,}"
        for partition, _, after in seen.moves
        if (now[partition][1] or 0) > after
    ]
    if changed:
        raise StaleAct(f"{join_words(changed[:FAILED_NAMED])}. Nothing was moved; preview the rewind again.")


def _offset(value: int | None) -> str:
    return "no offset" if value is None else f"{value:,}"


def _record_failure(person: User, seen: SeenRewind, reason: str, **detail: object) -> None:
    with transaction.atomic():
        _record_rewind(person, AuditAction.GROUP_REWIND_FAILED, seen, reason, **detail)


def _record_rewind(person: User, action: AuditAction, seen: SeenRewind, reason: str, **detail: object) -> None:
    record_act(
        person,
        action,
        kind="group",
        object_id=seen.group,
        reason=reason,
        topic=seen.topic,
        strategy=seen.words,
        **detail,
    )
