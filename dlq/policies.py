"""Retry policies as they are stored and looked up; the rules are pure, in `dlq.domain.policy`.

A policy is a version in the table of all policies (`relay.facade.save_policy`, scope consumer). Running consumers look
for changes every `DLQ_POLICY_REFRESH_S` and obey from the next failure on; waits that have begun stay.
"""

from collections.abc import Mapping

import structlog
from django.conf import settings

from dlq.domain.policy import (
    BadRetryPolicy,
    PolicyBounds,
    PolicyTarget,
    RetryPolicy,
    is_withdrawn,
    read_policy,
    resolve,
    target_of,
)
from dlq.types import Ordering
from relay.facade import list_current_policies
from relay.types import PolicyScope

log = structlog.get_logger(__name__)


class PolicyBook:
    """The policies that count for one group. `find` reads memory only; call `refresh` before the first record."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._policies: Mapping[PolicyTarget, RetryPolicy] = {}
        self._default = default_policy()

    def find(self, topic: str, event_type: str) -> RetryPolicy:
        """Return what is in force for an event type of a topic, as of the last refresh. Any thread may call it."""
        return resolve(self._policies, PolicyTarget(self._group, topic, event_type), self._default)

    def refresh(self) -> None:
        """Read the newest versions; one that cannot be read is logged, and the next wider one counts.

        Raises:
            DatabaseError: nothing was changed.
        """
        everything = load_policies()
        self._default = default_policy()
        self._policies = {t: policy for t, policy in everything.items() if t.group in {"", self._group}}


def default_policy() -> RetryPolicy:
    """Return what counts where nobody set a policy: the settings' values, as version 0."""
    return RetryPolicy(
        max_attempts=settings.CONSUMER_RETRY_ATTEMPTS,
        unknown_attempts=settings.CONSUMER_UNKNOWN_ATTEMPTS,
        base_s=settings.CONSUMER_RETRY_BASE_S,
        factor=settings.CONSUMER_RETRY_FACTOR,
        max_s=settings.CONSUMER_RETRY_LIMIT_S,
        jitter=settings.CONSUMER_RETRY_JITTER,
        retry_after_max_s=settings.CONSUMER_RETRY_AFTER_MAX_S,
        ordering=Ordering(settings.CONSUMER_ORDERING),
    )


def policy_bounds() -> PolicyBounds:
    """Return what a policy may hold at most, by the settings."""
    return PolicyBounds(
        attempts=settings.DLQ_POLICY_ATTEMPTS_MAX,
        wait_s=settings.DLQ_POLICY_WAIT_MAX_S,
        factor=settings.DLQ_POLICY_FACTOR_MAX,
        overrides=settings.DLQ_POLICY_OVERRIDES_MAX,
        horizon_s=settings.DLQ_POLICY_HORIZON_MAX_S,
    )


def load_policies() -> dict[PolicyTarget, RetryPolicy]:
    """Return the newest policy of every target that has one."""
    bounds = policy_bounds()
    found: dict[PolicyTarget, RetryPolicy] = {}
    for saved in list_current_policies(PolicyScope.CONSUMER):
        if is_withdrawn(saved.document):
            continue
        try:
            policy = read_policy(saved.document, bounds, subject=saved.subject, version=saved.version)
            found[target_of(saved.subject)] = policy
        except BadRetryPolicy as error:
            log.warning("policy.not_read", subject=saved.subject, version=saved.version, reason=str(error))
    return found
