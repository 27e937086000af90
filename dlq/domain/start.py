"""Where a partition starts when Kafka does not know. Pure."""

from dataclasses import dataclass
from typing import assert_never


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Read from `offset`; None = the beginning of what the broker has."""

    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Records from `first` up to before `upto` are gone, or the log is shorter than what was read (`count` None)."""

    first: int
    upto: int
    count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anew:
    """The topic was deleted and made anew under its name: its offsets start again, and so does the reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A person chose where to go on after a loss: from `offset`, which the group's offset becomes at once."""

    offset: int


Decision = Start | Lost


def decide_start(*, committed: int | None, remembered: int | None, first: int) -> Decision:
    """Decide from Kafka's committed offset (None = none), our own remembered one, and the first offset there is.

    - Kafka has a committed offset but not the record: lost, a person chooses (D7).
    - Kafka forgot the offset (it expired): go on from ours when the record is still there, else lost.
    - Nobody ever committed: the first start, from the beginning.
    """
    if committed is not None:
        return Lost(first=committed, upto=first, count=first - committed if first > committed else None)
    if remembered is None:
        return Start(offset=None)
    if remembered >= first:
        return Start(offset=remembered)
    return Lost(first=remembered, upto=first, count=first - remembered)


def describe_loss(lost: Lost) -> str:
    """Say what is gone in one line."""
    if lost.count is None:
        return f"offset {lost.first} is beyond the log, which was cut or made anew (it begins at {lost.upto})"
    return f"{lost.count} offsets are gone: {lost.first} to {lost.upto - 1}"


def describe_start(decision: Decision) -> str:
    """Say what was decided, for the log."""
    match decision:
        case Start(offset=None):
            return "first start: from the beginning"
        case Start():
            return f"offset expired in Kafka: goes on from our own, {decision.offset}"
        case Lost():
            return describe_loss(decision)
        case _:
            assert_never(decision)
