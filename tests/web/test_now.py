import re

import pytest

from console.faults import Fault
from console.models import AuditEntry
from console.now_page import list_stations, say_now
from dlq import facade as dlq_facade
from relay import facade
from relay.facade import acknowledge_incident, close_incident, open_incident
from relay.types import Aspect, IncidentKind, Severity

pytestmark = pytest.mark.django_db
BROKEN = Fault(what="broken", todo="wait", correlation_id="c0ffee00")
SOURCES = {
    "relay": ("console.views.now.relay_facade.get_relay_status", "The relay&#x27;s status could not be read"),
    "topics": ("console.views.now.relay_facade.list_topics", "The topics could not be read"),
    "lag": ("console.views.now.relay_facade.get_lag_overview", "The lag could not be read"),
    "dlq": ("console.views.now.dlq_facade.get_dlq_status", "The dead letters could not be read"),
    "incidents": ("console.views.now.relay_facade.list_open_incidents", "The open incidents could not be read"),
    "history": ("console.views.now.station_history", "The samples of the stations could not be read"),
    "watch": ("console.views.now.watch_once", ""),
}


def open_one(severity=Severity.BAD, title="Beat is silent"):
    open_incident(
        IncidentKind.BREAKER_OPEN, "x", title=title, meaning="rows <wait>", action="start `it`", severity=severity
    )
    return next(i for i in facade.list_open_incidents() if i.kind is IncidentKind.BREAKER_OPEN)


def break_source(monkeypatch, path):
    def fail(*_args, **_kwargs):
        raise RuntimeError("the source is broken")

    monkeypatch.setattr(path, fail)


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_one_broken_source_shows_a_fault_and_leaves_the_rest(as_role, monkeypatch, source):
    path, words = SOURCES[source]
    break_source(monkeypatch, path)
    answer = as_role("viewer").get("/")
    assert answer.status_code == 200
    assert words in answer.text
    assert answer.text.count('class="stn"') == 6
    assert "All is well" not in answer.text
    if words:
        assert re.search(r'Quote\s+<span class="id">[0-9a-f]{8}</span>', answer.text)


def test_an_open_incident_comes_first_with_meaning_action_and_runbook(as_role):
    open_one(title="The <b>breaker</b> is open")
    text = as_role("on-call").get("/").text
    assert "The &lt;b&gt;breaker&lt;/b&gt; is open" in text
    assert "rows &lt;wait&gt;" in text
    assert "start <code>it</code>" in text
    assert "/runbooks/breaker-open/" in text


def test_taking_an_incident_is_shown_and_audited_and_the_second_is_too_late(as_role):
    incident = open_one()
    on_call, support = as_role("on-call"), as_role("support")
    assert on_call.post(f"/incidents/{incident.id}/acknowledge/", follow=True).status_code == 200
    late = support.post(f"/incidents/{incident.id}/acknowledge/")
    assert (late.status_code, "on-call-person has taken this incident already" in late.text) == (409, True)
    (entry,) = AuditEntry.objects.all()
    assert (entry.actor_name, entry.action, entry.detail["cause"]) == ("on-call-person", "incident.acknowledged", "x")
    assert entry.request_id


def test_a_closed_incident_cannot_be_taken(as_role):
    incident = open_one()
    close_incident(IncidentKind.BREAKER_OPEN, "x")
    answer = as_role("on-call").post(f"/incidents/{incident.id}/acknowledge/")
    assert answer.status_code == 409
    assert AuditEntry.objects.count() == 0


def test_without_the_permission_the_button_stays_with_its_reason(as_role):
    open_one()
    text = as_role("viewer").get("/").text
    assert 'aria-disabled="true"' in text
    assert "You are in viewer; this needs on-call, support or admin." in text


def test_a_live_refresh_gets_the_panels_without_the_frame(as_role):
    answer = as_role("viewer").get("/", headers={"HX-Request": "true"})
    assert "<html" not in answer.text
    assert {'id="now-head"', 'id="incidents"', 'id="line"', 'id="nav"'} <= set(re.findall(r'id="[\w-]+"', answer.text))
    assert "HX-Request" in answer.headers["Vary"]


def test_without_javascript_the_page_loads_itself_again(as_role):
    assert re.search(r'<noscript>\s*<meta http-equiv="refresh" content="10">', as_role("viewer").get("/").text)


def test_the_database_away_is_a_readable_503(as_role, monkeypatch):
    from django.db import OperationalError

    def gone():
        raise OperationalError("no route")

    viewer = as_role("viewer")
    monkeypatch.setattr("console.views.now.relay_facade.get_relay_status", gone)
    answer = viewer.get("/", headers={"X-Request-ID": "from-the-proxy-1"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "PostgreSQL does not answer" in answer.text
    assert "from-the-proxy-1" in answer.text


def test_the_database_away_before_the_view_is_a_readable_503_too(as_role, monkeypatch):
    from django.contrib.sessions.backends.db import SessionStore
    from django.db import OperationalError

    def gone(_self):
        raise OperationalError("no route")

    viewer = as_role("viewer")
    viewer.raise_request_exception = False
    monkeypatch.setattr(SessionStore, "load", gone)
    answer = viewer.get("/")
    assert answer.status_code == 503
    assert "PostgreSQL does not answer" in answer.text
    assert answer.headers["X-Request-ID"] in answer.text


def test_an_error_in_a_view_is_a_500_with_its_id(as_role, monkeypatch):
    viewer = as_role("viewer")
    viewer.raise_request_exception = False
    break_source(monkeypatch, "console.views.now.say_now")
    answer = viewer.get("/")
    assert answer.status_code == 500
    assert answer.headers["X-Request-ID"] in answer.text
    assert "the source is broken" not in answer.text


def read_all():
    return facade.get_relay_status(), facade.list_topics(), facade.get_lag_overview(), dlq_facade.get_dlq_status()


def test_the_sentence_never_says_well_when_a_source_is_unread():
    relay, topics, lag, dlq = read_all()
    for broken in ("relay", "lag", "dlq"):
        sources = {"relay": relay, "lag": lag, "dlq": dlq, broken: BROKEN}
        stations = list_stations(sources["relay"], topics, sources["lag"], sources["dlq"], {}, growing_at=100)
        said = say_now(stations, [], sources["relay"], sources["dlq"])
        assert said.aspect is not Aspect.OK
        assert "cannot be judged" in said.text or said.aspect in {Aspect.BAD, Aspect.WARN}
    assert say_now([], BROKEN, relay, dlq).aspect is Aspect.UNKNOWN


def test_the_sentence_names_the_worst_first_and_counts_the_rest():
    open_incident(
        IncidentKind.VALKEY_DOWN, "v", title="Valkey is slow.", meaning="m", action="a", severity=Severity.WARN
    )
    open_incident(IncidentKind.DATA_LOSS, "d", title="records are lost", meaning="m", action="a")
    open_incident(IncidentKind.BEAT_SILENT, "b", title="Beat is silent", meaning="m", action="a")
    relay, _, _, dlq = read_all()
    said = say_now([], facade.list_open_incidents(), relay, dlq)
    assert (said.aspect, said.word) == (Aspect.BAD, "needs you")
    assert said.text.startswith("Beat is silent. Records are lost. 1\N{NO-BREAK SPACE}more thing needs a look.")


def test_an_empty_sentence_is_all_is_well():
    relay, _, _, dlq = read_all()
    assert say_now([], [], relay, dlq).text.startswith("All is well.")


def test_a_taken_incident_cannot_be_taken_by_the_service_again():
    incident = open_one()
    assert acknowledge_incident(incident.id, actor="a")
    assert not acknowledge_incident(incident.id, actor="b")
