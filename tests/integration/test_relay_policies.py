"""Policies of the relay: versions, and what the relay does with a row that used its attempts up."""

import signal

import pytest
from django.db import connection, transaction

from dlq import relay_parking
from dlq.facade import get_dead_letter, list_dead_letters
from dlq.models import DeadLetter
from dlq.originals import decode_headers
from dlq.types import DeadLetterFilter
from relay.checks import check_ports
from relay.errors import BadPolicy, BadReason, StalePolicy, UnknownTopic
from relay.facade import (
    get_relay_policy,
    get_relay_status,
    list_policy_versions,
    list_relay_policies,
    publish,
    retry_now,
    save_policy,
    set_ingress_hold,
    set_relay_policy,
)
from relay.ports import register_park
from relay.types import IncidentKind, OnFailed, PolicyScope
from tests.relay_helpers import (
    alter_topic,
    count_unsent,
    end_leases,
    event_id,
    has_incident,
    make_topic,
    read_topic,
    relay_child,
    run_relay_until_drained,
    running_relay,
    skip_to_now,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()


def set_policy(topic, **changes):
    wanted = {
        "on_failed": "block",
        "max_attempts": 3,
        "first_retry_s": 1,
        "expected_version": 0,
        "actor": "ann",
        "reason": "tests",
    }
    return set_relay_policy(topic, **(wanted | changes))


def test_a_topic_without_a_policy_has_the_settings_values_as_version_0(settings):
    policy = get_relay_policy(make_topic(create=False))
    assert (policy.version, policy.on_failed, policy.max_attempts) == (0, OnFailed.BLOCK, settings.RELAY_RETRY_ATTEMPTS)
    assert policy.set_by is None


def test_every_change_of_a_policy_is_a_version_with_who_and_why():
    topic = make_topic(create=False)
    first = set_policy(topic, max_attempts=2, reason="try less")
    second = set_ingress_hold(topic, max_age_s=60, max_rows=None, expected_version=1, actor="bob", reason="protect")
    assert (first.version, second.version, second.max_attempts, second.ingress_max_age_s) == (1, 2, 2, 60)
    versions = list_policy_versions(PolicyScope.RELAY_TOPIC, topic)
    assert [(v.version, v.actor, v.reason) for v in versions] == [(2, "bob", "protect"), (1, "ann", "try less")]
    assert versions[1].document["ingress_max_age_s"] is None
    third = set_policy(topic, max_attempts=4, expected_version=2)
    assert third.ingress_max_age_s == 60
    assert third in list_relay_policies()


def test_a_change_made_from_an_old_version_is_refused_and_changes_nothing():
    topic = make_topic(create=False)
    set_policy(topic, max_attempts=2)
    for expected in (0, 2, 5):
        with pytest.raises(StalePolicy, match="somebody changed it"):
            set_policy(topic, max_attempts=7, expected_version=expected)
    assert get_relay_policy(topic).max_attempts == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"on_failed": "drop"},
        {"max_attempts": 0},
        {"max_attempts": 10_000},
        {"max_attempts": True},
        {"max_attempts": "3"},
        {"first_retry_s": 0},
        {"first_retry_s": -1},
        {"first_retry_s": float("nan")},
        {"first_retry_s": float("inf")},
        {"first_retry_s": 10**9},
        {"expected_version": -1},
    ],
)
def test_a_policy_that_cannot_be_is_refused_in_words(bad):
    topic = make_topic(create=False)
    with pytest.raises(BadPolicy, match=next(iter(bad))):
        set_policy(topic, **bad)
    assert get_relay_policy(topic).version == 0


@pytest.mark.parametrize("limits", [{"max_age_s": 0, "max_rows": None}, {"max_age_s": None, "max_rows": 10**9}])
def test_an_ingress_limit_that_cannot_be_measured_is_refused(limits):
    with pytest.raises(BadPolicy, match="max_"):
        set_ingress_hold(make_topic(create=False), **limits, expected_version=0, actor="ann", reason="x")


@pytest.mark.parametrize("words", [{"actor": " "}, {"reason": ""}, {"reason": "x" * 501}, {"reason": "a\x00b"}])
def test_nobody_changes_a_policy_without_a_name_and_a_reason(words):
    topic = make_topic(create=False)
    with pytest.raises(BadReason):
        set_policy(topic, **words)
    assert get_relay_policy(topic).version == 0


def test_an_unknown_topic_has_no_policy():
    with pytest.raises(UnknownTopic):
        get_relay_policy("nobody-declared-this")


def test_other_scopes_keep_their_policies_in_the_same_table():
    subject = f"{make_topic(create=False)}/group"
    saved = save_policy(
        PolicyScope.CONSUMER, subject, document={"attempts": 3}, expected_version=0, actor="ann", reason="x"
    )
    assert list_policy_versions(PolicyScope.CONSUMER, subject) == [saved]
    assert list_policy_versions(PolicyScope.SAGA_STEP, subject) == []


# -- What the relay does with a row that is given up ------------------------------------------------------
def publish_one_too_large(topic):
    """Five events of one key, the second above the topic's limit."""
    alter_topic(topic, "max.message.bytes", "2000")
    sizes = (10, 5_000, 20, 30, 40)
    with transaction.atomic():
        return [publish(topic, key=b"\xff\x00", type="t", payload=n * "x", headers={"own": b"\xfe"}) for n in sizes]


def ids(events):
    return [str(e.id) for e in events]


def test_a_parked_row_is_a_dead_letter_and_its_key_goes_on_in_order():
    topic = make_topic(partitions=1)
    set_policy(topic, on_failed="park")
    first, large, *rest = publish_one_too_large(topic)
    run_relay_until_drained()
    assert [event_id(m) for m in read_topic(topic)] == ids([first, *rest])
    letter = DeadLetter.objects.get(topic=topic)
    assert (letter.event_id, letter.origin, letter.group, letter.state) == (large.id, "relay", "relay", "parked")
    assert (letter.offset, letter.error_class, letter.failure_class) == (large.position, "too_large", "permanent")
    assert "2,000" in letter.error_message
    assert (bytes(letter.original_key), bytes(letter.original_value)) == (b"\xff\x00", b'"%s"' % (b"x" * 5_000))
    assert dict(decode_headers(letter.original_headers))["own"] == b"\xfe"
    assert (open_letters(topic), has_incident(IncidentKind.RELAY_ROW_FAILED, topic)) == (1, False)
    (row,) = list_dead_letters(DeadLetterFilter(topic=topic), cursor=None, limit=10).rows
    assert row.is_unsent
    assert [words for _, words in get_dead_letter(row.id).timeline] == ["published", "parked by relay after 1 try"]


def test_a_row_whose_headers_cannot_be_read_is_parked_with_them_as_they_are():
    topic = make_topic(partitions=1)
    set_policy(topic, on_failed="park")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type, headers) VALUES (%s, 'k', 't', '[[\"x\", 5]]')", [topic]
        )
    run_relay_until_drained()
    letter = DeadLetter.objects.get(topic=topic)
    assert dict(decode_headers(letter.original_headers))["malformed-headers"] == b'[["x", 5]]'
    assert letter.original_value is None


def test_by_default_the_key_is_blocked_and_a_new_policy_counts_from_the_next_try_on():
    topic = make_topic(partitions=1)
    events = publish_one_too_large(topic)
    with running_relay():
        wait_until(lambda: [d.failed for d in get_relay_status().deferred] == [True])
        set_policy(topic, on_failed="park")
        assert open_letters(topic) == 0
        retry_now(topic, b"\xff\x00", actor="ann")
        wait_until(lambda: count_unsent() == 0)
    assert [event_id(m) for m in read_topic(topic)] == ids([events[0], *events[2:]])
    assert open_letters(topic) == 1


def test_a_row_that_cannot_be_parked_blocks_its_key_and_stops_nobody_else():
    topic = make_topic(partitions=1)
    set_policy(topic, on_failed="park")

    def park(cursor, row):
        relay_parking.park_row(cursor, row)
        raise ZeroDivisionError

    register_park(park)
    try:
        publish_one_too_large(topic)
        with transaction.atomic():
            other = publish(topic, key="other", type="t", payload=1)
        with running_relay():
            wait_until(lambda: [d.failed for d in get_relay_status().deferred] == [True])
            wait_until(lambda: event_id(read_topic(topic)[-1]) == str(other.id))
            (key,) = get_relay_status().deferred
        assert (key.rows, key.error[:40]) == (4, "could not be parked (ZeroDivisionError);")
        assert open_letters(topic) == DeadLetter.objects.filter(topic=topic).count() == 0
    finally:
        relay_parking.register()


@pytest.mark.parametrize("step", ["read", "report", "settle"])
def test_a_relay_killed_while_it_parks_leaves_one_dead_letter_and_the_order(step):
    topic = make_topic(partitions=1)
    set_policy(topic, on_failed="park")
    first, large, *rest = publish_one_too_large(topic)
    with relay_child(step, 1) as child:
        assert child.wait(timeout=60) == -signal.SIGKILL
    end_leases()
    run_relay_until_drained()
    seen = list(dict.fromkeys(event_id(m) for m in read_topic(topic)))
    assert seen == ids([first, *rest])
    assert DeadLetter.objects.get(topic=topic).event_id == large.id
    assert open_letters(topic) == 1


def test_an_installation_where_nobody_parks_says_so_and_refuses_the_policy(monkeypatch):
    monkeypatch.setattr("relay.ports._park", [])
    assert [problem.id for problem in check_ports()] == ["relay.E001"]
    with pytest.raises(BadPolicy, match="dead-letter queue"):
        set_policy(make_topic(create=False), on_failed="park")


def open_letters(topic):
    """What the exact counters say."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(sum(open), 0) FROM dlq_counter WHERE topic = %s", [topic])
        return int(cursor.fetchone()[0])
