"""What the page Now says: the stations of the line and the sentence above them. Pure: read models in, words out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from console.faults import Fault
from console.words import NBSP, count_words, duration_words, join_words, number_words
from dlq.types import DlqStatus
from relay.types import Aspect, IncidentView, LagOverview, RelayStatus, Severity, TopicSpec, Verdict

NAMED_PROBLEMS = 2
SAID_IN_S_FROM_MS = 1_000
_UNKNOWN = Verdict(aspect=Aspect.UNKNOWN, word="unknown", reason="it could not be read")
_WAITING = Verdict(aspect=Aspect.UNKNOWN, word="unknown", reason="not collected yet")
_SLOW_TO_START = frozenset({"outbox", "relay", "consumers"})
_WORST = (Aspect.BAD, Aspect.WARN, Aspect.UNKNOWN, Aspect.INFO, Aspect.IDLE, Aspect.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class StationView:
    """One station: its number with unit and label, how it is judged, and which incidents are about it.

    `key` names its samples; `page` is a URL name; `siding`: what lies there is held until somebody acts.
    """

    key: str
    name: str
    page: str
    figure: str
    unit: str
    label: str
    verdict: Verdict
    history: Sequence[float | None] = ()
    kinds: tuple[str, ...] = ()
    siding: bool = False
    last_on_line: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """The first thing that is read: a state, one word for it, and the words."""

    aspect: Aspect
    word: str
    text: str


def list_stations(
    relay: RelayStatus | Fault,
    topics: Sequence[TopicSpec] | Fault,
    lag: LagOverview | Fault,
    dlq: DlqStatus | Fault,
    history: Mapping[str, Sequence[float | None]],
    *,
    growing_at: int,
    starting: bool = False,
) -> list[StationView]:
    """The stations in the order of the line; a source that failed leaves its stations unknown, never empty.

    More than `growing_at` records parked in the last hour is growth. While everything is `starting`, what is silent
    is called so and accused of nothing.
    """
    stations = [
        _api(relay, history),
        _outbox(relay, history),
        _relay(relay, history),
        _topics(topics, history),
        _consumers(lag, history),
        _dead_letters(dlq, history, growing_at),
    ]
    return [_grant_grace(station) for station in stations] if starting else stations


def _grant_grace(station: StationView) -> StationView:
    if station.key not in _SLOW_TO_START or station.verdict.aspect in (Aspect.OK, Aspect.IDLE):
        return station
    return replace(station, verdict=Verdict(aspect=Aspect.INFO, word="starting"))


def say_now(
    stations: Sequence[StationView],
    incidents: Sequence[IncidentView] | Fault,
    relay: RelayStatus | Fault,
    dlq: DlqStatus | Fault,
    *,
    starting: bool = False,
) -> Sentence:
    """Say what is wrong first, then what moves. Never "all is well" when a source could not be read."""
    known = [] if isinstance(incidents, Fault) else list(incidents)
    problems = _problems(stations, known)
    moves = _what_moves(relay, dlq)
    if problems:
        aspect = min((aspect for aspect, _ in problems), key=_WORST.index)
        return Sentence(aspect=aspect, word=_WORDS[aspect], text=f"{_name(problems)} {moves}".strip())
    if starting:
        text = f"Signalbox has only just been started; what is silent is judged in a moment. {moves}"
        return Sentence(aspect=Aspect.INFO, word="starting", text=text.strip())
    unread = [s.name for s in stations if s.verdict.aspect is Aspect.UNKNOWN]
    if isinstance(incidents, Fault):
        unread.append("the incidents")
    if unread:
        text = f"Nothing is known to be wrong, but {join_words(unread)} cannot be judged now. {moves}"
        return Sentence(aspect=Aspect.UNKNOWN, word="not all known", text=text.strip())
    return Sentence(
        aspect=Aspect.OK, word="clear", text=" ".join(filter(None, ["All is well.", _say_parked(dlq), moves]))
    )


_WORDS = {Aspect.BAD: "needs you", Aspect.WARN: "caution"}


def _problems(stations: Sequence[StationView], incidents: Sequence[IncidentView]) -> list[tuple[Aspect, str]]:
    """Worst first: open incidents by title, and stations that are judged worse than their incidents say."""
    told = [(Aspect(i.severity.value), i.title.rstrip(".")) for i in incidents]
    for station in stations:
        aspect = station.verdict.aspect
        if aspect not in _WORDS or _is_told(station, incidents):
            continue
        told.append((aspect, f"{station.name}: {station.verdict}"))
    return sorted(told, key=lambda problem: _WORST.index(problem[0]))


def _is_told(station: StationView, incidents: Sequence[IncidentView]) -> bool:
    own = [i for i in incidents if station.kinds and i.kind.value.startswith(station.kinds)]
    if station.verdict.aspect is Aspect.BAD:
        own = [i for i in own if i.severity is Severity.BAD]
    return bool(own)


def _name(problems: Sequence[tuple[Aspect, str]]) -> str:
    named = [text[:1].upper() + text[1:] for _, text in problems[:NAMED_PROBLEMS]]
    rest = len(problems) - len(named)
    more = f" {count_words(rest, 'more thing needs', 'more things need')} a look." if rest else ""
    return f"{'. '.join(named)}.{more}"


def _what_moves(relay: RelayStatus | Fault, dlq: DlqStatus | Fault) -> str:
    if isinstance(relay, Fault) or (relay.appended_per_s is None and relay.sent_per_s is None):
        return "" if isinstance(relay, Fault) else "Nothing was published in the last minute."
    parts = [
        f"{_rate(relay.appended_per_s)} events a second in",
        f"{_rate(relay.sent_per_s)} sent",
    ]
    if not isinstance(dlq, Fault) and dlq.applied_per_s is not None:
        parts.append(f"{_rate(dlq.applied_per_s)} applied")
    return f"{', '.join(parts)}."


def _say_parked(dlq: DlqStatus | Fault) -> str:
    """Dead letters are nobody's emergency while they are few, but never passed over."""
    if isinstance(dlq, Fault) or not dlq.open:
        return ""
    new = f", {number_words(dlq.parked_last_hour)} parked in the last hour" if dlq.parked_last_hour else ""
    return f"{count_words(dlq.open, 'dead letter waits', 'dead letters wait')} for a look{new}."


def _rate(value: float | None) -> str:
    return number_words(value or 0.0, decimals=0 if (value or 0) >= 100 else 1)


def _api(relay: RelayStatus | Fault, history: Mapping[str, Sequence[float | None]]) -> StationView:
    values = history.get("api", ())
    if isinstance(relay, Fault):
        return _unread(key="api", name="API", page="relay", label="events appended", history=values)
    busy = bool(relay.appended_per_s)
    verdict = Verdict(aspect=Aspect.OK, word="clear") if busy else Verdict(aspect=Aspect.IDLE, word="idle")
    return StationView(
        key="api",
        name="API",
        page="relay",
        figure=_rate(relay.appended_per_s),
        unit="/s",
        label="events appended",
        verdict=verdict,
        history=values,
    )


def _outbox(relay: RelayStatus | Fault, history: Mapping[str, Sequence[float | None]]) -> StationView:
    values = history.get("outbox", ())
    kinds = ("relay_unsent", "relay_row", "relay_order", "relay_duplicate", "relay_partitions", "relay_restored")
    if isinstance(relay, Fault):
        return _unread(
            key="outbox", name="Outbox", page="relay", label="oldest unsent row", history=values, kinds=kinds
        )
    if relay.oldest is None:
        verdict = Verdict(aspect=Aspect.OK, word="clear", reason="every row is sent")
        return StationView(
            key="outbox",
            name="Outbox",
            page="relay",
            figure="0",
            unit="rows",
            label="wait",
            verdict=verdict,
            history=values,
            kinds=kinds,
        )
    figure, unit = _age(relay.oldest.age_s)
    waiting = f"{'at least ' if relay.unsent.capped else ''}{count_words(relay.unsent.value, 'row waits', 'rows wait')}"
    aspect = relay.verdict.aspect if relay.verdict.aspect in _WORDS else Aspect.OK
    word = "waiting" if aspect in _WORDS else "moving"
    return StationView(
        key="outbox",
        name="Outbox",
        page="relay",
        figure=figure,
        unit=unit,
        label="oldest unsent row",
        verdict=Verdict(aspect=aspect, word=word, reason=waiting),
        history=values,
        kinds=(*kinds, "relay_"),
    )


def _relay(relay: RelayStatus | Fault, history: Mapping[str, Sequence[float | None]]) -> StationView:
    values = history.get("relay", ())
    if isinstance(relay, Fault):
        return _unread(key="relay", name="Relay", page="relay", label="events sent", history=values, kinds=("relay_",))
    slow = f", p99 within {_latency(relay.latency_p99_ms)}" if relay.latency_p99_ms is not None else ""
    return StationView(
        key="relay",
        name="Relay",
        page="relay",
        figure=_rate(relay.sent_per_s),
        unit="/s",
        label=f"sent{slow}",
        verdict=relay.verdict,
        history=values,
        kinds=("relay_",),
    )


def _topics(topics: Sequence[TopicSpec] | Fault, history: Mapping[str, Sequence[float | None]]) -> StationView:
    values = history.get("topics", ())
    if isinstance(topics, Fault):
        return _unread(key="topics", name="Topics", page="lag", label="partitions", history=values)
    partitions = sum(topic.partitions for topic in topics)
    verdict = (
        Verdict(aspect=Aspect.OK, word="declared")
        if topics
        else Verdict(aspect=Aspect.IDLE, word="idle", reason="no topic is declared")
    )
    return StationView(
        key="topics",
        name="Topics",
        page="lag",
        figure=number_words(partitions),
        unit="partition" if partitions == 1 else "partitions",
        label=f"in {count_words(len(topics), 'topic')}",
        verdict=verdict,
        history=values,
    )


def _consumers(lag: LagOverview | Fault, history: Mapping[str, Sequence[float | None]]) -> StationView:
    values = history.get("consumers", ())
    kinds = ("lag_", "data_loss", "consumer_")
    if isinstance(lag, Fault):
        return _unread(
            key="consumers",
            name="Consumers",
            page="lag",
            label="worst lag",
            history=values,
            kinds=kinds,
            last_on_line=True,
        )
    known = [(p.lag, p) for group in lag.groups for p in group.partitions if p.lag is not None]
    worst_lag = max((value for value, _ in known), default=None)
    return StationView(
        key="consumers",
        name="Consumers",
        page="lag",
        figure=number_words(worst_lag) if worst_lag is not None else "?",
        unit="offsets",
        label="worst lag of a partition",
        verdict=_worst_group(lag),
        history=values,
        kinds=kinds,
        last_on_line=True,
    )


def _worst_group(lag: LagOverview) -> Verdict:
    if lag.as_of is None:
        return _WAITING
    if not lag.groups:
        return Verdict(aspect=Aspect.IDLE, word="idle", reason="no consumer group")
    worst = min(lag.groups, key=lambda group: _WORST.index(group.verdict.aspect))
    if worst.verdict.aspect in (Aspect.OK, Aspect.IDLE):
        return _say_calm(lag)
    return Verdict(aspect=worst.verdict.aspect, word=worst.verdict.word, reason=worst.group)


def _say_calm(lag: LagOverview) -> Verdict:
    """Nobody is needed: idle when every group is; "caught up" only where no partition has more than it may."""
    aspect = Aspect.OK if any(group.verdict.aspect is Aspect.OK for group in lag.groups) else Aspect.IDLE
    late = sum(p.lag for g in lag.groups for p in g.partitions if p.lag is not None and p.lag > g.allowed_lag)
    if late:
        return Verdict(aspect=Aspect.OK, word="moving", reason=f"{number_words(late)} wait")
    word = "caught up" if aspect is Aspect.OK else "idle"
    return Verdict(aspect=aspect, word=word, reason=count_words(len(lag.groups), "group"))


def _judge_parked(last_hour: int, growing_at: int) -> Verdict:
    """Amber is for the same growth that opens an incident; a few parked records are everyday."""
    if not last_hour:
        return Verdict(aspect=Aspect.IDLE, word="parked", reason="none in the last hour")
    grew = f"{number_words(last_hour)} in 1{NBSP}h"
    if last_hour > growing_at:
        return Verdict(aspect=Aspect.WARN, word="growing", reason=grew)
    return Verdict(aspect=Aspect.IDLE, word="parked", reason=grew)


def _dead_letters(
    dlq: DlqStatus | Fault, history: Mapping[str, Sequence[float | None]], growing_at: int
) -> StationView:
    values = history.get("dlq", ())
    if isinstance(dlq, Fault):
        return _unread(
            key="dlq",
            name="Dead letters",
            page="dead_letters",
            label="open",
            history=values,
            kinds=("dead_letter",),
            siding=True,
        )
    if dlq.open == 0:
        verdict = Verdict(aspect=Aspect.OK, word="clear")
    else:
        verdict = _judge_parked(dlq.parked_last_hour, growing_at)
    label = f"oldest {duration_words(dlq.oldest_age_s)}" if dlq.oldest_age_s is not None else "nothing is parked"
    return StationView(
        key="dlq",
        name="Dead letters",
        page="dead_letters",
        figure=number_words(dlq.open),
        unit="open",
        label=label,
        verdict=verdict,
        history=values,
        kinds=("dead_letter",),
        siding=True,
    )


def _unread(**known: Any) -> StationView:
    return StationView(figure="?", unit="", verdict=_UNKNOWN, **known)


def _latency(value_ms: float) -> str:
    """Latencies are counted in buckets: this is the upper edge of one."""
    if value_ms < SAID_IN_S_FROM_MS:
        return f"{number_words(value_ms, decimals=0)}{NBSP}ms"
    return duration_words(value_ms / 1000)


def _age(seconds: float) -> tuple[str, str]:
    """The figure and its last unit: ("0.9", "s"), ("4 m 10", "s")."""
    figure, _, unit = duration_words(seconds).rpartition(NBSP)
    return figure, unit
