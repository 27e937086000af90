"""What a simulation says, in words. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from console.words import count_words, duration_words, number_words
from dlq.facade import PolicySimulation, Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The headline with its state, what it is drawn from, and what cannot be known."""

    state: str
    headline: str
    facts: Sequence[tuple[str, str]]
    limits: Sequence[str]


def say_simulation(found: PolicySimulation) -> Said:
    """Say what a policy would have done."""
    total = found.result.total
    return Said(state=_state(total), headline=_headline(found), facts=_facts(found), limits=_limits(found))


def _state(total: Tally) -> str:
    if not total.records:
        return "idle"
    if total.lost:
        return "warn"
    return "ok" if total.saved else "info"


def _headline(found: PolicySimulation) -> str:
    total = found.result.total
    days = count_words(found.days, "day")
    if not total.records:
        return f"No record that this policy would count for has failed and ended in the last {days}."
    parts = []
    if total.parked:
        parts.append(f"would have saved {number_words(total.saved)} of {count_words(total.parked, 'parked record')}")
    if total.lost:
        parts.append(f"would have parked {number_words(total.lost)} that recovered")
    if not parts:
        parts.append(f"would have changed nothing for {count_words(total.recovered, 'record')} that recovered")
    added = found.result.worst_added_s
    parts.append(f"worst added delay {duration_words(added)}" if added else "no added delay")
    return f"In the last {days} it {', '.join(parts)}."


def _facts(found: PolicySimulation) -> list[tuple[str, str]]:
    total, more = found.result.total, found.result.tries_more
    if not total.records:
        return []
    facts = [
        ("Parked", _of(total.saved, "saved", total.parked_unknown, total.parked)),
        ("Recovered after failures", _of(total.lost, "parked instead", total.recovered_unknown, total.recovered)),
        ("Tries", f"{number_words(abs(more))} {'more' if more > 0 else 'fewer'}" if more else "as many"),
        ("Worst added delay", duration_words(found.result.worst_added_s) if found.result.worst_added_s else "none"),
    ]
    if found.result.waiting:
        facts.append(("Not ended yet", f"{count_words(found.result.waiting, 'record')}, left out"))
    return facts


def _of(number: int, word: str, unknown: int, whole: int) -> str:
    doubt = f", {number_words(unknown)} cannot be known" if unknown else ""
    return f"{number_words(whole)}: {number_words(number)} {word}{doubt}"


def _limits(found: PolicySimulation) -> list[str]:
    total, policy = found.result.total, found.policy
    limits = []
    if total.unknown:
        limits.append(
            f"Of {count_words(total.unknown, 'record')} it cannot be known: nobody met that failure again when the"
            " further try would have been."
        )
    limits.append(
        "That a failure was over is read from records with the same fingerprint that succeeded later, by a retry or"
        " a replay. Waits are taken at their longest; the handlers' own time, a Retry-After and what an open breaker"
        " holds are not counted."
    )
    if any(name.startswith("HTTP ") for name in policy.overrides):
        limits.append("An override of an HTTP status is not simulated: a recorded try has the error's class alone.")
    if policy.overrides:
        limits.append("An override is matched with the outermost error alone; a live one looks at its causes too.")
    if found.is_cut:
        limits.append("There were more tries than are looked at: the newest are.")
    if found.unseen:
        limits.append(f"{count_words(found.unseen, 'record')} began before the time that is looked at: left out.")
    return limits
