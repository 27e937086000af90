"""Policies in the console: what counts, drafts with their preview, versions, roll-back, and who may."""

from uuid import uuid4

import pytest
from django.db import connection

from console.models import AuditEntry
from dlq.facade import PolicyTarget, get_retry_policy, handler, set_retry_policy
from dlq.handlers import unregister_group
from relay.facade import declare_topic, get_relay_policy
from relay.types import TopicSpec
from tests.web.pages import EVIL, words_of

pytestmark = pytest.mark.django_db

WHY = "the bank is slow in the evening"
DRAFT = {
    "max_attempts": "12",
    "unknown_attempts": "4",
    "base_s": "5",
    "factor": "2",
    "max_s": "600",
    "jitter": "0.2",
    "retry_after_max_s": "60",
    "ordering": "block",
    "overrides": "KeyError = transient\nHTTP 409 = transient",
}


@pytest.fixture
def group():
    name = f"group-{uuid4().hex[:10]}"
    handler(topic="claims", group=name, event_types=["claim.opened"])(lambda event, tx: None)
    yield name
    unregister_group(name)


@pytest.fixture
def topic():
    return declare_topic(TopicSpec(name=f"policies-{uuid4().hex[:10]}")).name


@pytest.fixture
def admin(as_role):
    return as_role("admin")


def audited():
    return [(e.action, e.object_id, e.reason) for e in AuditEntry.objects.order_by("id")]


def set_version(group, seen=0, **changes):
    target = PolicyTarget(group)
    document = get_retry_policy(target).policy.as_json() | changes
    return set_retry_policy(target, document, expected_version=seen, actor="ada", reason=f"version {seen + 1}")


def note_tries(group, records, *, outcome="parked", error="TimeoutError", failure_class="transient", **places):
    """Records that were tried three times with waits of 5 s, the first an hour ago."""
    with connection.cursor() as cursor:
        for offset in range(records):
            event_id = places.get("event_id") or uuid4()
            for number in (1, 2, 3):
                cursor.execute(
                    "INSERT INTO dlq_attempt (group_name, topic, partition, log_offset, handler, event_id, event_type,"
                    " key_label, number, outcome, failure_class, error_class, fingerprint, at) VALUES (%s, 'claims', 0,"
                    " %s, 'h', %s, 'claim.opened', 'key#1', %s, %s, %s, %s, 'f1',"
                    " clock_timestamp() - '1 h'::interval + make_interval(secs => %s))",
                    [
                        group,
                        offset + places.get("first", 0),
                        event_id,
                        number,
                        "waits" if number < 3 else outcome,
                        failure_class,
                        error,
                        5 * number + places.get("later_s", 0),
                    ],
                )


# -- What counts -------------------------------------------------------------------------------------------
def test_the_list_says_whose_policy_counts_for_each_target(as_role, group, topic):
    set_version(group, max_attempts=4)
    words = words_of(as_role("viewer").get("/policies/"))
    assert f"{group} 4 " in words
    assert "its own, version 1" in words
    assert f"from {group}, version 1" in words  # its topic and event type
    assert "Everything 10 42 m 35 s 3 attempts, 15 s quarantine" in words
    assert f"{topic} 10 5.0 s block its key none the settings' values" in words


def test_a_group_without_a_policy_is_explained(as_role, group):
    words = words_of(as_role("viewer").get("/policies/consumer/", {"subject": group}))
    assert "What counts: the settings' values" in words
    assert "Gives up 42 m 35 s after the first failure" in words
    assert "Tried again after 5.0 s, 15 s, 35 s, 1 m 15 s" in words
    assert "It never had a policy of its own" in words


def test_a_stored_version_that_today_is_out_of_bounds_is_said_not_to_count(as_role, group, settings):
    set_version(group, max_attempts=50, max_s=60)
    settings.DLQ_POLICY_ATTEMPTS_MAX = 20
    for address in ("/policies/", f"/policies/consumer/?subject={group}"):
        words = words_of(as_role("viewer").get(address)) if "subject" not in address else ""
        words = words or words_of(as_role("support").get(address))
        assert "cannot be read" in words


def test_the_table_of_errors_is_the_one_that_is_used(as_role):
    words = words_of(as_role("viewer").get("/policies/errors/"))
    for name in ("KeyError", "psycopg.errors.DataError", "httpx.TransportError", "EHOSTUNREACH"):
        assert name in words
    assert "408, 425, 429 and every 5xx" in words


# -- Drafts ------------------------------------------------------------------------------------------------
def test_a_draft_shows_what_it_changes_and_changes_nothing(as_role, group):
    viewer = as_role("viewer")
    words = words_of(viewer.get("/policies/consumer/edit/", {"subject": group, **DRAFT}))
    assert "Attempts changes 10 12" in words
    assert "Override of KeyError changes none transient: tried again" in words
    assert "Growth 2 times the wait before the same" in words
    assert "No record that this policy would count for has failed and ended in the last 7 days" in words
    assert (
        "Gives up changes 42 m 35 s after the first failure 50 m 35 s after the first failure; a record with a" in words
    )
    assert "needs admin" in words
    assert get_retry_policy(PolicyTarget(group)).own_version == 0
    assert audited() == []


def test_the_simulation_counts_saved_records_and_what_cannot_be_known(admin, group):
    note_tries(group, 12)
    note_tries(group, 1, outcome="applied", first=100, later_s=20)  # the failure was over 35 s after it began
    words = words_of(admin.get("/policies/consumer/edit/", {"subject": group, **DRAFT, "max_attempts": "5"}))
    assert "In the last 7 days it would have saved 12 of 12 parked records, worst added delay 25 s." in words
    assert "TimeoutError h 12 12 1 0 0" in words
    shorter = {**DRAFT, "max_attempts": "1", "unknown_attempts": "1", "ordering": "quarantine"}
    words = words_of(admin.get("/policies/consumer/edit/", {"subject": group, **shorter}))
    assert "would have parked 1 that recovered" in words


def test_the_simulation_leaves_out_records_of_a_more_specific_policy(admin, group):
    note_tries(group, 3)
    set_retry_policy(
        PolicyTarget(group, "claims"),
        get_retry_policy(PolicyTarget(group)).policy.as_json(),
        expected_version=0,
        actor="ada",
        reason="x",
    )
    words = words_of(admin.get("/policies/consumer/edit/", {"subject": group, **DRAFT}))
    assert "No record that this policy would count for" in words
    words = words_of(admin.get("/policies/consumer/edit/", {"subject": f"{group}/claims", **DRAFT}))
    assert "of 3 parked records" in words


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": "many"},
        {"max_attempts": "0"},
        {"unknown_attempts": "13"},
        {"base_s": "nan"},
        {"base_s": "-1"},
        {"jitter": "1"},
        {"ordering": "drop"},
        {"overrides": "KeyError"},
        {"overrides": "KeyError = drop"},
        {"overrides": "KeyError = transient\nKeyError = schema"},
        {"overrides": "<b>bad</b> = transient"},
        {"days": "0"},
        {"days": "15"},
        {"days": "x"},
    ],
)
def test_a_value_that_cannot_be_is_refused_with_the_draft_as_it_was_typed(admin, group, wrong):
    given = {"subject": group, **DRAFT, **wrong}
    for response in (
        admin.get("/policies/consumer/edit/", given),
        admin.post("/policies/consumer/edit/", {**given, "seen": "0", "reason": WHY})
        if "days" not in wrong
        else admin.get("/policies/consumer/edit/", given),
    ):
        assert response.status_code == 422
        assert b'role="alert"' in response.content
        assert b"<b>bad</b>" not in response.content
        assert f'value="{given["factor"]}"' in response.content.decode()
    assert get_retry_policy(PolicyTarget(group)).own_version == 0
    assert audited() == []


@pytest.mark.parametrize(
    "address",
    [
        "/policies/consumer/?subject=a//b",
        "/policies/consumer/edit/?topic=t",
        "/policies/consumer/edit/?group=g&topic=no%20topic",
        "/policies/relay-topic/?subject=no-such-topic",
        "/policies/relay-topic/edit/?subject=%00",
        "/policies/consumer/?subject=g&from=1&to=x",
        "/policies/consumer/?subject=g&from=1&to=99999999999",
    ],
)
def test_an_address_that_names_nothing_is_refused_in_words(admin, address):
    assert admin.get(address).status_code == 422


def test_an_unknown_scope_is_not_found(admin):
    for address in ("/policies/saga/", "/policies/saga/edit/", "/policies/withdraw/?scope=relay-topic"):
        assert admin.get(address).status_code == 404


def test_names_are_escaped(admin):
    words = admin.get("/policies/consumer/edit/", {"group": EVIL}).content.decode()
    assert EVIL not in words


# -- Changes -----------------------------------------------------------------------------------------------
def test_a_draft_is_set_with_a_reason_and_a_version(admin, group):
    given = {"subject": group, **DRAFT, "seen": "0", "reason": WHY}
    done = admin.post("/policies/consumer/edit/", given)
    assert (done.status_code, done.url) == (303, f"/policies/consumer/?subject={group}")
    line = get_retry_policy(PolicyTarget(group))
    assert (line.own_version, line.set_by, line.reason) == (1, "admin-person", WHY)
    assert (line.policy.max_attempts, line.policy.overrides["HTTP 409"]) == (12, "transient")
    assert audited() == [("policy.set", group, WHY)]
    assert AuditEntry.objects.get().detail["overrides"] == 2
    words = words_of(admin.get(done.url))
    assert "its own, version 1" in words
    assert WHY in words


def test_a_stale_form_changes_nothing_and_says_so(admin, group):
    set_version(group, max_attempts=4)
    stale = admin.post("/policies/consumer/edit/", {"subject": group, **DRAFT, "seen": "0", "reason": WHY})
    assert stale.status_code == 409
    assert "no longer at version 0" in words_of(stale)
    assert get_retry_policy(PolicyTarget(group)).policy.max_attempts == 4
    assert audited() == []


def test_a_change_without_a_reason_keeps_what_was_typed(admin, group):
    response = admin.post("/policies/consumer/edit/", {"subject": group, **DRAFT, "seen": "0", "reason": " "})
    assert response.status_code == 422
    assert "Say why" in words_of(response)
    assert 'name="overrides" value="KeyError = transient' in response.content.decode()


def test_a_version_is_rolled_back_to_as_a_new_version(admin, group):
    set_version(group, 0, max_attempts=4)
    set_version(group, 1, max_attempts=8)
    question = admin.get("/policies/roll-back/", {"scope": "consumer", "subject": group, "version": "1"})
    assert "Attempts 8 → 4" in words_of(question)
    given = {"scope": "consumer", "subject": group, "version": "1", "seen": "2", "reason": WHY}
    done = admin.post("/policies/roll-back/", given)
    assert (done.status_code, done.url) == (303, f"/policies/consumer/?subject={group}")
    line = get_retry_policy(PolicyTarget(group))
    assert (line.own_version, line.policy.max_attempts) == (3, 4)
    assert audited() == [("policy.rolled_back", group, WHY)]
    assert admin.post("/policies/roll-back/", given).status_code == 409
    assert admin.post("/policies/roll-back/", {**given, "version": "3", "seen": "3"}).status_code == 422


def test_a_policy_is_withdrawn_and_comes_back_by_roll_back(admin, group):
    set_version(group, 0, max_attempts=4)
    question = admin.get("/policies/withdraw/", {"scope": "consumer", "subject": group})
    assert "Then the settings' values counts for it" in words_of(question)
    given = {"scope": "consumer", "subject": group, "seen": "1", "reason": WHY}
    assert admin.post("/policies/withdraw/", given).status_code == 303
    line = get_retry_policy(PolicyTarget(group))
    assert (line.is_own, line.own_version, line.policy.max_attempts) == (False, 2, 10)
    assert "withdrawn" in words_of(admin.get("/policies/consumer/", {"subject": group}))
    assert admin.post("/policies/withdraw/", given).status_code == 409
    back = {"scope": "consumer", "subject": group, "version": "1", "seen": "2", "reason": WHY}
    assert admin.post("/policies/roll-back/", back).status_code == 303
    assert get_retry_policy(PolicyTarget(group)).policy.max_attempts == 4
    assert [action for action, *_ in audited()] == ["policy.withdrawn", "policy.rolled_back"]


def test_two_versions_are_compared(admin, group):
    set_version(group, 0, max_attempts=4)
    set_version(group, 1, max_attempts=8)
    words = words_of(admin.get("/policies/consumer/", {"subject": group, "from": "1", "to": "2"}))
    assert "Version 1 against Version 2" in words
    assert "Attempts changes 4 8" in words


def test_who_may_not_is_told_why(as_role, group):
    engineer = as_role("on-call")
    response = engineer.post("/policies/consumer/edit/", {"subject": group, **DRAFT, "seen": "0", "reason": WHY})
    assert response.status_code == 403
    assert "needs admin" in response.content.decode()
    assert get_retry_policy(PolicyTarget(group)).own_version == 0


# -- Topics of the relay -----------------------------------------------------------------------------------
RELAY_DRAFT = {"on_failed": "block", "max_attempts": "4", "first_retry_s": "0.5"}


def test_a_relay_topic_has_the_same_editor(admin, topic):
    given = {"subject": topic, **RELAY_DRAFT, "ingress_max_age_s": "30", "ingress_max_rows": "10,000"}
    words = words_of(admin.get("/policies/relay-topic/edit/", given))
    assert "Attempts changes 10 4" in words
    assert "there is no simulation for it" in words
    done = admin.post("/policies/relay-topic/edit/", {**given, "seen": "0", "reason": WHY})
    assert done.status_code == 303
    now = get_relay_policy(topic)
    assert (now.version, now.on_failed, now.max_attempts, now.first_retry_s) == (1, "block", 4, 0.5)
    assert (now.ingress_max_age_s, now.ingress_max_rows) == (30.0, 10_000)
    assert audited() == [("relay.policy_set", topic, WHY)]
    assert "10,000 rows" in words_of(admin.get("/relay/"))
    stale = admin.post("/policies/relay-topic/edit/", {**given, "seen": "0", "reason": WHY})
    assert stale.status_code == 409
    given = {"subject": topic, **RELAY_DRAFT, "ingress_max_age_s": "", "ingress_max_rows": ""}
    assert admin.post("/policies/relay-topic/edit/", {**given, "seen": "1", "reason": WHY}).status_code == 303
    assert get_relay_policy(topic).ingress_max_age_s is None
    back = {"scope": "relay-topic", "subject": topic, "version": "1", "seen": "2", "reason": WHY}
    assert admin.post("/policies/roll-back/", back).status_code == 303
    assert get_relay_policy(topic).ingress_max_age_s == 30.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": "many"},
        {"max_attempts": "0"},
        {"max_attempts": "9" * 400},
        {"first_retry_s": "soon"},
        {"first_retry_s": "nan"},
        {"first_retry_s": "-1"},
        {"on_failed": "explode"},
        {"ingress_max_rows": "-5"},
        {"ingress_max_age_s": "inf"},
        {"seen": ""},
        {"reason": " "},
    ],
)
def test_a_relay_policy_that_cannot_be_is_refused(admin, topic, wrong):
    response = admin.post(
        "/policies/relay-topic/edit/", {"subject": topic, **RELAY_DRAFT, "seen": "0", "reason": WHY, **wrong}
    )
    assert response.status_code == 422
    assert b'role="alert"' in response.content
    if "reason" not in wrong:
        assert WHY in response.content.decode()
    assert get_relay_policy(topic).version == 0
    assert audited() == []
