"""What is to be done with a record now, and what follows a failed try. Pure: chance and times are passed in."""

from dataclasses import dataclass
from enum import Enum, auto

from dlq.domain.policy import RetryPolicy, backoff_s, is_exhausted, next_wait_s
from dlq.types import FailureClass, Ordering


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """How many tries of a record failed and count, and how many of them nobody could classify."""

    attempts: int = 0
    unknown: int = 0

    def and_one(self, found: FailureClass) -> "Spent":
        """Return what it is after one more."""
        return Spent(attempts=self.attempts + 1, unknown=self.unknown + (found is FailureClass.UNKNOWN))


@dataclass(frozen=True, slots=True)
class TryAgain:
    """It waits so long, in seconds."""

    after_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It is parked."""


def decide_after_failure(
    policy: RetryPolicy,
    found: FailureClass,
    spent: Spent,
    *,
    chance: float,
    retry_after_s: float | None,
    is_keyed: bool,
) -> TryAgain | GiveUp:
    """Decide after a failure that `spent` includes. Where order blocks, a keyed record is never given up."""
    if not is_spent(policy, found, spent):
        return TryAgain(next_wait_s(policy, spent.attempts, chance, retry_after_s))
    if waits_for_ever(policy, is_keyed=is_keyed):
        return TryAgain(max(backoff_s(policy, spent.attempts), policy.max_s) * (1 - policy.jitter * chance))
    return GiveUp()


def is_spent(policy: RetryPolicy, found: FailureClass, spent: Spent) -> bool:
    """Tell whether the policy allows no further try."""
    if found is FailureClass.UNKNOWN and is_exhausted(policy, found, spent.unknown):
        return True
    if found in {FailureClass.UNKNOWN, FailureClass.TRANSIENT}:
        return is_exhausted(policy, FailureClass.TRANSIENT, spent.attempts)
    return is_exhausted(policy, found, spent.attempts)


def waits_for_ever(policy: RetryPolicy, *, is_keyed: bool) -> bool:
    """Tell whether a record that failed for good stays in front of its key instead of being parked."""
    return policy.ordering is Ordering.BLOCK and is_keyed


# -- Before a try ------------------------------------------------------------------------------------------
class Step(Enum):
    """What is to be done with a record whose key is locked."""

    TRY = auto()
    PASS = auto()
    """A stored record that was settled meanwhile."""
    LEAVE = auto()
    """It is stored already, and is brought when it is due."""
    REST = auto()
    """A stored record that is not the first of its key."""
    STORE = auto()
    PARK_BEHIND = auto()
    WAIT = auto()
    GIVE_UP = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a record. `came_stored`: it was brought from its row, not delivered by Kafka.

    `to_store`: its partition is crowded. `is_behind`: stored records of its key go first. `is_given_up`: it has spent
    what the policy allows.
    """

    has_row: bool
    is_stored: bool
    came_stored: bool
    to_store: bool
    is_behind: bool
    is_quarantined: bool
    is_due: bool
    is_given_up: bool


def next_step(facts: Facts) -> Step:
    """Decide what is to be done now. Stored records of a key go before delivered ones, a parked head before both."""
    table = (
        (facts.came_stored and not facts.has_row, Step.PASS),
        (facts.is_stored and not facts.came_stored, Step.LEAVE),
        (facts.is_behind and facts.came_stored, Step.REST),
        (facts.is_behind, Step.STORE),
        (facts.is_quarantined, Step.PARK_BEHIND),
        (facts.to_store, Step.STORE),
        (not facts.is_due, Step.WAIT),
        (facts.is_given_up, Step.GIVE_UP),
    )
    return next((step for applies, step in table if applies), Step.TRY)
