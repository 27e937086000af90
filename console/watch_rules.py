"""What is wrong, by the facts of one look: which incidents should be open now. Pure.

Each rule answers for whole kinds: an incident of a kind it answers for that it does not name is over. A rule whose
fact is None (it could not be read) is not asked, and leaves its incidents as they are.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from console.words import count_words, duration_words, join_words, number_words
from relay.types import (
    Aspect,
    GroupLag,
    IncidentKind,
    LagOverview,
    LagWord,
    PartitionLag,
    ProcessView,
    RelayStatus,
    Role,
    Severity,
    UnsentRow,
)

SYSTEM = "/system/"
LOST_NAMED = 4
DATA_LOSS_CAUSE = "lag: "
COLLECTOR = "collector"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchBounds:
    """From which values on something is wrong (seconds and counts, from settings)."""

    relay_silent_s: float
    unsent_old_s: float
    dead_letters_an_hour: int
    crashes: int
    beat_silent_s: float
    sweep_silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFacts:
    """One look at everything. None = it could not be read, so nothing is concluded from it.

    `own_groups`: groups whose data loss the consumers report themselves. `parked_last_hour`: dead letters.
    `crashes_rise`: how many consumers died within the window. `lag_sweep_age_s`: since lag was last collected.
    `starting`: the whole installation has only just been started, so silence is concluded from by and by.
    """

    relay: RelayStatus | None = None
    lag: LagOverview | None = None
    own_groups: Sequence[str] = ()
    processes: Sequence[ProcessView] | None = None
    parked_last_hour: int | None = None
    crashes_rise: int | None = None
    lag_sweep_age_s: float | None = None
    valkey_answers: bool | None = None
    starting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedIncident:
    """An incident that should be open, in the words that people read."""

    kind: IncidentKind
    cause: str
    title: str
    meaning: str
    action: str
    link: str
    severity: Severity = Severity.BAD


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchDecision:
    """`wanted` should be open; every other open incident of `judged` kinds is over.

    Of `DATA_LOSS` only the causes that begin with `DATA_LOSS_CAUSE` are this watch's.
    """

    judged: frozenset[IncidentKind]
    wanted: Sequence[WantedIncident]


def decide_incidents(facts: WatchFacts, bounds: WatchBounds) -> WatchDecision:
    """Ask every rule whose fact is known."""
    judged: set[IncidentKind] = set()
    wanted: list[WantedIncident] = []
    for fact, kinds, rule in _RULES:
        if facts.starting and fact in _SILENT_AT_START:
            continue
        if getattr(facts, fact) is not None:
            judged.update(kinds)
            wanted.extend(rule(facts, bounds))
    return WatchDecision(judged=frozenset(judged), wanted=wanted)


# -- The relay ---------------------------------------------------------------------------------------------
def relay_incidents(facts: WatchFacts, bounds: WatchBounds) -> Iterable[WantedIncident]:
    """Silent (no live runner), or alive with a row that waits too long."""
    status = facts.relay
    if status is None:
        return
    if not any(runner.age_s <= bounds.relay_silent_s for runner in status.runners):
        yield _relay_silent(status)
        return
    # A cluster that cannot be reached has an incident of the relay's own, with the better advice.
    if status.oldest and status.oldest.age_s >= bounds.unsent_old_s and status.circuit_open_since is None:
        yield _unsent_old(status, status.oldest)


def _relay_silent(status: RelayStatus) -> WantedIncident:
    action = "Start Celery beat and the relay worker, or run `manage.py relay`. Rows go out by themselves, in order."
    if status.oldest is None:
        return WantedIncident(
            kind=IncidentKind.RELAY_SILENT,
            cause="relay",
            severity=Severity.WARN,
            title="No relay is running",
            meaning="No row waits now. The next event that is published will wait until a relay runs.",
            action=action,
            link="/relay/",
        )
    at_least = "at least " if status.unsent.capped else ""
    return WantedIncident(
        kind=IncidentKind.RELAY_SILENT,
        cause="relay",
        title=f"The relay is silent: {at_least}{count_words(status.unsent.value, 'row')} wait",
        meaning=(
            f"No relay publishes. The oldest row has waited {duration_words(status.oldest.age_s)}. "
            "Nothing is lost: the rows are committed."
        ),
        action=action,
        link="/relay/",
    )


def _unsent_old(status: RelayStatus, oldest: UnsentRow) -> WantedIncident:
    paused = f"{status.paused_by} paused the relay. " if status.paused_by else ""
    return WantedIncident(
        kind=IncidentKind.RELAY_UNSENT_OLD,
        cause="relay",
        title=f"The oldest unsent row has waited {duration_words(oldest.age_s)}",
        meaning=f"{paused}It is on {oldest.topic} and waits because: {oldest.why}. Nothing is lost.",
        action="Resume the relay when the reason for the pause is over."
        if paused
        else "Open Relay and see what holds it.",
        link="/relay/",
        severity=Severity.WARN if paused else Severity.BAD,
    )


# -- Lag ---------------------------------------------------------------------------------------------------
_LAG_KINDS = {
    LagWord.DATA_LOSS: (IncidentKind.DATA_LOSS, Severity.BAD),
    LagWord.STOPPED: (IncidentKind.LAG_STOPPED, Severity.BAD),
    LagWord.STALLED: (IncidentKind.LAG_STALLED, Severity.BAD),
    LagWord.REWOUND: (IncidentKind.LAG_REWOUND, Severity.WARN),
    LagWord.FALLING_BEHIND: (IncidentKind.LAG_BEHIND, Severity.WARN),
}
_LAG_TEXTS = {
    LagWord.DATA_LOSS: (
        "Kafka deleted records before this group read them. They are gone from the topic for it.",
        "Find out which offsets are missing, then choose where the group resumes.",
    ),
    LagWord.STOPPED: (
        "Records are kept in Kafka and wait. Nothing is lost while retention lasts; nobody reads them.",
        "Start its consumers, or see why they do not commit. Applied events are skipped on the way back.",
    ),
    LagWord.STALLED: (
        "Its owner lives and does not move on this partition. No other partition is delayed by it.",
        "Look at what its owner does. Restart that process if a handler hangs: applied events are skipped.",
    ),
    LagWord.REWOUND: (
        "The committed offset went back, so records are read again. Events that were applied are skipped.",
        "If nobody rewound it on purpose, find out who did. Otherwise wait until it has caught up.",
    ),
    LagWord.FALLING_BEHIND: (
        "More is published than the group gets done, so what waits grows. Nothing is lost.",
        "Add consumers up to the number of partitions, or make the handler faster.",
    ),
}


def lag_incidents(facts: WatchFacts, _bounds: WatchBounds) -> Iterable[WantedIncident]:
    """One incident a group for its worst partition, and one for what could not be read."""
    overview = facts.lag
    if overview is None:
        return
    yield from _collector_incident(overview)
    for group in overview.groups:
        if group.error:
            yield from _unreadable_group(group, overview)
            continue
        yield from _worst_partition(group, facts.own_groups)
        yield from _unreadable_partitions(group)


def _worst_partition(group: GroupLag, own_groups: Sequence[str]) -> Iterable[WantedIncident]:
    for word, (kind, severity) in _LAG_KINDS.items():
        told_elsewhere = word is LagWord.DATA_LOSS and group.group in own_groups
        of_word = [p for p in group.partitions if p.verdict.word == word]
        if told_elsewhere or not of_word:
            continue
        worst = max(of_word, key=lambda p: p.lag or 0)
        meaning, action = _LAG_TEXTS[word]
        yield WantedIncident(
            kind=kind,
            cause=f"{DATA_LOSS_CAUSE}{group.group}" if word is LagWord.DATA_LOSS else group.group,
            severity=severity,
            title=f"{worst.topic} {worst.partition} is {_is(word)} for {group.group}: {worst.verdict.reason}",
            meaning=f"{_also(of_word)}{_owner(worst, group)}{meaning}",
            action=action,
            link=_lag_link(group.group),
        )
        return


def _is(word: LagWord) -> str:
    return {LagWord.DATA_LOSS: "missing data"}.get(word, word.value)


def _also(of_word: Sequence[PartitionLag]) -> str:
    if len(of_word) == 1:
        return ""
    waiting = sum(p.lag or 0 for p in of_word)
    return f"{number_words(len(of_word))} partitions are so, with {number_words(waiting)} waiting in all. "


def _owner(partition: PartitionLag, group: GroupLag) -> str:
    if group.members == 0:
        return "The group has no member. "
    return f"Its owner is {partition.owner}. " if partition.owner else "No member owns it. "


def _collector_incident(overview: LagOverview) -> Iterable[WantedIncident]:
    if not overview.errors:
        return
    more = f" (and {len(overview.errors) - 1} more)" if len(overview.errors) > 1 else ""
    yield WantedIncident(
        kind=IncidentKind.LAG_UNREADABLE,
        cause=COLLECTOR,
        title="Lag could not be read from Kafka",
        meaning=f"{overview.errors[0]}{more}. What could not be read shows nothing rather than old numbers.",
        action="See whether the brokers answer. Reading goes on by itself.",
        link="/lag/",
    )


def _unreadable_group(group: GroupLag, overview: LagOverview) -> Iterable[WantedIncident]:
    if any(group.error and group.error in error for error in overview.errors):
        return
    yield _unreadable(group, f"{group.group} could not be read", str(group.error))


def _unreadable_partitions(group: GroupLag) -> Iterable[WantedIncident]:
    unread = [p for p in group.partitions if p.error]
    if not unread or group.members == 0:
        return
    places = f"{unread[0].topic} {unread[0].partition}" + (f" and {len(unread) - 1} more" if len(unread) > 1 else "")
    yield _unreadable(group, f"{places} could not be read for {group.group}", str(unread[0].error))


def _unreadable(group: GroupLag, title: str, reason: str) -> WantedIncident:
    return WantedIncident(
        kind=IncidentKind.LAG_UNREADABLE,
        cause=group.group,
        severity=Severity.WARN,
        title=title,
        meaning=f"{reason}. These partitions show nothing rather than old numbers; other groups are not affected.",
        action="See whether the broker that coordinates the group answers, and whether the topic still exists.",
        link=_lag_link(group.group),
    )


def _lag_link(group: str) -> str:
    return f"/lag/?{urlencode({'group': group})}"


# -- Dead letters, processes, what ticks -------------------------------------------------------------------
def dead_letter_incidents(facts: WatchFacts, bounds: WatchBounds) -> Iterable[WantedIncident]:
    """Too many were parked within the hour."""
    parked = facts.parked_last_hour or 0
    if parked <= bounds.dead_letters_an_hour:
        return
    yield WantedIncident(
        kind=IncidentKind.DEAD_LETTERS_GROWING,
        cause="dead letters",
        severity=Severity.WARN,
        title=f"{number_words(parked)} dead letters within an hour",
        meaning=(
            f"More than {number_words(bounds.dead_letters_an_hour)} records were parked in the last hour. "
            "Each is kept with its exact bytes; other records go on."
        ),
        action="Open Dead letters, see which error is the most frequent, and mend its cause first.",
        link="/dead-letters/",
    )


def process_incidents(facts: WatchFacts, bounds: WatchBounds) -> Iterable[WantedIncident]:
    """Each process without a heartbeat, and consumers that keep dying."""
    processes = facts.processes or ()
    for process in processes:
        if process.verdict.word == "lost":
            yield _lost(process)
    rise = facts.crashes_rise or 0
    if rise >= bounds.crashes:
        crashed = [p.name for p in processes if p.role is Role.CONSUMER and p.crashed_at is not None]
        yield _crashing(rise, sorted(crashed)[:LOST_NAMED])


def _lost(process: ProcessView) -> WantedIncident:
    is_demo = process.role is Role.DEMO
    return WantedIncident(
        kind=IncidentKind.PROCESS_LOST,
        cause=process.name,
        severity=Severity.WARN if is_demo else Severity.BAD,
        title=f"{process.name} sends no heartbeat",
        meaning=(
            f"A {process.role.value} process (pid {process.pid} on {process.host}) has not been heard of for "
            f"{duration_words(process.age_s)}. It died, hangs, or cannot reach the database. "
            "What it held is taken over when its leases end."
        ),
        action="See on System whether a supervisor restarts it; start it again if none does.",
        link=SYSTEM,
    )


def _crashing(rise: int, names: Sequence[str]) -> WantedIncident:
    who = f" ({join_words(list(names))})" if names else ""
    return WantedIncident(
        kind=IncidentKind.CONSUMER_CRASHING,
        cause="consumers",
        title=f"Consumers died {number_words(rise)} times in the last minutes",
        meaning=f"Consumer processes{who} die and are started again. Records are read again; none is applied twice.",
        action="Read the last lines of their log: one record or one setting may end the process each time.",
        link=SYSTEM,
    )


def beat_incidents(facts: WatchFacts, bounds: WatchBounds) -> Iterable[WantedIncident]:
    """No beat process lives, or it lives and its ticks come to nothing."""
    beats = [p for p in facts.processes or () if p.role is Role.BEAT]
    alive = [p for p in beats if p.age_s <= bounds.beat_silent_s and p.verdict.aspect in {Aspect.OK, Aspect.WARN}]
    idle_s = facts.lag_sweep_age_s
    if alive and (idle_s is None or idle_s <= bounds.sweep_silent_s):
        return
    yield WantedIncident(
        kind=IncidentKind.BEAT_SILENT,
        cause="beat",
        title="Celery beat is silent" if not alive else "Celery beat ticks, and nobody acts on it",
        meaning=_beat_meaning(alive=bool(alive), idle_s=idle_s),
        action=(
            "Start Celery beat (`make up` starts it again by itself). `manage.py relay` publishes without it."
            if not alive
            else "See on System whether the worker of the queue `console` lives and whether Valkey answers."
        ),
        link=SYSTEM,
    )


def _beat_meaning(*, alive: bool, idle_s: float | None) -> str:
    since = "never" if idle_s is None else f"{duration_words(idle_s)} ago"
    what = "Beat lives, but its jobs do not run." if alive else "No beat process lives."
    return f"{what} Relay runners are not started and lag is not read; lag was last read {since}."


def valkey_incidents(facts: WatchFacts, _bounds: WatchBounds) -> Iterable[WantedIncident]:
    """Valkey does not answer."""
    if facts.valkey_answers:
        return
    yield WantedIncident(
        kind=IncidentKind.VALKEY_DOWN,
        cause="valkey",
        title="Valkey does not answer",
        meaning=(
            "Beat cannot start relay runners and pages are not told of changes: they ask again every few seconds. "
            "Consumers and `manage.py relay` go on; nothing is lost."
        ),
        action="Start Valkey again. Until then run `manage.py relay` so that rows are published.",
        link=SYSTEM,
    )


# Their facts speak of a silence that every start begins with.
_SILENT_AT_START = frozenset({"relay", "lag", "processes"})
Rule = Callable[[WatchFacts, WatchBounds], Iterable[WantedIncident]]
_LAG_JUDGED = (*(kind for kind, _ in _LAG_KINDS.values()), IncidentKind.LAG_UNREADABLE)
_RULES: Sequence[tuple[str, Sequence[IncidentKind], Rule]] = (
    ("relay", (IncidentKind.RELAY_SILENT, IncidentKind.RELAY_UNSENT_OLD), relay_incidents),
    ("lag", _LAG_JUDGED, lag_incidents),
    ("parked_last_hour", (IncidentKind.DEAD_LETTERS_GROWING,), dead_letter_incidents),
    ("processes", (IncidentKind.PROCESS_LOST, IncidentKind.CONSUMER_CRASHING), process_incidents),
    ("processes", (IncidentKind.BEAT_SILENT,), beat_incidents),
    ("valkey_answers", (IncidentKind.VALKEY_DOWN,), valkey_incidents),
)
