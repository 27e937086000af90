"""The page Now: in five seconds a newcomer sees whether all is well."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.audit import list_recent_acts
from console.faults import Fault, read_or_fault
from console.models import AuditAction, AuditEntry
from console.now_page import StationView, list_stations, say_now
from console.permissions import Action
from console.starting import is_starting
from console.stations import Station, station_history
from console.views.page import permitted, render_page
from console.watch import watch_once
from dlq import facade as dlq_facade
from relay import facade as relay_facade

HISTORY_MINUTES = 60
HISTORY_POINTS = 30
TWIN_ROWS = 12
CHANGES_SHOWN = 8


class Change(NamedTuple):
    """One line of "Changed lately"."""

    at: datetime
    words: str
    who: str
    aspect: str


@require_safe
@permitted(Action.VIEW)
def now(request: HttpRequest) -> HttpResponse:
    """Show the verdict, the open incidents, the line and what changed lately.

    The page also keeps the watch when beat does not (ADR 0002): what it judges is never older than a refresh.
    """
    relay = read_or_fault("The relay's status could not be read", relay_facade.get_relay_status)
    topics = read_or_fault("The topics could not be read", relay_facade.list_topics)
    lag = read_or_fault("The lag could not be read", relay_facade.get_lag_overview)
    dlq = read_or_fault("The dead letters could not be read", dlq_facade.get_dlq_status)
    read_or_fault("The watch could not look", watch_once)
    incidents = read_or_fault("The open incidents could not be read", relay_facade.list_open_incidents)
    history = read_or_fault("The samples of the stations could not be read", _histories)
    processes = read_or_fault("The processes could not be read", relay_facade.list_processes)
    starting = not isinstance(processes, Fault) and is_starting(processes, settings.STARTING_GRACE_S)
    stations = list_stations(
        relay,
        topics,
        lag,
        dlq,
        {} if isinstance(history, Fault) else history,
        growing_at=settings.DEAD_LETTERS_GROWING_PER_HOUR,
        starting=starting,
    )
    as_of = timezone.now()
    context = {
        "as_of": as_of,
        "sentence": say_now(stations, incidents, relay, dlq, starting=starting),
        "incidents": incidents,
        "stations": stations,
        "faults": [fault for fault in (relay, topics, lag, dlq, history) if isinstance(fault, Fault)],
        "twin": _twin(stations, as_of),
        "changes": read_or_fault("What changed lately could not be read", _changes),
    }
    return render_page(request, "now/now.html", context)


def _histories() -> dict[str, Sequence[float | None]]:
    stations = [station for station in Station if station is not Station.CRASHES]
    return {s.value: station_history(s, minutes=HISTORY_MINUTES, points=HISTORY_POINTS) for s in stations}


def _twin(stations: Sequence[StationView], as_of: datetime) -> list[tuple[datetime, list[float | None]]]:
    """The sparklines as one table: a row every five minutes, newest first."""
    step = HISTORY_POINTS / TWIN_ROWS
    places = [HISTORY_POINTS - 1 - int(step * row) for row in range(TWIN_ROWS)]
    piece = timedelta(minutes=HISTORY_MINUTES) / HISTORY_POINTS
    return [
        (
            as_of - piece * (HISTORY_POINTS - 1 - place),
            [station.history[place] if station.history else None for station in stations],
        )
        for place in places
    ]


def _say_act(entry: AuditEntry) -> str:
    """The act, on what when there is more than one of its kind, and why."""
    on = {"group": f" of {entry.object_id}", "incident": f" “{entry.detail.get('title', '')}”"}.get(
        entry.object_kind, ""
    )
    change = f" from {entry.detail['before']:,} to {entry.detail['after']:,}" if "after" in entry.detail else ""
    return f"{AuditAction(entry.action).label}{on}{change}{f': {entry.reason}' if entry.reason else ''}"


def _changes() -> list[Change]:
    """Acts of people and incidents that closed, newest first."""
    acts = [
        Change(
            at=entry.at,
            words=_say_act(entry),
            who=entry.actor_name,
            aspect="",
        )
        for entry in list_recent_acts(CHANGES_SHOWN)
    ]
    closed = [
        Change(at=i.closed_at, words=f"Right again: {i.title}", who="automatic", aspect="ok")
        for i in relay_facade.list_recent_incidents()
        if i.closed_at is not None
    ]
    return sorted([*acts, *closed], key=lambda change: change.at, reverse=True)[:CHANGES_SHOWN]
