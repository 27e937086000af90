"""Policies as versioned rows: the core for every scope, and the relay's own, one a topic."""

import json
from collections.abc import Mapping
from typing import Literal

from django.conf import settings
from django.db import connection, transaction

from relay.domain.acts import require_actor, require_reason
from relay.domain.policy import PolicyDocument, PolicyLimits, check_document
from relay.errors import BadPolicy, StalePolicy
from relay.models import PolicyVersion as Row
from relay.ports import may_park
from relay.revision import raise_revision
from relay.signals import relay_changed
from relay.topics import get_topic, list_topics
from relay.types import OnFailed, PolicyScope, PolicyVersion, RelayPolicy

_SAVE = """
INSERT INTO relay_policy (scope, subject, version, document, actor, reason)
SELECT %(scope)s, %(subject)s, %(expected)s + 1, %(document)s::jsonb, %(actor)s, %(reason)s
WHERE %(expected)s = (
    SELECT coalesce(max(version), 0) FROM relay_policy WHERE scope = %(scope)s AND subject = %(subject)s)
ON CONFLICT DO NOTHING RETURNING version
"""
_SUBJECT_CHARS = 1_500


# -- Every scope -------------------------------------------------------------------------------------------
def list_policy_versions(scope: PolicyScope, subject: str) -> list[PolicyVersion]:
    """Every version of a policy, newest first, at most `POLICY_VERSIONS_SHOWN`; the first is in force."""
    rows = Row.objects.filter(scope=scope.value, subject=subject).order_by("-version")
    return [_version(row) for row in rows[: settings.POLICY_VERSIONS_SHOWN]]


def get_policy_version(scope: PolicyScope, subject: str, version: int) -> PolicyVersion | None:
    """One version of a policy; None when there is none of that number."""
    row = Row.objects.filter(scope=scope.value, subject=subject, version=version).first()
    return None if row is None else _version(row)


def list_current_policies(scope: PolicyScope) -> list[PolicyVersion]:
    """The newest version of each subject that has one, by subject, at most `POLICY_SUBJECTS_MAX`."""
    newest = Row.objects.filter(scope=scope.value).order_by("subject", "-version").distinct("subject")
    return [_version(row) for row in newest[: settings.POLICY_SUBJECTS_MAX]]


def save_policy(
    scope: PolicyScope,
    subject: str,
    *,
    document: Mapping[str, object],
    expected_version: int,
    actor: str,
    reason: str,
) -> PolicyVersion:
    """Write the next version of a policy; `expected_version` is the one it was made from, 0 = there was none.

    The caller has checked what the document says.

    Raises:
        StalePolicy: another version is in force by now.
        BadPolicy: the subject is empty or too long. BadReason: the actor or the reason is.
    """
    require_actor(actor)
    require_reason(reason)
    if not 0 < len(subject) <= _SUBJECT_CHARS:
        raise BadPolicy(f"The subject of a policy has 1 to {_SUBJECT_CHARS} characters.")
    if isinstance(expected_version, bool) or not isinstance(expected_version, int) or expected_version < 0:
        raise BadPolicy("expected_version is the number of the version that the change was made from, or 0.")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            _SAVE,
            {
                "scope": scope.value,
                "subject": subject,
                "expected": expected_version,
                "document": json.dumps(dict(document), allow_nan=False),
                "actor": actor,
                "reason": reason,
            },
        )
        is_saved = cursor.fetchone() is not None
    if not is_saved:
        raise StalePolicy(
            f"The policy of {subject} is no longer at version {expected_version}: somebody changed it meanwhile. Look "
            "at the newest version and make the change again."
        )
    return _version(Row.objects.get(scope=scope.value, subject=subject, version=expected_version + 1))


# -- The relay's topics ------------------------------------------------------------------------------------
def get_relay_policy(topic: str) -> RelayPolicy:
    """Return the policy in force for a topic: the newest version, or the settings' values as version 0.

    Raises:
        UnknownTopic: nobody declared the topic.
    """
    name = get_topic(topic).name
    return _current([name])[0]


def list_relay_policies() -> list[RelayPolicy]:
    """The policy in force for every declared topic, by name."""
    return _current([spec.name for spec in list_topics()])


def set_relay_policy(
    topic: str,
    *,
    on_failed: Literal["block", "park"],
    max_attempts: int,
    first_retry_s: float,
    expected_version: int,
    actor: str,
    reason: str,
) -> RelayPolicy:
    """Set how failed rows of a topic are treated; runners obey within a second. Its ingress hold stays as it is.

    Rows that are blocked already stay so: `retry_now()` tries them under the new policy.

    Raises:
        UnknownTopic, BadPolicy, StalePolicy, BadReason: nothing was changed.
    """
    changes = {"on_failed": on_failed, "max_attempts": max_attempts, "first_retry_s": first_retry_s}
    return change_relay_policy(topic, changes, expected_version=expected_version, actor=actor, reason=reason)


def set_ingress_hold(
    topic: str,
    *,
    max_age_s: float | None,
    max_rows: int | None,
    expected_version: int,
    actor: str,
    reason: str,
) -> RelayPolicy:
    """Set from which unsent age or depth on `check_ingress()` holds a topic; None = no such limit.

    It is a part of the topic's policy and counts as a version of it. `publish()` in a transaction is never held.

    Raises:
        UnknownTopic, BadPolicy, StalePolicy, BadReason: nothing was changed.
    """
    changes = {"ingress_max_age_s": max_age_s, "ingress_max_rows": max_rows}
    return change_relay_policy(topic, changes, expected_version=expected_version, actor=actor, reason=reason)


def check_relay_policy(topic: str, changes: Mapping[str, object]) -> Mapping[str, object]:
    """Return the document of a topic's policy after these changes; what is not named stays as it is in force.

    Raises:
        UnknownTopic: nobody declared the topic. BadPolicy: which value cannot be, and what may.
    """
    before = get_relay_policy(topic)
    strange = sorted(str(name)[:40] for name in changes.keys() - PolicyDocument.__dataclass_fields__.keys())
    if strange:
        known = ", ".join(sorted(PolicyDocument.__dataclass_fields__))
        raise BadPolicy(f"The policy of a topic has no {', '.join(strange)}. It has {known}.")
    values = {name: getattr(before, name) for name in PolicyDocument.__dataclass_fields__} | dict(changes)
    document = check_document(values, policy_limits())
    if document.on_failed is OnFailed.PARK and not may_park():
        raise BadPolicy("on_failed 'park' needs the dead-letter queue, and this installation has none.")
    return document.as_json()


def change_relay_policy(
    topic: str, changes: Mapping[str, object], *, expected_version: int, actor: str, reason: str
) -> RelayPolicy:
    """Set these values of a topic's policy as its next version; runners obey within a second.

    Raises:
        UnknownTopic, BadPolicy, StalePolicy, BadReason: nothing was changed.
    """
    document = check_relay_policy(topic, changes)
    with transaction.atomic():
        raise_revision()
        saved = save_policy(
            PolicyScope.RELAY_TOPIC,
            topic,
            document=document,
            expected_version=expected_version,
            actor=actor,
            reason=reason,
        )
        transaction.on_commit(lambda: relay_changed.send(sender=None), robust=True)
    return _policy(topic, saved)


def policy_limits() -> PolicyLimits:
    """What a policy may hold at most, by the settings."""
    return PolicyLimits(
        attempts=settings.RELAY_POLICY_ATTEMPTS_MAX,
        first_retry_s=settings.RELAY_RETRY_MOST_S,
        age_s=settings.RELAY_INGRESS_AGE_MAX_S,
        rows=settings.RELAY_UNSENT_COUNT_CAP,
    )


def _current(topics: list[str]) -> list[RelayPolicy]:
    rows = Row.objects.filter(scope=PolicyScope.RELAY_TOPIC.value, subject__in=topics)
    newest = rows.order_by("subject", "-version").distinct("subject")
    found = {row.subject: _version(row) for row in newest}
    return [_policy(topic, found.get(topic)) for topic in topics]


def _policy(topic: str, saved: PolicyVersion | None) -> RelayPolicy:
    if saved is None:
        return RelayPolicy(
            topic=topic,
            version=0,
            on_failed=OnFailed.PARK if get_topic(topic).parks_failed else OnFailed.BLOCK,
            max_attempts=settings.RELAY_RETRY_ATTEMPTS,
            first_retry_s=settings.RELAY_RETRY_BASE_S,
        )
    document = check_document(saved.document, policy_limits())
    return RelayPolicy(
        topic=topic,
        version=saved.version,
        on_failed=document.on_failed,
        max_attempts=document.max_attempts,
        first_retry_s=document.first_retry_s,
        ingress_max_age_s=document.ingress_max_age_s,
        ingress_max_rows=document.ingress_max_rows,
        set_by=saved.actor,
        set_at=saved.created_at,
        reason=saved.reason,
    )


def _version(row: Row) -> PolicyVersion:
    return PolicyVersion(
        scope=PolicyScope(row.scope),
        subject=row.subject,
        version=row.version,
        document=row.document,
        actor=row.actor,
        reason=row.reason,
        created_at=row.created_at,
    )
