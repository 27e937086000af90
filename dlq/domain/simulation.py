"""What a policy would have done with the tries that were recorded. Pure.

Each record is tried again on paper, at the times of the policy in question (its longest waits). What such a try would
have met is read off the recorded ones:

- up to the record's own last failure it fails, from its own success on it succeeds;
- after that the failure as a whole tells (same group and fingerprint, whichever record met it): the last one seen
  since then was a success, or a failure;
- where nobody met that failure since, it cannot be known, and is said to be so.

Tries that an open breaker gave back are left out together with the time that the breaker held the record.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dlq.domain.classify import TABLE
from dlq.domain.policy import RetryPolicy, backoff_s
from dlq.domain.retrying import Spent, is_spent, waits_for_ever
from dlq.types import AttemptOutcome, FailureClass

BLOCKED_TRIES = 1_000
"""So often a record that blocks its key is tried on paper after its policy is spent; beyond, nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTry:
    """One recorded try; `at` in seconds since the epoch."""

    at: float
    number: int
    outcome: AttemptOutcome
    failure_class: FailureClass
    error_class: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRecord:
    """A record with its tries, oldest first, beginning with its first failure.

    `in_force`: the policy that counts for it now. `applied_later_at`: when a replay of it was applied.
    """

    group: str
    handler: str
    tries: Sequence[RecordedTry]
    in_force: RetryPolicy
    is_keyed: bool = True
    applied_later_at: float | None = None


class Verdict(StrEnum):
    """What would have become of a record."""

    APPLIED = "applied"
    PARKED = "parked"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Tally:
    """Records by what became of them and what would have: `parked` and `recovered` are what happened."""

    parked: int = 0
    saved: int = 0
    parked_unknown: int = 0
    recovered: int = 0
    lost: int = 0
    recovered_unknown: int = 0

    @property
    def records(self) -> int:
        """All of them."""
        return self.parked + self.recovered

    @property
    def unknown(self) -> int:
        """Of how many it cannot be known."""
        return self.parked_unknown + self.recovered_unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The whole: sums, the same by (class of the error, handler), the most parked first, and what it costs.

    `worst_added_s`: how much later than it did a record would have ended, at worst. `tries_more` may be negative.
    `waiting`: records that have not ended yet; they are not in the sums.
    """

    total: Tally
    by_error: Mapping[tuple[str, str], Tally]
    worst_added_s: float
    tries_more: int
    waiting: int
    held: int


@dataclass(frozen=True, slots=True)
class _Line:
    """A record's own tries without those that a breaker gave back, and the holds that came of it: (from, seconds)."""

    tries: Sequence[RecordedTry]
    holds: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class _End:
    verdict: Verdict
    at: float
    tries: int


@dataclass(slots=True)
class _Fault:
    """When one failure was met (False) or was over (True), in order."""

    times: list[float] = field(default_factory=list)
    over: list[bool] = field(default_factory=list)

    def told(self, after: float, at: float) -> bool | None:
        """Return what was seen last in (after, at]; None = nothing."""
        found = bisect_right(self.times, at) - 1
        return self.over[found] if found >= 0 and self.times[found] > after else None


Faults = Mapping[tuple[str, str], _Fault]


def simulate(records: Sequence[RecordedRecord], policy: RetryPolicy) -> Simulation:
    """Try every record again under `policy`. Linear in records x attempts."""
    faults = _find_faults(records)
    total, by_error = Tally(), defaultdict[tuple[str, str], Tally](Tally)
    worst, more, waiting, held = 0.0, 0, 0, 0
    for record in records:
        line = _own_line(record.tries)
        happened = line.tries[-1]
        if happened.outcome is AttemptOutcome.WAITS:
            waiting += 1
            continue
        end = _try_again(record, line, policy, faults)
        for tally in (total, by_error[_failure_of(line).error_class, record.handler]):
            _count(tally, happened.outcome, end.verdict)
        worst = max(worst, end.at - _less_holds(happened.at, line))
        more += end.tries - len(line.tries)
        held += bool(line.holds)
    ordered = sorted(by_error.items(), key=lambda item: (-item[1].parked, -item[1].recovered, item[0]))
    return Simulation(
        total=total, by_error=dict(ordered), worst_added_s=worst, tries_more=more, waiting=waiting, held=held
    )


def _try_again(record: RecordedRecord, line: _Line, policy: RetryPolicy, faults: Faults) -> _End:
    at, spent, doubt = _less_holds(line.tries[0].at, line), Spent(), False
    blocks, blocked = waits_for_ever(policy, is_keyed=record.is_keyed), 0
    while True:
        met = _meet(record, line, at, faults)
        if met is Verdict.APPLIED:
            return _End(Verdict.APPLIED, at, spent.attempts + 1)
        doubt = doubt or met is Verdict.UNKNOWN
        found = _treat(_failure_at(line, at), policy, record.in_force)
        spent = spent.and_one(found)
        if is_spent(policy, found, spent):
            blocked += 1
            if not blocks or blocked > BLOCKED_TRIES:
                return _End(Verdict.UNKNOWN if doubt or blocks else Verdict.PARKED, at, spent.attempts)
        at += policy.max_s if blocked else backoff_s(policy, spent.attempts)


def _meet(record: RecordedRecord, line: _Line, at: float, faults: Faults) -> Verdict:
    """What a try at a moment of the record's own time (holds left out) would have met; PARKED = a failure."""
    end = line.tries[-1]
    if end.outcome is AttemptOutcome.APPLIED and at >= _less_holds(end.at, line):
        return Verdict.APPLIED
    last_failure = _failure_of(line)
    if at <= _less_holds(last_failure.at, line):
        return Verdict.PARKED
    now = _with_holds(at, line)
    if record.applied_later_at is not None and now >= record.applied_later_at:
        return Verdict.APPLIED
    over = faults[record.group, last_failure.fingerprint].told(last_failure.at, now)
    if over is None:
        return Verdict.UNKNOWN
    return Verdict.APPLIED if over else Verdict.PARKED


def _failure_of(line: _Line) -> RecordedTry:
    """The last failure: a success stands behind it."""
    failures = [one for one in line.tries if one.outcome is not AttemptOutcome.APPLIED]
    return failures[-1] if failures else line.tries[-1]


def _failure_at(line: _Line, at: float) -> RecordedTry:
    """The failure that was met last at a moment."""
    met = [one for one in line.tries if one.outcome is not AttemptOutcome.APPLIED and _less_holds(one.at, line) <= at]
    return met[-1] if met else line.tries[0]


def _treat(failure: RecordedTry, policy: RetryPolicy, in_force: RetryPolicy) -> FailureClass:
    """How the policy treats it. What an override made of it by now is taken back first."""
    if failure.error_class in policy.overrides:
        return policy.overrides[failure.error_class]
    if failure.error_class in in_force.overrides:
        full = failure.error_class if "." in failure.error_class else f"builtins.{failure.error_class}"
        return TABLE.get(full, FailureClass.UNKNOWN)
    return failure.failure_class


def _own_line(tries: Sequence[RecordedTry]) -> _Line:
    """The tries up to the first parking; what follows are replays."""
    kept: list[RecordedTry] = []
    holds: list[tuple[float, float]] = []
    for one in tries:
        given_back = [old for old in kept if old.number >= one.number]
        if given_back:
            kept = [old for old in kept if old.number < one.number]
            holds = [hold for hold in holds if hold[0] < given_back[0].at]
            holds.append((given_back[0].at, one.at - given_back[0].at))
        kept.append(one)
        if one.outcome is not AttemptOutcome.WAITS:
            break
    return _Line(kept, holds)


def _less_holds(at: float, line: _Line) -> float:
    """A real moment in the record's own time."""
    return at - sum(min(length, max(0.0, at - start)) for start, length in line.holds)


def _with_holds(at: float, line: _Line) -> float:
    """A moment of the record's own time as it really was."""
    for start, length in line.holds:
        if at >= start:
            at += length
    return at


def _find_faults(records: Sequence[RecordedRecord]) -> Faults:
    seen: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for record in records:
        for one in record.tries:
            seen[record.group, one.fingerprint].append((one.at, one.outcome is AttemptOutcome.APPLIED))
        if record.applied_later_at is not None:
            seen[record.group, record.tries[-1].fingerprint].append((record.applied_later_at, True))
    return {key: _Fault([at for at, _ in sorted(met)], [over for _, over in sorted(met)]) for key, met in seen.items()}


def _count(tally: Tally, happened: AttemptOutcome, verdict: Verdict) -> None:
    if happened is AttemptOutcome.PARKED:
        tally.parked += 1
        tally.saved += verdict is Verdict.APPLIED
        tally.parked_unknown += verdict is Verdict.UNKNOWN
        return
    tally.recovered += 1
    tally.lost += verdict is Verdict.PARKED
    tally.recovered_unknown += verdict is Verdict.UNKNOWN
