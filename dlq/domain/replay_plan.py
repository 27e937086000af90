"""What a replay may do: a verdict for each dead letter, the order, and how far the next step goes. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from dlq.types import RUNNABLE, DeadLetterState, ReplayMode, ReplayPhase, ReplayVerdict

JOINED_FROM = 1_000_000
"""Items above this number were not selected: they joined behind a released head. No selection is as large."""


# -- The preview -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What is known of one dead letter when it is judged.

    `head_id`: the head of its key's queue, when the key is quarantined. `can_go`: there is a handler for it, or in the
    mode `topic` a declared topic. `is_passed`: the group has handled records of its partition that came later.
    """

    id: UUID
    state: DeadLetterState
    parked_at: datetime
    partition: int
    offset: int
    lane: int | None = None
    queue_number: int | None = None
    head_id: UUID | None = None
    can_go: bool = True
    decodes: bool = True
    has_bytes: bool = True
    is_applied: bool = False
    is_in_replay: bool = False
    is_passed: bool = False
    needs_human: bool = False

    @property
    def is_behind(self) -> bool:
        """Tell whether another one of its key has to go first."""
        return self.queue_number is not None and self.head_id is not None and self.head_id != self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One line of a plan; lines stand in the order in which they are replayed."""

    candidate: Candidate
    verdict: ReplayVerdict


def plan_replay(candidates: Sequence[Candidate], mode: ReplayMode) -> list[Planned]:
    """Judge each one and put them in order: the longest parked first, those of one key in the key's own order."""
    alone = len(candidates) == 1
    first = {c.id: _judge(c, mode, alone=alone) for c in candidates if not c.is_behind}
    released = {c.lane for c in candidates if first.get(c.id) in RUNNABLE}
    return [
        Planned(candidate=c, verdict=first.get(c.id) or _judge_behind(c, mode, follows=c.lane in released))
        for c in _order(candidates)
    ]


def _judge_behind(c: Candidate, mode: ReplayMode, *, follows: bool) -> ReplayVerdict:
    verdict = _judge(c, mode, alone=False)
    if verdict not in RUNNABLE:
        return verdict
    return ReplayVerdict.FOLLOWS if follows else ReplayVerdict.BEHIND


def _judge(c: Candidate, mode: ReplayMode, *, alone: bool) -> ReplayVerdict:
    """Judge one by itself; `alone`: a person picked this one only, so the guard against loops does not hold it."""
    rules = (
        (c.state is not DeadLetterState.PARKED, ReplayVerdict.NOT_PARKED),
        (c.is_in_replay, ReplayVerdict.IN_REPLAY),
        (not c.has_bytes, ReplayVerdict.NO_PAYLOAD),
        (not c.can_go, ReplayVerdict.NO_HANDLER if mode is ReplayMode.HANDLER else ReplayVerdict.NO_TOPIC),
        (not c.decodes, ReplayVerdict.SCHEMA),
        (c.needs_human and not alone, ReplayVerdict.LOOP_GUARD),
        (c.is_applied, ReplayVerdict.APPLIED),
        (c.lane is not None and c.head_id is None and c.is_passed, ReplayVerdict.HAZARD),
    )
    return next((verdict for holds, verdict in rules if holds), ReplayVerdict.ELIGIBLE)


def _order(candidates: Iterable[Candidate]) -> list[Candidate]:
    by_age = sorted(candidates, key=lambda c: (c.parked_at, c.id))
    lanes: dict[int, list[Candidate]] = {}
    for c in by_age:
        if c.lane is not None:
            lanes.setdefault(c.lane, []).append(c)
    turns = {lane: iter(sorted(members, key=_place_in_key)) for lane, members in lanes.items()}
    return [c if c.lane is None else next(turns[c.lane]) for c in by_age]


def _place_in_key(c: Candidate) -> tuple[bool, int, int, int]:
    """Those in the queue by their number; others by where they lay in Kafka, before the queue when it is older."""
    return c.queue_number is not None, c.queue_number or 0, c.partition, c.offset


# -- The job -----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How carefully a replay goes: `ramp` items after the first, then windows of `window` items.

    It stops by itself when more than `stop_ratio` of a ramp or window failed again.
    """

    ramp: int
    window: int
    stop_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a job is: `tried` and `failed` count items that really ran, the marks those at the start of the phase."""

    phase: ReplayPhase
    tried: int
    failed: int
    running: int
    mark_tried: int
    mark_failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What may happen next: at most `most` more items (None = no bound), or a stop with its words."""

    progress: Progress
    most: int | None = 0
    stop: str = ""


def next_step(progress: Progress, limits: Limits) -> Step:
    """Decide how many items may start now: one, then `ramp` more, then the rest; or that the job stops by itself."""
    while True:
        tried, failed = progress.tried - progress.mark_tried, progress.failed - progress.mark_failed
        size = _size(progress.phase, limits)
        if failed > size * limits.stop_ratio:
            return Step(progress=progress, stop=_stop_words(progress.phase, tried, failed))
        if tried < size:
            rest = progress.phase is ReplayPhase.REST
            return Step(progress=progress, most=None if rest else max(0, size - tried - progress.running))
        progress = replace(
            progress, phase=_after(progress.phase), mark_tried=progress.tried, mark_failed=progress.failed
        )


def _size(phase: ReplayPhase, limits: Limits) -> int:
    return {ReplayPhase.CANARY: 1, ReplayPhase.RAMP: limits.ramp, ReplayPhase.REST: limits.window}[phase]


def _after(phase: ReplayPhase) -> ReplayPhase:
    return ReplayPhase.RAMP if phase is ReplayPhase.CANARY else ReplayPhase.REST


def _stop_words(phase: ReplayPhase, tried: int, failed: int) -> str:
    if phase is ReplayPhase.CANARY:
        return "stopped by itself: the first one failed again"
    return f"stopped by itself: {failed} of the last {tried} failed again"


_SAVED_S = 0.25


# -- The rate ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How many items the rate lets start now, and how many seconds before now it is then used up to (at least 0)."""

    items: int
    rest_s: float = field(default=0.0)


def allow(rate_per_s: float | None, unused_s: float, wanted: int) -> Allowance:
    """Return what a rate allows after `unused_s` seconds without use; a quarter of a second is saved, or one item."""
    if rate_per_s is None:
        return Allowance(items=wanted)
    saved_s = min(unused_s, max(_SAVED_S, 1 / rate_per_s))
    items = min(wanted, int(saved_s * rate_per_s + 1e-9))
    return Allowance(items=items, rest_s=max(0.0, saved_s - items / rate_per_s))


def duration_s(items: int, rate_per_s: float | None) -> float | None:
    """Return how long so many items take at a rate at least; None = it is not known."""
    return None if rate_per_s is None else items / rate_per_s


def count_verdicts(planned: Iterable[Planned]) -> Mapping[ReplayVerdict, int]:
    """Count the lines by verdict; verdicts that do not occur are left out."""
    counts: dict[ReplayVerdict, int] = {}
    for line in planned:
        counts[line.verdict] = counts.get(line.verdict, 0) + 1
    return counts
