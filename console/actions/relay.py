"""Acts on the relay: check -> service -> audit, in one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import User
from django.db import transaction

from console.actions.base import Actor, BadInput, StaleAct, require, require_reason, take_turn
from console.audit import record_act
from console.models import AuditAction
from console.permissions import Action
from relay import facade
from relay.facade import (
    AlreadyPaused,
    BadKey,
    BadPolicy,
    BadReason,
    NotPaused,
    NotWaiting,
    StalePolicy,
    TooManyPauses,
    UnknownTopic,
)


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


# -- One topic, one key, one row ---------------------------------------------------------------------------
@transaction.atomic
def pause_topic(actor: Actor, topic: str, *, reason: str) -> None:
    """Stop publishing one topic; its rows wait in order and the other topics go on.

    Raises:
        ActDenied, BadInput (no reason, unknown topic), StaleAct (it is paused already).
    """
    person, reason = require(actor, Action.PAUSE_TOPIC), require_reason(reason)
    with _refusals("topic"):
        facade.pause_topic(topic, actor=person.get_username(), reason=reason)
    record_act(person, AuditAction.TOPIC_PAUSED, kind="topic", object_id=topic, reason=reason)


@transaction.atomic
def resume_topic(actor: Actor, topic: str) -> None:
    """Publish a topic again.

    Raises:
        ActDenied, BadInput (unknown topic), StaleAct (it is not paused).
    """
    person = require(actor, Action.PAUSE_TOPIC)
    with _refusals("topic"):
        facade.resume_topic(topic, actor=person.get_username())
    record_act(person, AuditAction.TOPIC_RESUMED, kind="topic", object_id=topic)


@transaction.atomic
def pause_key(actor: Actor, topic: str, key: bytes, *, reason: str) -> None:
    """Stop publishing one key of a topic, also its rows to come.

    Raises:
        ActDenied, BadInput (no reason, unknown topic, a key that cannot be), StaleAct (it is paused already).
    """
    person, reason = require(actor, Action.PAUSE_TOPIC), require_reason(reason)
    with _refusals("key"):
        facade.pause_key(topic, key, actor=person.get_username(), reason=reason)
    _record_key(person, AuditAction.KEY_PAUSED, topic, key, reason=reason)


@transaction.atomic
def resume_key(actor: Actor, topic: str, key: bytes) -> None:
    """Publish a key again.

    Raises:
        ActDenied, BadInput (unknown topic), StaleAct (it is not paused).
    """
    person = require(actor, Action.PAUSE_TOPIC)
    with _refusals("key"):
        facade.resume_key(topic, key, actor=person.get_username())
    _record_key(person, AuditAction.KEY_RESUMED, topic, key)


@transaction.atomic
def retry_key(actor: Actor, topic: str, key: bytes | None) -> int:
    """Try what waits of one key now; how many rows were made due.

    Raises:
        ActDenied, StaleAct (nothing of it waits after a failure).
    """
    person = require(actor, Action.RETRY_ROWS)
    with _refusals("key"):
        due = facade.retry_now(topic, key, actor=person.get_username())
    _record_key(person, AuditAction.KEY_RETRIED, topic, key, rows=due)
    return due


@transaction.atomic
def retry_topic(actor: Actor, topic: str) -> int:
    """Try what waits after a failure on one topic now, key by key; how many rows were made due.

    Raises:
        ActDenied, StaleAct (nothing waits after a failure).
    """
    person = require(actor, Action.RETRY_ROWS)
    with _refusals("topic"):
        due = facade.retry_topic_now(topic, actor=person.get_username())
    if not due:
        raise StaleAct(f"Nothing of {topic} waits after a failure any more: it was sent, skipped or retried.")
    record_act(person, AuditAction.TOPIC_RETRIED, kind="topic", object_id=topic, rows=due)
    return due


@transaction.atomic
def skip_row(actor: Actor, position: int, *, reason: str) -> None:
    """Give up one waiting row for good; its key goes on without it.

    Raises:
        ActDenied, BadInput (no reason), StaleAct (it is not set aside any more).
    """
    person, reason = require(actor, Action.SKIP_ROW), require_reason(reason)
    with _refusals("position"):
        row = facade.skip_row(position, actor=person.get_username(), reason=reason)
    record_act(
        person,
        AuditAction.ROW_SKIPPED,
        kind="event",
        object_id=str(row.event_id),
        reason=reason,
        topic=row.topic,
        key=row.key_label,
        position=position,
        attempts=row.attempts,
    )


@contextmanager
def _refusals(field: str) -> Iterator[None]:
    """Say the relay's refusals as acts do."""
    try:
        yield
    except (AlreadyPaused, NotPaused, NotWaiting, StalePolicy) as stale:
        raise StaleAct(str(stale)) from stale
    except (UnknownTopic, BadKey, BadReason, BadPolicy, TooManyPauses) as bad:
        raise BadInput(field, str(bad)) from bad


def _record_key(
    person: User, action: AuditAction, topic: str, key: bytes | None, *, reason: str = "", **detail: object
) -> None:
    label = facade.label_key(key)
    record_act(
        person, action, kind="key", object_id=f"{topic} {label}", reason=reason, topic=topic, key=label, **detail
    )
