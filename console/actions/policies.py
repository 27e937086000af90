"""Acts on policies of every scope: permission -> service -> audit row, one transaction each."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from django.contrib.auth.models import User
from django.db import transaction

from console.actions.base import Actor, BadInput, StaleAct, require, require_reason
from console.audit import record_act
from console.models import AuditAction
from console.policy_scopes import Document, Scope
from dlq import facade as dlq
from dlq.facade import BadRetryPolicy
from relay import facade as relay
from relay.facade import BadPolicy, BadReason, StalePolicy, UnknownTopic
from relay.types import PolicyScope


@transaction.atomic
def set_policy(actor: Actor, scope: Scope, subject: str, document: Document, *, seen: int, reason: str) -> int:
    """Set the policy of a subject; `seen` is its version that the change was made from. Returns the new version.

    Raises:
        ActDenied, BadInput (a value that cannot be), StaleAct (another version is in force).
    """
    person, reason = require(actor, scope.action), require_reason(reason)
    with _refusals():
        version = _save(scope, subject, document, seen=seen, actor=person.get_username(), reason=reason)
    action = AuditAction.RETRY_POLICY_SET if scope.kept_as is PolicyScope.CONSUMER else AuditAction.RELAY_POLICY_SET
    _record(person, action, scope, subject, reason=reason, version=version, **_facts(document))
    return version


@transaction.atomic
def withdraw_policy(actor: Actor, scope: Scope, subject: str, *, seen: int, reason: str) -> int:
    """Let the next wider policy count for a subject again. Returns the new version.

    Raises:
        ActDenied, BadInput (it has none, or the scope knows no wider one), StaleAct (another version is in force).
    """
    person, reason = require(actor, scope.action), require_reason(reason)
    if not scope.may_withdraw:
        raise BadInput("subject", "A policy of this kind has no wider one that could count instead.")
    with _refusals():
        saved = dlq.withdraw_retry_policy(
            dlq.target_of(subject), expected_version=seen, actor=person.get_username(), reason=reason
        )
    _record(person, AuditAction.RETRY_POLICY_WITHDRAWN, scope, subject, reason=reason, version=saved.version)
    return saved.version


@transaction.atomic
def roll_back_policy(actor: Actor, scope: Scope, subject: str, to_version: int, *, seen: int, reason: str) -> int:
    """Put an older version in force again, as a new version. Returns its number.

    Raises:
        ActDenied, BadInput (there is no such version, or today's bounds refuse it), StaleAct.
    """
    person, reason = require(actor, scope.action), require_reason(reason)
    with _refusals():
        version = _roll_back(scope, subject, to_version, seen=seen, actor=person.get_username(), reason=reason)
    _record(
        person, AuditAction.POLICY_ROLLED_BACK, scope, subject, reason=reason, version=version, to_version=to_version
    )
    return version


def _save(scope: Scope, subject: str, document: Document, *, seen: int, actor: str, reason: str) -> int:
    if scope.kept_as is PolicyScope.RELAY_TOPIC:
        return relay.change_relay_policy(subject, document, expected_version=seen, actor=actor, reason=reason).version
    target = dlq.target_of(subject)
    return dlq.set_retry_policy(target, document, expected_version=seen, actor=actor, reason=reason).version


def _roll_back(scope: Scope, subject: str, to_version: int, *, seen: int, actor: str, reason: str) -> int:
    if scope.kept_as is PolicyScope.CONSUMER:
        target = dlq.target_of(subject)
        return dlq.roll_back_retry_policy(target, to_version, expected_version=seen, actor=actor, reason=reason).version
    old = relay.get_policy_version(scope.kept_as, subject, to_version)
    if old is None or to_version == seen:
        raise BadInput("to_version", f"The policy of {subject} has no older version {to_version}.")
    return _save(scope, subject, old.document, seen=seen, actor=actor, reason=reason)


@contextmanager
def _refusals() -> Iterator[None]:
    """Say the apps' refusals as acts do."""
    try:
        yield
    except StalePolicy as stale:
        raise StaleAct(str(stale)) from stale
    except BadRetryPolicy as bad:
        raise BadInput(bad.field, str(bad)) from bad
    except (UnknownTopic, BadReason, BadPolicy) as bad:
        raise BadInput("document", str(bad)) from bad


def _record(person: User, action: AuditAction, scope: Scope, subject: str, *, reason: str, **detail: object) -> None:
    record_act(person, action, kind=f"{scope.slug} policy", object_id=subject, reason=reason, **detail)


def _facts(document: Document) -> Mapping[str, object]:
    """What of a document goes into the audit row: every value, of the overrides their number."""
    facts = {name: value for name, value in document.items() if name != "overrides"}
    overrides = document.get("overrides")
    return facts | ({"overrides": len(overrides)} if isinstance(overrides, Mapping) else {})
