"""When a handler's dependency counts as down, and when it is tried again. Pure: times are passed as waits.

closed -> open: so many transient failures in a row, on different records. open -> closed: a record succeeded, or a
person said so. While it is open one record at a time is let through, at growing intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

_DOUBLINGS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimits:
    """It opens at so many failures in a row, on so many records at least; probes wait at most `probe_max_s`."""

    failures: int
    records: int
    probe_s: float
    probe_max_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Transient failures since the last success; `culprits` has a record's number once for each."""

    failures: int = 0
    culprits: Sequence[int] = ()
    is_open: bool = False


def after_failure(run: Run, culprit: int, limits: BreakerLimits) -> Run:
    """Return what the run is after one more failure; an open breaker counts none."""
    if run.is_open:
        return run
    # Only the last ones matter: a run that does not open is of one or two records that fail again and again.
    culprits = (*run.culprits, culprit)[-limits.failures * limits.records :]
    failures = run.failures + 1
    is_open = failures >= limits.failures and len(set(culprits)) >= limits.records
    return replace(run, failures=failures, culprits=culprits, is_open=is_open)


def next_probe_s(probes: int, limits: BreakerLimits) -> float:
    """Return how long after the `probes`-th failed probe the next one is made, in seconds."""
    grown: float = limits.probe_s * 2 ** min(probes, _DOUBLINGS)
    return min(grown, limits.probe_max_s)
