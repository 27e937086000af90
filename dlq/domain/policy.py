"""Retry policies: how often and when a record is tried again, and which policy counts for it. Pure.

A policy is set for a target: one event type of a topic in a group, a topic in a group, a group, or everything. The
most specific one counts as a whole; nothing of a wider one is mixed in.

Errors: BadRetryPolicy, with the field and what may stand there.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from dlq.types import FailureClass, Ordering

NAME_CHARS = 200
TOPIC_CHARS = 249
EVERYTHING = "*"
LEAST_WAIT_S = 0.01
WITHDRAWN: Mapping[str, object] = {"withdrawn": True}
"""The document of a target that has no policy of its own any more."""
TREATMENTS = (FailureClass.TRANSIENT, FailureClass.UNKNOWN, FailureClass.PERMANENT, FailureClass.SCHEMA)
"""What a failure can be."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_ERROR_CLASS = re.compile(r"HTTP [45]\d\d|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class BadRetryPolicy(ValueError):
    """A value of a policy cannot be; `field` names it and the text says what may be."""

    def __init__(self, field_name: str, text: str) -> None:
        super().__init__(text)
        self.field = field_name


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBounds:
    """What a policy may hold at most."""

    attempts: int
    wait_s: float
    factor: float
    overrides: int
    horizon_s: float


NO_BOUNDS = PolicyBounds(attempts=10**9, wait_s=1e12, factor=1e9, overrides=10**6, horizon_s=math.inf)
"""For documents that are only shown: the bounds may have been others when they were written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What is in force for a record. Waits are in seconds; `version` 0 = the settings' values, nobody set one.

    `max_attempts` and `unknown_attempts` count the first try. `jitter` is the share of a wait that chance may take
    away, so the horizon is never passed. `retry_after_max_s`: the longest wait that the failing side may ask for, 0 =
    what it asks is not heeded. `overrides` maps an error's class, or "HTTP 409", to how it is treated.
    """

    max_attempts: int
    unknown_attempts: int
    base_s: float
    factor: float
    max_s: float
    jitter: float
    retry_after_max_s: float
    ordering: Ordering = Ordering.QUARANTINE
    overrides: Mapping[str, FailureClass] = field(default_factory=dict)
    subject: str = EVERYTHING
    version: int = 0

    def as_json(self) -> dict[str, object]:
        """Return the document that is stored."""
        return {
            "max_attempts": self.max_attempts,
            "unknown_attempts": self.unknown_attempts,
            "base_s": self.base_s,
            "factor": self.factor,
            "max_s": self.max_s,
            "jitter": self.jitter,
            "retry_after_max_s": self.retry_after_max_s,
            "ordering": self.ordering.value,
            "overrides": {name: found.value for name, found in sorted(self.overrides.items())},
        }


# -- Waits -------------------------------------------------------------------------------------------------
def backoff_s(policy: RetryPolicy, failed: int) -> float:
    """Return the longest wait after the `failed`-th failure (from 1), in seconds."""
    try:
        grown = policy.base_s * float(policy.factor) ** max(0, failed - 1)
    except OverflowError:
        return policy.max_s
    return min(grown, policy.max_s)


def next_wait_s(policy: RetryPolicy, attempt: int, chance: float, retry_after_s: float | None) -> float:
    """Return how long to wait after the `attempt`-th try (from 1) failed; `chance` is from 0 to below 1.

    What the failing side asked counts instead of the backoff, as far as the policy heeds it.
    """
    if retry_after_s is not None and policy.retry_after_max_s > 0:
        return min(max(retry_after_s, 0.0), policy.retry_after_max_s)
    return backoff_s(policy, attempt) * (1 - policy.jitter * chance)


def horizon_s(policy: RetryPolicy, attempts: int | None = None) -> float:
    """Return how long after its first failure a record is given up at the latest (handlers' own time not counted).

    `attempts` None = those of a transient failure. A Retry-After may make it longer.
    """
    tries = policy.max_attempts if attempts is None else attempts
    return math.fsum(backoff_s(policy, failed) for failed in range(1, tries))


def attempts_for(policy: RetryPolicy, found: FailureClass) -> int:
    """Return how often a record with such failures is tried in all."""
    if found is FailureClass.TRANSIENT:
        return policy.max_attempts
    return policy.unknown_attempts if found is FailureClass.UNKNOWN else 1


def is_exhausted(policy: RetryPolicy, found: FailureClass, failed: int) -> bool:
    """Tell whether a record whose `failed`-th counted try ended with such a failure is given up."""
    return failed >= attempts_for(policy, found)


# -- Targets -----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PolicyTarget:
    """What a policy is for; empty = all of them. A topic needs a group, an event type needs a topic."""

    group: str = ""
    topic: str = ""
    event_type: str = ""

    def __str__(self) -> str:
        names = [name for name in (self.event_type, self.topic, self.group) if name]
        return " of ".join(names[:-1]) + (" in " if len(names) > 1 else "") + names[-1] if names else "everything"

    def covers(self, other: "PolicyTarget") -> bool:
        """Tell whether it is `other` or wider."""
        return self in widen(other)


def widen(target: PolicyTarget) -> Iterator[PolicyTarget]:
    """Yield the target and what contains it, most specific first, at last everything."""
    if target.event_type:
        yield target
    if target.topic:
        yield PolicyTarget(target.group, target.topic)
    if target.group:
        yield PolicyTarget(target.group)
    yield PolicyTarget()


def subject_of(target: PolicyTarget) -> str:
    """Return the one text that stands for a target: `*`, `group`, `group/topic` or `group/topic/type`.

    Raises:
        BadRetryPolicy: names are missing, too long, or cannot be.
    """
    _check_target(target)
    if not target.group:
        return EVERYTHING
    return "/".join(_escape(name) for name in (target.group, target.topic, target.event_type) if name)


def target_of(subject: str) -> PolicyTarget:
    """Read what `subject_of` wrote.

    Raises:
        BadRetryPolicy: it is no such text.
    """
    if subject == EVERYTHING:
        return PolicyTarget()
    parts = subject.split("/")
    if len(parts) > 3 or not all(parts):
        raise BadRetryPolicy("subject", f"{subject[:80]!r} names no group, topic or event type.")
    target = PolicyTarget(*(unquote(part) for part in parts))
    if subject_of(target) != subject:
        raise BadRetryPolicy("subject", f"{subject[:80]!r} is not how a target is written.")
    return target


def resolve(policies: Mapping[PolicyTarget, RetryPolicy], target: PolicyTarget, default: RetryPolicy) -> RetryPolicy:
    """Return the most specific policy for a target, `default` when there is none."""
    return next((policies[wider] for wider in widen(target) if wider in policies), default)


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F").replace("*", "%2A")


def _check_target(target: PolicyTarget) -> None:
    if (target.topic and not target.group) or (target.event_type and not target.topic):
        raise BadRetryPolicy("group", "A policy of a topic names its group too, and one of an event type its topic.")
    for name, text in (("group", target.group), ("event_type", target.event_type)):
        if len(text) > NAME_CHARS or not text.isprintable():
            raise BadRetryPolicy(name, f"{name} must have at most {NAME_CHARS} printable characters.")
    if target.topic and (len(target.topic) > TOPIC_CHARS or not _TOPIC.fullmatch(target.topic)):
        raise BadRetryPolicy(
            "topic", f"A topic has at most {TOPIC_CHARS} letters, digits, dots, dashes and underscores."
        )


# -- Documents ---------------------------------------------------------------------------------------------
def is_withdrawn(document: Mapping[str, object]) -> bool:
    """Tell whether a stored document says that its target has no policy of its own."""
    return document.get("withdrawn") is True


def read_policy(document: Mapping[str, object], bounds: PolicyBounds, *, subject: str, version: int) -> RetryPolicy:
    """Build a policy from what a person gave or what is stored.

    Raises:
        BadRetryPolicy: a value is missing, unknown or out of bounds.
    """
    _require_known_fields(document)
    policy = RetryPolicy(
        max_attempts=_count("max_attempts", document, bounds.attempts),
        unknown_attempts=_count("unknown_attempts", document, bounds.attempts),
        base_s=_number("base_s", document, LEAST_WAIT_S, bounds.wait_s, "seconds"),
        factor=_number("factor", document, 1, bounds.factor, "times"),
        max_s=_number("max_s", document, LEAST_WAIT_S, bounds.wait_s, "seconds"),
        jitter=_number("jitter", document, 0, 0.9, "of the wait"),
        retry_after_max_s=_number("retry_after_max_s", document, 0, bounds.wait_s, "seconds"),
        ordering=_ordering(document.get("ordering")),
        overrides=_overrides(document.get("overrides", {}), bounds.overrides),
        subject=subject,
        version=version,
    )
    _require_sense(policy, bounds)
    return policy


def _require_known_fields(document: Mapping[str, object]) -> None:
    known = RetryPolicy.__dataclass_fields__.keys() - {"subject", "version"}
    strange = sorted(str(name)[:40] for name in document.keys() - known)
    if strange:
        raise BadRetryPolicy("document", f"A policy has no {', '.join(strange)}. It has {', '.join(sorted(known))}.")


def _require_sense(policy: RetryPolicy, bounds: PolicyBounds) -> None:
    if policy.unknown_attempts > policy.max_attempts:
        raise BadRetryPolicy(
            "unknown_attempts", f"unknown_attempts cannot be above max_attempts, which is {policy.max_attempts}."
        )
    if policy.base_s > policy.max_s:
        raise BadRetryPolicy("max_s", f"The longest wait, {policy.max_s:g} s, is below the first, {policy.base_s:g} s.")
    horizon = horizon_s(policy)
    if horizon > bounds.horizon_s:
        raise BadRetryPolicy(
            "max_attempts",
            f"It would give up only after {horizon:,.0f} s; at most {bounds.horizon_s:,.0f} s are possible. Take fewer"
            " attempts or a shorter longest wait.",
        )


def _count(name: str, document: Mapping[str, object], most: int) -> int:
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise BadRetryPolicy(name, f"{name} must be a whole number from 1 to {most:,}.")
    return value


def _number(name: str, document: Mapping[str, object], least: float, most: float, unit: str) -> float:
    value = document.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not least <= float(str(value)) <= most:
        raise BadRetryPolicy(name, f"{name} must be a number from {least:g} to {most:,g} {unit}.")
    return float(str(value))


def _ordering(value: object) -> Ordering:
    try:
        return Ordering(str(value))
    except ValueError:
        words = ", ".join(choice.value for choice in Ordering)
        raise BadRetryPolicy("ordering", f"ordering must be one of {words}, not {str(value)[:40]!r}.") from None


def _overrides(value: object, most: int) -> Mapping[str, FailureClass]:
    if not isinstance(value, Mapping):
        raise BadRetryPolicy("overrides", "overrides must map the class of an error to how it is treated.")
    if len(value) > most:
        raise BadRetryPolicy("overrides", f"There are {len(value)} overrides; at most {most} are possible.")
    return {_error_class(name): _failure_class(name, found) for name, found in value.items()}


def _error_class(name: object) -> str:
    if not isinstance(name, str) or len(name) > NAME_CHARS or not _ERROR_CLASS.fullmatch(name):
        raise BadRetryPolicy(
            "overrides",
            f"{str(name)[:60]!r} is no class of an error. Write it as the dead letter shows it, for example"
            " requests.exceptions.HTTPError or KeyError, or a status as HTTP 409.",
        )
    return name


def _failure_class(name: str, value: object) -> FailureClass:
    found = next((choice for choice in TREATMENTS if choice.value == value), None)
    if found is None:
        words = ", ".join(choice.value for choice in TREATMENTS)
        raise BadRetryPolicy("overrides", f"{name} must be one of {words}, not {str(value)[:40]!r}.")
    return found
