"""Retry policies as people see and change them: what counts where, new versions, and what one would have done.

Errors: BadRetryPolicy (a value cannot be; nothing was changed); StalePolicy and BadReason are of `relay.facade`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from dlq.domain.policy import (
    EVERYTHING,
    NO_BOUNDS,
    WITHDRAWN,
    BadRetryPolicy,
    PolicyTarget,
    RetryPolicy,
    is_withdrawn,
    read_policy,
    resolve,
    subject_of,
    target_of,
    widen,
)
from dlq.domain.simulation import RecordedRecord, RecordedTry, Simulation, simulate
from dlq.handlers import list_routes
from dlq.policies import default_policy, load_policies, policy_bounds
from dlq.signals import policies_changed
from dlq.types import AttemptOutcome, FailureClass
from relay.facade import get_policy_version, label_key, list_current_policies, list_policy_versions, save_policy
from relay.types import PolicyScope, PolicyVersion

NO_KEY = label_key(None)
_TRIES = """
SELECT group_name, topic, partition, log_offset, event_id, event_type, handler, number, outcome, failure_class,
    error_class, fingerprint, extract(epoch FROM at)::float, key_label
FROM dlq_attempt
WHERE at > clock_timestamp() - make_interval(days => %(days)s)
  AND (%(group)s = '' OR group_name = %(group)s) AND (%(topic)s = '' OR topic = %(topic)s)
  AND (%(event_type)s = '' OR event_type = %(event_type)s)
ORDER BY at DESC LIMIT %(rows)s
"""
_APPLIED_LATER = """
SELECT a.group_name, a.event_id, extract(epoch FROM a.applied_at)::float
FROM dlq_applied a JOIN unnest(%s::text[], %s::uuid[]) AS asked (group_name, event_id) USING (group_name, event_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLine:
    """What counts for a target. `own_version`: the newest version of the target itself, 0 = it never had one.

    `set_by`, `set_at` and `reason` are of the newest version of the target itself, also when that withdrew it.
    `is_handled`: a handler of this installation is registered for it.
    """

    target: PolicyTarget
    policy: RetryPolicy
    own_version: int = 0
    is_own: bool = False
    is_handled: bool = True
    set_by: str = ""
    set_at: datetime | None = None
    reason: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySimulation:
    """What a policy would have done in the last `days`. `is_cut`: there were more tries than are looked at.

    `unseen`: records whose first try was not among those that were looked at; they are left out.
    """

    target: PolicyTarget
    policy: RetryPolicy
    days: int
    result: Simulation
    is_cut: bool
    unseen: int


# -- What counts -------------------------------------------------------------------------------------------
def list_retry_policies() -> list[PolicyLine]:
    """What counts for everything, each group, topic and event type that has a handler or a policy; wide ones first.

    At most `DLQ_POLICY_LINES`.
    """
    handled = set(_handled_targets())
    newest = {version.subject: version for version in list_current_policies(PolicyScope.CONSUMER)}
    policies, usual = load_policies(), default_policy()
    known = handled | {target for subject in newest if (target := _read_target(subject)) is not None}
    ordered = sorted(known, key=lambda t: (t.group, t.topic, t.event_type))[: settings.DLQ_POLICY_LINES]
    return [_line(target, newest.get(subject_of(target)), policies, usual, handled) for target in ordered]


def get_retry_policy(target: PolicyTarget) -> PolicyLine:
    """What counts for a target.

    Raises:
        BadRetryPolicy: the target cannot be.
    """
    versions = list_policy_versions(PolicyScope.CONSUMER, subject_of(target))
    return _line(target, versions[0] if versions else None, load_policies(), default_policy(), set(_handled_targets()))


def wider_retry_policy(target: PolicyTarget) -> RetryPolicy:
    """What would count for a target without its own policy."""
    policies = load_policies()
    policies.pop(target, None)
    return resolve(policies, target, default_policy())


def check_retry_policy(target: PolicyTarget, document: Mapping[str, object]) -> RetryPolicy:
    """Return the policy that a document would make.

    Raises:
        BadRetryPolicy: which value cannot be, and what may.
    """
    return read_policy(document, policy_bounds(), subject=subject_of(target), version=0)


def read_stored_policy(document: Mapping[str, object]) -> RetryPolicy:
    """Return what a stored or checked document says, to show it; today's bounds do not matter.

    Raises:
        BadRetryPolicy: it is no policy.
    """
    return read_policy(document, NO_BOUNDS, subject=EVERYTHING, version=0)


# -- Changes -----------------------------------------------------------------------------------------------
def set_retry_policy(
    target: PolicyTarget, document: Mapping[str, object], *, expected_version: int, actor: str, reason: str
) -> PolicyVersion:
    """Set the policy of a target as its next version; consumers obey within 5 s. Waits that have begun stay.

    Raises:
        BadRetryPolicy, BadReason: what cannot be.
        StalePolicy: another version is in force by now.
    """
    policy = check_retry_policy(target, document)
    return _save(target, policy.as_json(), expected_version, actor, reason)


def withdraw_retry_policy(target: PolicyTarget, *, expected_version: int, actor: str, reason: str) -> PolicyVersion:
    """Let the next wider policy count for a target again; a version as well.

    Raises:
        BadRetryPolicy: it has none. BadReason. StalePolicy: another version is in force by now.
    """
    if target not in load_policies():
        raise BadRetryPolicy("subject", f"{target} has no policy of its own to withdraw.")
    return _save(target, WITHDRAWN, expected_version, actor, reason)


def roll_back_retry_policy(
    target: PolicyTarget, to_version: int, *, expected_version: int, actor: str, reason: str
) -> PolicyVersion:
    """Put an older version's document in force as a new version.

    Raises:
        BadRetryPolicy: there is no such version, it is in force, or today's bounds refuse it.
        BadReason. StalePolicy: another version is in force by now.
    """
    old = get_policy_version(PolicyScope.CONSUMER, subject_of(target), to_version)
    if old is None:
        raise BadRetryPolicy("to_version", f"The policy of {target} has no version {to_version}.")
    if to_version == expected_version:
        raise BadRetryPolicy("to_version", f"Version {to_version} is in force: there is nothing to roll back.")
    document = old.document if is_withdrawn(old.document) else check_retry_policy(target, old.document).as_json()
    return _save(target, document, expected_version, actor, reason)


def _save(
    target: PolicyTarget, document: Mapping[str, object], expected_version: int, actor: str, reason: str
) -> PolicyVersion:
    with transaction.atomic():
        if expected_version == 0:
            _require_room()
        saved = save_policy(
            PolicyScope.CONSUMER,
            subject_of(target),
            document=document,
            expected_version=expected_version,
            actor=actor,
            reason=reason,
        )
        transaction.on_commit(lambda: policies_changed.send(sender=None), robust=True)
    return saved


def _require_room() -> None:
    if len(list_current_policies(PolicyScope.CONSUMER)) >= settings.POLICY_SUBJECTS_MAX:
        raise BadRetryPolicy(
            "subject",
            f"{settings.POLICY_SUBJECTS_MAX:,} targets have a policy, and more are not read. Set one for a whole group"
            " or topic instead.",
        )


# -- Simulation --------------------------------------------------------------------------------------------
def simulate_retry_policy(target: PolicyTarget, policy: RetryPolicy, *, days: int) -> PolicySimulation:
    """Try the recorded tries of the last `days` again under `policy`, where it would be the one that counts.

    At most `DLQ_SIMULATION_ROWS` tries are looked at, the newest.

    Raises:
        BadRetryPolicy: the target or the days cannot be.
    """
    most_days = settings.DLQ_ATTEMPT_RETENTION.days
    if not 1 <= days <= most_days:
        raise BadRetryPolicy("days", f"Tries are kept for {most_days} days: take 1 to {most_days}.")
    subject_of(target)
    rows = _read_tries(target, days)
    is_cut = len(rows) > settings.DLQ_SIMULATION_ROWS
    now = load_policies()
    records, unseen = _group_records(rows[: settings.DLQ_SIMULATION_ROWS], now)
    counted = [record for place, record in records if _counts_for(target, place, now)]
    return PolicySimulation(
        target=target,
        policy=policy,
        days=days,
        result=simulate(counted, policy),
        is_cut=is_cut,
        unseen=unseen,
    )


def _read_tries(target: PolicyTarget, days: int) -> list[Any]:
    asked: dict[str, Any] = {
        "days": days,
        "group": target.group,
        "topic": target.topic,
        "event_type": target.event_type,
        "rows": settings.DLQ_SIMULATION_ROWS + 1,
    }
    with connection.cursor() as cursor:
        cursor.execute(_TRIES, asked)
        return list(cursor.fetchall())


def _group_records(
    rows: Sequence[Any], policies: Mapping[PolicyTarget, RetryPolicy]
) -> tuple[list[tuple[PolicyTarget, RecordedRecord]], int]:
    """Records with their tries, oldest first, and how many were left out because their first try is not there."""
    usual = default_policy()
    grouped: dict[tuple[Any, ...], list[Any]] = {}
    for row in reversed(rows):
        grouped.setdefault(tuple(row[:5]), []).append(row)
    whole = {key: found for key, found in grouped.items() if found[0][7] == 1}
    applied = _applied_later((key[0], key[4]) for key, found in whole.items() if key[4] and found[-1][8] == "parked")
    made = []
    for key, found in whole.items():
        place = PolicyTarget(key[0], key[1], found[0][5])
        record = RecordedRecord(
            group=key[0],
            handler=found[0][6],
            tries=[_try(row) for row in found],
            in_force=resolve(policies, place, usual),
            is_keyed=found[0][13] != NO_KEY,
            applied_later_at=applied.get((key[0], key[4])),
        )
        made.append((place, record))
    return made, len(grouped) - len(whole)


def _applied_later(asked: Iterator[tuple[str, UUID]]) -> Mapping[tuple[str, UUID], float]:
    pairs = list(asked)
    with connection.cursor() as cursor:
        cursor.execute(_APPLIED_LATER, [[group for group, _ in pairs], [event_id for _, event_id in pairs]])
        return {(group, event_id): at for group, event_id, at in cursor.fetchall()}


def _try(row: Any) -> RecordedTry:
    return RecordedTry(
        number=row[7],
        outcome=AttemptOutcome(row[8]),
        failure_class=FailureClass(row[9]),
        error_class=row[10],
        fingerprint=row[11],
        at=row[12],
    )


def _counts_for(target: PolicyTarget, place: PolicyTarget, policies: Mapping[PolicyTarget, RetryPolicy]) -> bool:
    """Tell whether a policy of `target` would be the one that counts for a record."""
    return next((wider for wider in widen(place) if wider == target or wider in policies), None) == target


# -- Lines -------------------------------------------------------------------------------------------------
def _line(
    target: PolicyTarget,
    newest: PolicyVersion | None,
    policies: Mapping[PolicyTarget, RetryPolicy],
    usual: RetryPolicy,
    handled: set[PolicyTarget],
) -> PolicyLine:
    line = PolicyLine(target=target, policy=resolve(policies, target, usual), is_handled=target in handled)
    if newest is None:
        return line
    is_own = target in policies
    return PolicyLine(
        target=target,
        policy=line.policy,
        own_version=newest.version,
        is_own=is_own,
        is_handled=line.is_handled,
        set_by=newest.actor,
        set_at=newest.created_at,
        reason=newest.reason,
        problem="" if is_own or is_withdrawn(newest.document) else _problem_of(newest),
    )


def _problem_of(version: PolicyVersion) -> str:
    """Why a stored version does not count."""
    try:
        read_policy(version.document, policy_bounds(), subject=version.subject, version=version.version)
    except BadRetryPolicy as error:
        return str(error)
    return ""


def _read_target(subject: str) -> PolicyTarget | None:
    try:
        return target_of(subject)
    except BadRetryPolicy:
        return None


def _handled_targets() -> Iterator[PolicyTarget]:
    yield PolicyTarget()
    for spec in list_routes():
        yield PolicyTarget(spec.group)
        yield PolicyTarget(spec.group, spec.topic)
        for event_type in spec.event_types or ():
            yield PolicyTarget(spec.group, spec.topic, event_type)
