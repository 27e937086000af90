"""How replays are said in words: scope, consequence, verdict."""

from django.conf import settings
from django.utils import timezone

from console.words import clock_words, count_words, duration_words, number_words
from dlq.types import (
    VERDICT_WORDS,
    DeadLetterFilter,
    ReplayJob,
    ReplayMode,
    ReplayPhase,
    ReplayPreview,
    ReplayState,
    ReplayVerdict,
)
from relay.types import Aspect, Verdict

_GOOD = {ReplayVerdict.ELIGIBLE: Aspect.OK, ReplayVerdict.FOLLOWS: Aspect.OK, ReplayVerdict.APPLIED: Aspect.IDLE}
_DOUBTFUL = (ReplayVerdict.HAZARD, ReplayVerdict.BEHIND, ReplayVerdict.LOOP_GUARD, ReplayVerdict.IN_REPLAY)


def scope_words(preview: ReplayPreview, rate_per_s: float | None) -> str:
    """What a replay would take and how long: "Replay 214 dead letters of claim-workers, ..., at 50/s: about 5 s"."""
    parts = [f"Replay {count_words(preview.runnable, 'dead letter', 'dead letters')} of {preview.group}"]
    if preview.followers:
        parts.append(f"with {number_words(preview.followers)} that wait behind them")
    if preview.selection.filter is not None:
        parts += filter_words(preview.selection.filter)
        parts.append(f"parked before {_clock(preview)}")
    return f"{', '.join(parts)}, {pace_words(preview.runnable + preview.followers, rate_per_s)}"


def filter_words(wanted: DeadLetterFilter) -> list[str]:
    """What a filter narrows to, a part each."""
    named = (
        ("topic", wanted.topic),
        ("type", wanted.event_type),
        ("error", wanted.error_class),
        ("key", wanted.key_label),
        ("failure group", "" if wanted.failure_group is None else f"G-{wanted.failure_group}"),
        ("fingerprint", wanted.fingerprint),
        ("failed again at least", str(wanted.replays or "")),
    )
    return [f"{name} {text}" for name, text in named if text]


def pace_words(items: int, rate_per_s: float | None) -> str:
    """The rate and what it means: "at 50/s: about 5 s"."""
    if rate_per_s is None:
        return "as fast as the consumers can"
    return f"at {number_words(rate_per_s)}/s: about {duration_words(items / rate_per_s)}"


def judge_verdict(verdict: ReplayVerdict) -> Verdict:
    """A preview's verdict with its lamp."""
    aspect = _GOOD.get(verdict) or (Aspect.WARN if verdict in _DOUBTFUL else Aspect.BAD)
    return Verdict(aspect=aspect, word=VERDICT_WORDS[verdict])


def consequence_words(preview: ReplayPreview) -> list[str]:
    """What happens when the replay is started."""
    share = f"{settings.REPLAY_STOP_RATIO:.0%}".replace("%", "\N{NO-BREAK SPACE}%")
    pace = f"One goes first, then {settings.REPLAY_RAMP_ITEMS}, then the rest. It pauses by itself when more than "
    pace += f"{share} fail again. It can be paused and cancelled; what was not begun stays parked."
    if preview.mode is ReplayMode.TOPIC:
        first = (
            f"{preview.group} is no group of Signalbox: each record is sent to its topic again with its own event id. "
            "Its outcome is then sent: whether it was applied, only its own consumer knows."
        )
        return [first, pace]
    first = (
        f"Each goes through its handler again, in the consumers of {preview.group}, with its own event id. "
        "An event that was applied already has no second effect. Order inside each key is kept."
    )
    return [first, pace]


def judge_job(job: ReplayJob) -> Verdict:
    """The state of a replay in one word, with why."""
    if job.state is ReplayState.RUNNING:
        if job.waiting_for:
            return Verdict(aspect=Aspect.WARN, word="waiting", reason=job.waiting_for.removeprefix("waiting "))
        return Verdict(aspect=Aspect.INFO, word="replaying")
    if job.state is ReplayState.PAUSED:
        return Verdict(aspect=Aspect.WARN, word="paused", reason=job.why)
    if job.state is ReplayState.CANCELLED:
        return Verdict(aspect=Aspect.IDLE, word="cancelled", reason=job.why)
    if job.failed:
        return Verdict(aspect=Aspect.WARN, word="finished", reason=f"{number_words(job.failed)} failed again")
    return Verdict(aspect=Aspect.OK, word="finished")


def stages_of(job: ReplayJob) -> list[tuple[Aspect, str, bool]]:
    """The stages as (lamp, words, is the one that it is in)."""
    words = {
        ReplayPhase.CANARY: "First 1",
        ReplayPhase.RAMP: f"Next {settings.REPLAY_RAMP_ITEMS}",
        ReplayPhase.REST: "The rest",
    }
    order = list(words)
    at = len(order) if job.state is ReplayState.FINISHED else order.index(job.phase)
    return [(_stage_aspect(job, number, at), words[phase], number == at) for number, phase in enumerate(order)]


def _stage_aspect(job: ReplayJob, number: int, at: int) -> Aspect:
    if number < at:
        return Aspect.OK
    if number > at:
        return Aspect.IDLE
    return Aspect.INFO if job.state is ReplayState.RUNNING else Aspect.WARN


def _clock(preview: ReplayPreview) -> str:
    return clock_words(timezone.localtime(preview.as_of), timezone.localtime())
