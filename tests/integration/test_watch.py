"""The watch on real tables: incidents open and close by the facts, stations are sampled, Valkey is asked."""

import socket
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.db import connection

from console import watch
from console.models import StationSample
from console.stations import Station, crashes_rise, forget_old_samples, record_stations, station_history
from relay.facade import list_open_incidents, open_incident, record_heartbeat, record_stop
from relay.models import LagGroup, LagLatest, LagPass
from relay.types import IncidentKind, Role

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh_probe(monkeypatch):
    monkeypatch.setattr(watch, "_probe", watch._ValkeyProbe())


@pytest.fixture(autouse=True)
def no_grace(settings):
    """The processes of these tests are all young (`tests/unit/test_starting.py` has the grace)."""
    settings.STARTING_GRACE_S = 0


def look():
    with connection.cursor() as cursor:
        cursor.execute("UPDATE relay_sweep SET last_started_at = NULL")
    assert watch.watch_once()
    return {(i.kind, i.cause) for i in list_open_incidents()}


def age_process(name, seconds):
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_process SET seen_at = seen_at - make_interval(secs => %s) WHERE name = %s", [seconds, name]
        )


def store_lag(group, word, lag=312, reason="no member, 312 waiting", error=""):
    now = datetime.now(UTC)
    LagPass.objects.update_or_create(id=1, defaults={"finished_at": now, "interval_s": 5, "collector": "t"})
    LagGroup.objects.update_or_create(
        name=group, defaults={"state": "Empty", "protocol": "classic", "members": 0, "at": now, "error": error}
    )
    LagLatest.objects.update_or_create(
        group=group,
        topic="claim-events",
        partition=0,
        defaults={
            "at": now, "first_seen_at": now, "committed": 0, "begin": 0, "end": lag, "word": word, "reason": reason,
            "trend": "rising", "drain_words": "unknown",
        },
    )  # fmt: skip


def until(condition, within_s=5):
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
    return found


def test_a_look_that_is_not_due_does_nothing():
    assert watch.watch_once()
    assert not watch.watch_once()


def test_a_lost_process_opens_an_incident_that_closes_when_it_is_back():
    record_heartbeat(Role.RELAY, "relay-1")
    assert (IncidentKind.PROCESS_LOST, "relay-1") not in look()
    age_process("relay-1", settings.PROCESS_LOST_AFTER_S + 1)
    assert (IncidentKind.PROCESS_LOST, "relay-1") in look()
    record_heartbeat(Role.RELAY, "relay-1")
    assert (IncidentKind.PROCESS_LOST, "relay-1") not in look()


def test_a_process_that_is_forgotten_is_no_incident_any_more():
    record_heartbeat(Role.RELAY, "relay-1")
    age_process("relay-1", settings.PROCESS_LOST_AFTER_S + 1)
    assert (IncidentKind.PROCESS_LOST, "relay-1") in look()
    age_process("relay-1", settings.PROCESS_FORGET_AFTER.total_seconds())
    assert (IncidentKind.PROCESS_LOST, "relay-1") not in look()


def test_beat_is_silent_until_it_beats_and_again_when_it_stops():
    silent = (IncidentKind.BEAT_SILENT, "beat")
    assert silent in look()
    record_heartbeat(Role.BEAT, "beat")
    assert silent not in look()
    record_stop("beat")
    assert silent in look()


def test_a_stopped_group_opens_one_incident_that_closes_when_it_moves():
    store_lag("claim-workers", "stopped")
    assert (IncidentKind.LAG_STOPPED, "claim-workers") in look()
    store_lag("claim-workers", "ok", reason="within 50", lag=3)
    assert (IncidentKind.LAG_STOPPED, "claim-workers") not in look()


def test_a_group_that_turns_from_stopped_to_stalled_changes_its_incident():
    store_lag("claim-workers", "stopped")
    look()
    store_lag("claim-workers", "stalled")
    found = look()
    assert (IncidentKind.LAG_STALLED, "claim-workers") in found
    assert (IncidentKind.LAG_STOPPED, "claim-workers") not in found


def test_a_group_that_cannot_be_read_does_not_hide_a_stopped_one():
    store_lag("claim-workers", "stopped")
    store_lag("mail-workers", "ok", error="Broker: Not coordinator")
    found = look()
    assert (IncidentKind.LAG_STOPPED, "claim-workers") in found
    assert (IncidentKind.LAG_UNREADABLE, "mail-workers") in found


def test_a_data_loss_that_the_consumers_reported_is_not_closed_by_the_watch():
    texts = {"title": "t", "meaning": "m", "action": "a"}
    open_incident(IncidentKind.DATA_LOSS, "claim-workers claim-events 3", **texts)
    open_incident(IncidentKind.DATA_LOSS, "lag: gone-group", **texts)
    found = look()
    assert (IncidentKind.DATA_LOSS, "claim-workers claim-events 3") in found
    assert (IncidentKind.DATA_LOSS, "lag: gone-group") not in found


def test_a_source_that_fails_blinds_the_watch_to_nothing_else(monkeypatch):
    store_lag("claim-workers", "stopped")
    assert (IncidentKind.LAG_STOPPED, "claim-workers") in look()

    def broken():
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    monkeypatch.setattr(watch.relay, "get_lag_troubles", broken)
    record_heartbeat(Role.RELAY, "relay-1")
    age_process("relay-1", settings.PROCESS_LOST_AFTER_S + 1)
    found = look()
    assert (IncidentKind.PROCESS_LOST, "relay-1") in found
    assert (IncidentKind.LAG_STOPPED, "claim-workers") in found


def test_an_open_incident_is_told_again_only_after_a_while():
    def seen():
        return next(i for i in list_open_incidents() if i.kind is IncidentKind.LAG_STOPPED)

    store_lag("claim-workers", "stopped")
    look()
    store_lag("claim-workers", "stopped", lag=400, reason="no member, 400 waiting")
    look()
    assert "312 waiting" in seen().title
    with connection.cursor() as cursor:
        cursor.execute("UPDATE relay_incident SET last_seen_at = last_seen_at - interval '6 s'")
    look()
    assert "400 waiting" in seen().title
    assert seen().times == 2


# -- Valkey ------------------------------------------------------------------------------------------------
def test_valkey_that_answers_is_no_incident():
    until(lambda: watch.valkey_answers() is True)
    assert (IncidentKind.VALKEY_DOWN, "valkey") not in look()


def test_a_closed_port_is_valkey_down(settings):
    settings.VALKEY_URL = "redis://127.0.0.1:9/0"
    until(lambda: watch.valkey_answers() is False)
    assert (IncidentKind.VALKEY_DOWN, "valkey") in look()


def test_a_valkey_that_hangs_does_not_slow_the_look_down(settings):
    """A listener that takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.VALKEY_URL = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        started = time.monotonic()
        assert watch.valkey_answers() is None
        assert time.monotonic() - started < settings.VALKEY_PING_TIMEOUT_MS / 1000
        until(lambda: watch.valkey_answers() is False)
        assert (IncidentKind.VALKEY_DOWN, "valkey") in look()


# -- Stations ----------------------------------------------------------------------------------------------
def test_each_look_samples_the_stations_that_could_be_read():
    store_lag("claim-workers", "stopped", lag=312)
    look()
    sampled = dict(StationSample.objects.values_list("station", "value"))
    assert sampled["consumers"] == 312.0
    assert sampled["dlq"] == 0.0


def test_station_history_keeps_peaks_and_leaves_out_what_was_not_sampled():
    now = datetime.now(UTC)
    for minutes_ago, value in [(59, 1.0), (58.5, 7.0), (1, 3.0), (70, 99.0)]:
        sample = StationSample.objects.create(station="outbox", value=value)
        StationSample.objects.filter(pk=sample.pk).update(at=now - timedelta(minutes=minutes_ago))
    history = station_history("outbox", minutes=60, points=30)
    assert history[0] == 7.0
    assert history[-1] == 3.0
    assert [v for v in history if v is not None] == [7.0, 3.0]
    assert len(history) == 30


def test_an_unknown_station_is_refused():
    with pytest.raises(ValueError, match="moon"):
        station_history("moon")


def test_crashes_rise_by_what_was_sampled():
    assert crashes_rise(600) is None
    for crashes in (2.0, 2.0, 5.0):
        record_stations({Station.CRASHES: crashes})
    assert crashes_rise(600) == 3


def test_old_samples_are_forgotten():
    record_stations({Station.API: 1.0})
    StationSample.objects.update(at=datetime.now(UTC) - settings.STATION_SAMPLE_RETENTION - timedelta(minutes=1))
    record_stations({Station.API: 2.0})
    forget_old_samples()
    assert list(StationSample.objects.values_list("value", flat=True)) == [2.0]
