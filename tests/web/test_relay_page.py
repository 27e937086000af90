"""The Relay page: every state of it, on real rows where a test can bring it about, and who may pause and resume."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection, transaction

from console.models import AuditEntry
from relay.facade import declare_topic, get_relay_status, label_key, pause_key, publish
from relay.types import Aspect, CappedCount, DeferredKey, TopicHold, TopicSpec, TopicUnsent, Verdict
from tests.web.pages import EVIL, NOW, relay_status, runner, shards, unsent, words_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def show(monkeypatch):
    """Let the page read this status: for states that a test cannot bring about for real."""

    def put(found=None, **changes):
        def read():
            if isinstance(found, Exception):
                raise found
            return relay_status(**changes)

        monkeypatch.setattr("console.views.relay.get_relay_status", read)

    return put


@pytest.fixture
def viewer(as_role):
    return as_role("viewer")


@pytest.fixture
def topic():
    name = f"pages-{uuid4().hex[:10]}"
    declare_topic(TopicSpec(name=name))
    return name


# -- On real rows ------------------------------------------------------------------------------------------
def test_a_committed_row_that_no_relay_took_is_the_oldest_unsent_with_its_reason(viewer, topic):
    with transaction.atomic():
        event = publish(topic, key="customer-ada-4471", type="claim.opened", payload={"iban": "XX44 secret"})
    response = viewer.get("/relay/")
    words = words_of(response)
    assert topic in words
    assert str(event.id)[-8:] in words
    assert get_relay_status().oldest.why in words
    assert "claim.opened" in words
    assert b"customer-ada-4471" not in response.content
    assert b"secret" not in response.content


def test_with_nothing_unsent_the_page_says_that_every_row_is_acknowledged(viewer):
    words = words_of(viewer.get("/relay/"))
    assert "Caught up: every committed row is acknowledged" in words
    assert "No runner is alive" in words
    assert "manage.py relay" in words


def test_pausing_needs_a_reason_shows_it_to_everybody_and_is_audited(as_role):
    engineer = as_role("on-call")
    refused = engineer.post("/relay/pause/", {"reason": " ", "next": "/relay/"})
    assert refused.status_code == 422
    assert "Say why" in words_of(refused)
    paused = engineer.post("/relay/pause/", {"reason": "broker upgrade until 14:00", "next": "/relay/"})
    assert (paused.status_code, paused.url) == (303, "/relay/")
    words = words_of(as_role("viewer").get("/relay/"))
    assert "Paused by on-call-person since" in words
    assert "broker upgrade until 14:00" in words
    assert engineer.post("/relay/pause/", {"reason": "again", "next": "/relay/"}).status_code == 409
    assert engineer.post("/relay/resume/", {"next": "/relay/"}).status_code == 303
    assert "Paused by" not in words_of(engineer.get("/relay/"))
    assert AuditEntry.objects.count() == 2


# -- Who ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", ["viewer", "on-call", "support", "admin"])
def test_every_role_sees_the_page(as_role, show, role):
    show()
    assert as_role(role).get("/relay/").status_code == 200


def test_a_stranger_sees_nothing(as_role, show):
    show()
    assert as_role("stranger").get("/relay/").status_code == 403


@pytest.mark.parametrize("paused_by", [None, "t.wolski"])
@pytest.mark.parametrize(("role", "may"), [("viewer", False), ("support", False), ("on-call", True), ("admin", True)])
def test_the_switch_is_there_for_everybody_and_says_who_may_use_it(as_role, show, role, may, paused_by):
    show(paused_by=paused_by, paused_at=paused_by and NOW)
    response = as_role(role).get("/relay/")
    act = "resume" if paused_by else "pause"
    assert (f'href="/relay/{act}/?next='.encode() in response.content) is may
    assert ("this needs on-call or admin" in words_of(response)) is not may
    assert ('aria-disabled="true" aria-describedby="why-' in response.content.decode()) is not may


# -- Every state -------------------------------------------------------------------------------------------
def test_the_verdict_comes_first_and_is_read_out_when_it_changes(viewer, show):
    show(verdict=Verdict(aspect=Aspect.BAD, word="silent", reason="no runner for 12 s"))
    response = viewer.get("/relay/")
    assert words_of(response).startswith("Relay silent: no runner for 12 s")
    assert b'data-announce="relay"' in response.content


def test_rates_and_latency_have_their_scope(viewer, show):
    show()
    words = words_of(viewer.get("/relay/"))
    assert "rates and latency over the last 1 m" in words
    assert "38 / s sent" in words
    assert "38.2 / s written" in words
    assert "p99 within 84 ms" in words


def test_with_no_traffic_the_figures_say_that_nothing_was_sent(viewer, show):
    show(appended_per_s=None, sent_per_s=None, latency_p50_ms=None, latency_p99_ms=None)
    words = words_of(viewer.get("/relay/"))
    assert "0 / s sent no row was written" in words
    assert "nothing sent so there is nothing to measure" in words


def test_waiting_rows_say_why_each_waits_and_a_capped_count_says_at_least(viewer, show):
    waiting = [unsent(1, age_s=250), unsent(2, why="its topic is held: not authorised")]
    show(oldest=waiting[0], waiting=waiting, unsent=CappedCount(value=10_000, capped=True))
    words = words_of(viewer.get("/relay/"))
    assert "Oldest unsent row 4 m 10 s" in words
    assert "no runner holds shard 7" in words
    assert "its topic is held: not authorised" in words
    assert "at least 10,000" in words
    assert "counting stops there" in words
    assert "key#3fa81c20" in words


def test_unsent_rows_are_counted_by_topic(viewer, show):
    show(
        unsent_by_topic=[
            TopicUnsent(topic="claim-events", unsent=CappedCount(value=312), oldest_age_s=250.0),
            TopicUnsent(topic="refund-events", unsent=CappedCount(value=0), oldest_age_s=None),
        ]
    )
    words = words_of(viewer.get("/relay/"))
    assert "claim-events 312 4 m 10 s" in words
    assert "refund-events 0 none" in words


def test_an_open_circuit_says_that_no_attempt_is_lost(viewer, show):
    show(circuit_open_since=NOW - timedelta(minutes=5))
    words = words_of(viewer.get("/relay/"))
    assert "Kafka cannot be reached since" in words
    assert "no attempt is used up" in words


def test_a_transaction_that_holds_late_rows_is_named(viewer, show):
    show(blocked_by="pid 4711, open for 4 m 10 s, application nightly-report")
    assert "pid 4711, open for 4 m 10 s, application nightly-report" in words_of(viewer.get("/relay/"))


def test_few_partitions_ahead_are_warned_of(viewer, show):
    show(partitions_ahead=4)
    assert "Only 4 of 8 outbox partitions are ready ahead" in words_of(viewer.get("/relay/"))
    show(partitions_ahead=8)
    assert "Only" not in words_of(viewer.get("/relay/"))


def test_failed_keys_come_before_those_that_are_tried_again_with_their_cause(viewer, show):
    def key(label, **changes):
        what = {"attempts": 3, "due_at": NOW, "failed": False, "error": "MSG_SIZE_TOO_LARGE", **changes}
        return DeferredKey(shard=1, topic="claim-events", key_label=label, rows=12, first_position=9, **what)

    show(deferred=[key("key#aaaaaaaa"), key("key#bbbbbbbb", failed=True, due_at=None)])
    words = words_of(viewer.get("/relay/"))
    assert words.index("key#bbbbbbbb failed: needs a person") < words.index("key#aaaaaaaa tried again")
    assert "MSG_SIZE_TOO_LARGE" in words
    assert "1 failed" in words
    assert "none planned" in words


def test_a_key_that_a_person_paused_is_not_said_to_be_tried_again(viewer, topic):
    with transaction.atomic():
        event = publish(topic, key="ada", type="t", payload=1)
    pause_key(topic, b"ada", actor="grace", reason="a bad record")
    with connection.cursor() as cursor:  # as the relay does with a row of a paused key
        cursor.execute(
            "INSERT INTO relay_deferred (shard, position, topic, key, event_id)"
            " SELECT shard, position, topic, key, id FROM relay_outbox WHERE id = %s",
            [event.id],
        )
    words = words_of(viewer.get("/relay/"))
    assert f"{label_key(b'ada')} of {topic} grace" in words
    assert "tried again" not in words
    assert "Retry" not in words


def test_a_held_topic_says_why_and_since_when(viewer, show):
    show(holds=[TopicHold(topic="ledger-events", shards=9, since=NOW, reason="Kafka does not know this topic")])
    words = words_of(viewer.get("/relay/"))
    assert "ledger-events Kafka does not know this topic" in words
    assert "Nothing is held" not in words


def test_runners_and_shards_are_shown_as_a_map_in_words_and_as_a_table(viewer, show):
    show(
        runners=[runner("relay-1"), runner("relay-2", lease_left_s=0, shards=[])],
        shards=[*shards("relay-1")[:63], *shards(None)[63:]],
    )
    response = viewer.get("/relay/")
    words = words_of(response)
    assert "A relay-1 draining 8.0 s 1,204 3 0-31 polling celery 4711 on host-a" in words
    assert "B relay-2 lease ran out" in words
    assert "64 shards: 63 held by A, relay-1; 1 held by nobody." in words
    cells = re.search(r'<ol class="shards".*?</ol>', response.content.decode(), re.DOTALL)[0]
    assert cells.count("<li") == 64
    twin = re.search(r'<details class="twin"\s+id="shards-twin".*?</details>', response.content.decode(), re.DOTALL)[0]
    assert twin.count("<tr>") == 65


def test_a_status_that_cannot_be_read_is_a_fault_with_an_id_to_quote(viewer, show):
    show(RuntimeError("boom"))
    response = viewer.get("/relay/")
    assert "The state of the relay could not be read" in words_of(response)
    assert "Quote" in words_of(response)
    assert b"boom" not in response.content


# -- Hostile texts, bounds, live ---------------------------------------------------------------------------
def test_texts_are_escaped(viewer, show):
    show(
        verdict=Verdict(aspect=Aspect.BAD, word=EVIL, reason=EVIL),
        waiting=[unsent(topic=EVIL, type=EVIL, why=EVIL, key_label=EVIL)],
        holds=[TopicHold(topic=EVIL, shards=1, since=NOW, reason=EVIL)],
        runners=[runner(EVIL, host=EVIL, state=EVIL)],
        shards=shards(EVIL),
        paused_by=EVIL,
        paused_at=NOW,
        paused_reason=EVIL,
        blocked_by=EVIL,
    )
    response = viewer.get("/relay/")
    assert response.status_code == 200
    assert EVIL.encode() not in response.content


def test_a_live_refresh_gets_the_panels_without_the_frame_or_the_form(viewer, show):
    show()
    page, panels = viewer.get("/relay/"), viewer.get("/relay/", headers={"HX-Request": "true"})
    assert b"<html" not in panels.content
    assert "HX-Request" in panels["Vary"]
    live = re.findall(r'id="([\w-]+)"\s+(?:class="[^"]*"\s+)?data-live="relay', page.content.decode())
    assert {"relay-notes", "relay-figures", "relay-waiting", "relay-runners"} <= set(live)
    # The charts are refreshed from a page of their own: the others come often, and they are the costly ones.
    assert all(f'id="{panel}"'.encode() in panels.content for panel in live if panel != "relay-history")
    assert b'id="relay-history"' not in panels.content
    assert b'data-live-url="/relay/history/' in page.content


def test_a_full_page_of_waiting_rows_stays_small(viewer, show):
    show(waiting=[unsent(n) for n in range(100)], shards=shards(), runners=[runner(f"relay-{n}") for n in range(20)])
    assert len(viewer.get("/relay/").content) < 300_000


def test_reading_the_page_takes_few_queries(viewer, django_assert_max_num_queries):
    with django_assert_max_num_queries(34, connection=connection):
        viewer.get("/relay/")


def test_a_live_refresh_takes_few_queries_however_much_waits(viewer, topic, django_assert_max_num_queries):
    with transaction.atomic():
        for n in range(300):
            publish(topic, key=f"k{n}", type="t", payload=n)
    with django_assert_max_num_queries(34, connection=connection):
        viewer.get("/relay/", headers={"HX-Request": "true"})
