import pytest
from django.db import connection

from relay.facade import (
    acknowledge_incident,
    close_incident,
    list_open_incidents,
    list_processes,
    list_recent_incidents,
    open_incident,
    record_heartbeat,
    record_stop,
    run_if_due,
)
from relay.models import Incident
from relay.types import Aspect, IncidentKind, Role

pytestmark = pytest.mark.django_db

TEXTS = {"title": "the relay is silent", "meaning": "rows wait", "action": "start it"}


def test_an_incident_is_open_once_a_cause():
    assert open_incident(IncidentKind.RELAY_SILENT, "relay", **TEXTS)
    assert not open_incident(IncidentKind.RELAY_SILENT, "relay", **TEXTS)
    assert open_incident(IncidentKind.LAG_STOPPED, "relay", **TEXTS)
    assert [i.times for i in list_open_incidents()] == [1, 2]


def test_a_closed_cause_can_open_again():
    open_incident(IncidentKind.RELAY_SILENT, "relay", **TEXTS)
    assert close_incident(IncidentKind.RELAY_SILENT, "relay")
    assert not close_incident(IncidentKind.RELAY_SILENT, "relay")
    assert open_incident(IncidentKind.RELAY_SILENT, "relay", **TEXTS)
    assert Incident.objects.count() == 2


def test_taking_an_incident_that_only_tells_what_happened_closes_it_and_the_next_one_opens_anew():
    open_incident(IncidentKind.RELAY_ORDER_BROKEN, "refund-events", **TEXTS)
    open_incident(IncidentKind.RELAY_SILENT, "relay", **TEXTS)
    for incident in list_open_incidents():
        assert acknowledge_incident(incident.id, actor="ann")
    assert [i.kind for i in list_open_incidents()] == [IncidentKind.RELAY_SILENT]
    (told,) = list_recent_incidents()
    assert (told.kind, told.acknowledged_by) == (IncidentKind.RELAY_ORDER_BROKEN, "ann")
    assert open_incident(IncidentKind.RELAY_ORDER_BROKEN, "refund-events", **TEXTS)


def test_a_stopped_process_is_not_lost_and_a_killed_one_counts_a_crash():
    record_heartbeat(Role.RELAY, "relay-1", doing="publishing", facts={"shards": "64"})
    record_stop("relay-1")
    record_heartbeat(Role.RELAY, "relay-1")
    assert [p.crashes for p in list_processes()] == [0]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE relay_process SET pid = 1")
    record_heartbeat(Role.RELAY, "relay-1")
    (process,) = list_processes()
    assert (process.crashes, process.verdict.aspect) == (1, Aspect.WARN)


def test_a_sweep_runs_once_in_its_interval():
    ran = []
    for _ in range(2):
        run_if_due("s", every_s=60, runner="t", job=lambda: ran.append(1))
    assert ran == [1]
