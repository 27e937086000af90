"""The watch: one look at everything, then incidents open and close by the rules, and the stations are sampled.

Beat calls it every `WATCH_EVERY_S`; a page calls it too, so that incidents open although Valkey and beat are down
(ADR 0002). A source that fails is logged and nothing is concluded from it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import redis
import structlog
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from console.starting import is_starting
from console.stations import crashes_rise, forget_old_samples, measure_stations, record_stations
from console.watch_rules import (
    DATA_LOSS_CAUSE,
    WantedIncident,
    WatchBounds,
    WatchDecision,
    WatchFacts,
    decide_incidents,
)
from dlq import facade as dlq
from dlq.types import DlqStatus
from relay import facade as relay
from relay.types import IncidentKind, IncidentView, LagOverview, ProcessView, RelayStatus, Role, TopicSpec

log = structlog.get_logger(__name__)
T = TypeVar("T")

# A tick that comes a little early still counts.
TICK_SLACK_S = 0.3
FORGET_SAMPLES_EVERY_S = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What the sources said; None = the source failed."""

    relay: RelayStatus | None
    lag: LagOverview | None
    dlq: DlqStatus | None
    topics: list[TopicSpec] | None
    processes: list[ProcessView] | None


def watch_once() -> bool:
    """Look once when it is due and nobody else looks; True when it ran here. Safe to call from a page.

    A handful of queries; Valkey is asked in a thread of its own and waited for `VALKEY_PING_WAIT_MS` at most.
    """
    runner = relay.process_name(Role.WORKER)
    return relay.run_if_due("watch", every_s=settings.WATCH_EVERY_S - TICK_SLACK_S, runner=runner, job=_watch)


def _watch() -> None:
    look = _Look(
        relay=_guarded("relay", relay.get_relay_status),
        lag=_guarded("lag", relay.get_lag_troubles),
        dlq=_guarded("dlq", dlq.get_dlq_status),
        topics=_guarded("topics", lambda: list(relay.list_topics())),
        processes=_guarded("processes", relay.list_processes),
    )
    _apply(decide_incidents(_facts(look), _bounds()))
    every_s = settings.STATION_SAMPLE_EVERY_S - TICK_SLACK_S
    relay.run_if_due("stations", every_s=every_s, runner="watch", job=lambda: _sample(look))
    relay.run_if_due("stations_forget", every_s=FORGET_SAMPLES_EVERY_S, runner="watch", job=_forget)


def _guarded(source: str, read: Callable[[], T]) -> T | None:
    """What the source says, or None: one source that fails does not blind the watch to the others (I3)."""
    try:
        with _savepoint():
            return read()
    except Exception:  # the edge of the loop
        log.exception("watch.source_failed", source=source)
        return None


def _savepoint() -> AbstractContextManager[None]:
    """Inside a caller's transaction a failed statement must not spoil the statements after it."""
    return transaction.atomic() if connection.in_atomic_block else nullcontext()


def _facts(look: _Look) -> WatchFacts:
    return WatchFacts(
        relay=look.relay,
        lag=look.lag,
        own_groups=[group.name for group in _guarded("groups", lambda: list(dlq.list_groups())) or ()],
        processes=look.processes,
        parked_last_hour=look.dlq.parked_last_hour if look.dlq else None,
        crashes_rise=_guarded("crashes", lambda: crashes_rise(settings.CONSUMER_CRASHES_WITHIN_S)),
        lag_sweep_age_s=_guarded("sweeps", lambda: relay.last_finished_age_s("lag")),
        valkey_answers=valkey_answers(),
        starting=is_starting(look.processes or (), settings.STARTING_GRACE_S),
    )


def _bounds() -> WatchBounds:
    return WatchBounds(
        relay_silent_s=settings.RELAY_SILENT_AFTER_S,
        unsent_old_s=settings.RELAY_UNSENT_OLD_S,
        dead_letters_an_hour=settings.DEAD_LETTERS_GROWING_PER_HOUR,
        crashes=settings.CONSUMER_CRASHES_RISING,
        beat_silent_s=settings.BEAT_SILENT_AFTER_S,
        sweep_silent_s=settings.SWEEP_SILENT_AFTER_S,
    )


# -- Incidents ---------------------------------------------------------------------------------------------
def _apply(decision: WatchDecision) -> None:
    is_open = {(incident.kind, incident.cause): incident for incident in relay.list_open_incidents()}
    wanted = {(wanted.kind, wanted.cause[:200]): wanted for wanted in decision.wanted}
    for key, incident in wanted.items():
        if not _is_fresh(is_open.get(key), incident):
            _guarded(incident.kind.value, partial(_open, incident))
    for key, open_incident in is_open.items():
        if key not in wanted and _is_ours(open_incident, decision):
            relay.close_incident(*key)


def _is_fresh(open_incident: IncidentView | None, wanted: WantedIncident) -> bool:
    """Whether an open incident was told so short ago that telling it again would only cost a write."""
    if open_incident is None or open_incident.severity is not wanted.severity:
        return False
    age_s = (timezone.now() - open_incident.last_seen_at).total_seconds()
    return 0 <= age_s < settings.INCIDENT_REFRESH_EVERY_S


def _open(wanted: WantedIncident) -> None:
    relay.open_incident(
        wanted.kind,
        wanted.cause,
        title=wanted.title,
        meaning=wanted.meaning,
        action=wanted.action,
        link=wanted.link,
        severity=wanted.severity,
    )


def _is_ours(incident: IncidentView, decision: WatchDecision) -> bool:
    if incident.kind not in decision.judged:
        return False
    return incident.kind is not IncidentKind.DATA_LOSS or incident.cause.startswith(DATA_LOSS_CAUSE)


# -- Stations ----------------------------------------------------------------------------------------------
def _sample(look: _Look) -> None:
    record_stations(
        measure_stations(relay=look.relay, lag=look.lag, dlq=look.dlq, topics=look.topics, processes=look.processes)
    )


def _forget() -> None:
    forget_old_samples()


# -- Valkey ------------------------------------------------------------------------------------------------
class _ValkeyProbe:
    """PING in a thread of its own: a Valkey that hangs costs the caller `VALKEY_PING_WAIT_MS`, not its timeout."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="valkey-ping")
        self._flying: Future[bool] | None = None
        self._said: bool | None = None

    def ask(self) -> bool | None:
        """Whether it answers; the answer before this one while this one is not there yet; None = not known yet."""
        with self._lock:
            if self._flying is None:
                self._flying = self._pool.submit(_ping, settings.VALKEY_URL, settings.VALKEY_PING_TIMEOUT_MS / 1000)
            try:
                self._said = self._flying.result(timeout=settings.VALKEY_PING_WAIT_MS / 1000)
            except FutureTimeoutError:
                return self._said
            self._flying = None
            return self._said


_probe = _ValkeyProbe()


def valkey_answers() -> bool | None:
    """Whether Valkey answered PING, at most one look ago; None = not known yet."""
    return _probe.ask()


def _ping(url: str, timeout_s: float) -> bool:
    client = redis.Redis.from_url(url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
    try:
        return bool(client.ping())
    except redis.AuthenticationError:
        return True
    except (redis.RedisError, OSError):
        return False
    finally:
        client.close()
