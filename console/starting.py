"""Whether the whole installation has only just been started: what is silent then is not yet wrong. Pure."""

from collections.abc import Sequence

from relay.types import Aspect, ProcessView

_ALIVE = (Aspect.OK, Aspect.WARN)


def is_starting(processes: Sequence[ProcessView], grace_s: float) -> bool:
    """Some process lives, and none has lived for `grace_s` seconds.

    A restart of one process among others is no start: the others are older.
    """
    uptimes = [uptime_s(process) for process in processes if process.verdict.aspect in _ALIVE]
    return bool(uptimes) and max(uptimes) < grace_s


def uptime_s(process: ProcessView) -> float:
    """Seconds since the process started, by the database clock."""
    return (process.seen_at - process.started_at).total_seconds() + process.age_s
