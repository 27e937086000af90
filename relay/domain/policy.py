"""How a topic's policy document is read and checked. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from relay.domain.backoff import Backoff
from relay.errors import BadPolicy
from relay.types import OnFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLimits:
    """What a policy may hold at most."""

    attempts: int
    first_retry_s: float
    age_s: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRule:
    """What the engine obeys for a topic."""

    on_failed: OnFailed
    backoff: Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDocument:
    """A topic's policy as it is stored."""

    on_failed: OnFailed
    max_attempts: int
    first_retry_s: float
    ingress_max_age_s: float | None = None
    ingress_max_rows: int | None = None

    def as_json(self) -> dict[str, object]:
        """Return what is written."""
        return {
            "on_failed": self.on_failed.value,
            "max_attempts": self.max_attempts,
            "first_retry_s": self.first_retry_s,
            "ingress_max_age_s": self.ingress_max_age_s,
            "ingress_max_rows": self.ingress_max_rows,
        }

    def rule(self, usual: Backoff) -> TopicRule:
        """Return what the engine obeys; growth and longest wait are everybody's."""
        backoff = Backoff(
            base_s=self.first_retry_s, factor=usual.factor, attempts=self.max_attempts, most_s=usual.most_s
        )
        return TopicRule(on_failed=self.on_failed, backoff=backoff)


def check_document(values: Mapping[str, object], limits: PolicyLimits) -> PolicyDocument:
    """Build a document from what a person gave.

    Raises:
        BadPolicy: which value cannot be, and what may.
    """
    age = values.get("ingress_max_age_s")
    rows = values.get("ingress_max_rows")
    return PolicyDocument(
        on_failed=_check_on_failed(values.get("on_failed")),
        max_attempts=_check_count("max_attempts", values.get("max_attempts"), limits.attempts),
        first_retry_s=_check_seconds("first_retry_s", values.get("first_retry_s"), limits.first_retry_s),
        ingress_max_age_s=None if age is None else _check_seconds("max_age_s", age, limits.age_s),
        ingress_max_rows=None if rows is None else _check_count("max_rows", rows, limits.rows),
    )


def _check_on_failed(value: object) -> OnFailed:
    try:
        return OnFailed(str(value))
    except ValueError:
        words = " or ".join(repr(choice.value) for choice in OnFailed)
        raise BadPolicy(f"on_failed must be {words}, not {str(value)[:40]!r}.") from None


def _check_count(name: str, value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise BadPolicy(f"{name} must be a whole number from 1 to {most:,}.")
    return value


def _check_seconds(name: str, value: object, most: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not 0.1 <= float(str(value)) <= most:
        raise BadPolicy(f"{name} must be a number of seconds from 0.1 to {most:,.0f}.")
    return float(str(value))
