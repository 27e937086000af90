"""Retry policies in the database: versions, what consumers obey, recorded tries and their bounds."""

import threading
import uuid

import pytest
from django.db import connection, transaction

from dlq.attempt_log import Tried, forget_old_attempts, list_attempts, note_attempt
from dlq.domain.policy import BadRetryPolicy, PolicyTarget
from dlq.facade import get_retry_policy, set_retry_policy, simulate_retry_policy, withdraw_retry_policy
from dlq.models import Attempt, DeadLetter
from dlq.policies import PolicyBook, default_policy
from dlq.policy_changes import roll_back_retry_policy
from dlq.types import AttemptOutcome, FailureClass
from relay.facade import BadReason, StalePolicy, label_key
from relay.types import ConsumerRecord, PartitionRef
from tests.consumers import Line, effects, make_effect_table, running, until, write_effect

pytestmark = pytest.mark.django_db(transaction=True)

WAITS, PARKED, APPLIED = AttemptOutcome.WAITS, AttemptOutcome.PARKED, AttemptOutcome.APPLIED


@pytest.fixture
def group():
    return f"group-{uuid.uuid4().hex[:12]}"


def set_for(target, seen=0, **changes):
    document = default_policy().as_json() | changes
    return set_retry_policy(target, document, expected_version=seen, actor="ada", reason="a test")


def book(group):
    made = PolicyBook(group)
    made.refresh()
    return made


# -- Versions ----------------------------------------------------------------------------------------------
def test_a_book_finds_the_most_specific_policy_and_a_change_after_a_refresh(group):
    set_for(PolicyTarget(group), max_attempts=4)
    set_for(PolicyTarget(group, "claims"), max_attempts=5)
    set_for(PolicyTarget(group, "claims", "claim/opened"), max_attempts=6)
    set_for(PolicyTarget("other"), max_attempts=7)
    made = book(group)
    found = [made.find(*place).max_attempts for place in (("x", "y"), ("claims", "y"), ("claims", "claim/opened"))]
    assert found == [4, 5, 6]
    set_for(PolicyTarget(group), 1, max_attempts=8)
    assert made.find("x", "y").max_attempts == 4
    made.refresh()
    assert (made.find("x", "y").max_attempts, made.find("x", "y").version) == (8, 2)
    assert book("nobody").find("x", "y") == default_policy()


def test_a_policy_that_cannot_be_read_leaves_the_wider_one_in_force(group, settings):
    set_for(PolicyTarget(group), max_attempts=4)
    set_for(PolicyTarget(group, "claims"), max_attempts=50, max_s=60)
    settings.DLQ_POLICY_ATTEMPTS_MAX = 20
    assert book(group).find("claims", "x").max_attempts == 4
    line = get_retry_policy(PolicyTarget(group, "claims"))
    assert (line.is_own, line.own_version) == (False, 1)
    assert "max_attempts must be a whole number from 1 to 20" in line.problem
    with pytest.raises(BadRetryPolicy):
        roll_back_retry_policy(PolicyTarget(group, "claims"), 1, expected_version=2, actor="ada", reason="x")


def test_a_withdrawn_policy_makes_room_for_the_wider_one(group):
    set_for(PolicyTarget(group), max_attempts=4)
    set_for(PolicyTarget(group, "claims"), max_attempts=5)
    withdraw_retry_policy(PolicyTarget(group, "claims"), expected_version=1, actor="ada", reason="x")
    assert book(group).find("claims", "x").max_attempts == 4
    with pytest.raises(BadRetryPolicy):
        withdraw_retry_policy(PolicyTarget(group, "claims"), expected_version=2, actor="ada", reason="x")
    set_for(PolicyTarget(group, "claims"), 2, max_attempts=6)
    assert book(group).find("claims", "x").version == 3


def test_of_two_people_who_save_at_once_one_is_told(group):
    barrier, ends = threading.Barrier(2), []

    def save(attempts):
        try:
            barrier.wait(10)
            set_for(PolicyTarget(group), max_attempts=attempts)
            ends.append("saved")
        except StalePolicy:
            ends.append("stale")
        finally:
            connection.close()

    threads = [threading.Thread(target=save, args=[attempts]) for attempts in (4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(ends) == ["saved", "stale"]
    assert get_retry_policy(PolicyTarget(group)).own_version == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"reason": " "}, BadReason),
        ({"actor": ""}, BadReason),
        ({"expected_version": 3}, StalePolicy),
        ({"document": {}}, BadRetryPolicy),
        ({"target": PolicyTarget("", "topic")}, BadRetryPolicy),
    ],
)
def test_what_is_refused_changes_nothing(group, change, error):
    given = {
        "target": PolicyTarget(group),
        "document": default_policy().as_json(),
        "expected_version": 0,
        "actor": "ada",
        "reason": "x",
    } | change
    with pytest.raises(error):
        set_retry_policy(given.pop("target"), given.pop("document"), **given)
    assert get_retry_policy(PolicyTarget(group)).own_version == 0


def test_the_longest_names_have_a_policy(settings):
    target = PolicyTarget("ü" * 200, "t" * 249, "/" * 200)
    set_for(target, max_attempts=3)
    assert book(target.group).find(target.topic, target.event_type).max_attempts == 3


def test_more_targets_than_are_read_are_refused(group, settings):
    set_for(PolicyTarget(group))
    settings.POLICY_SUBJECTS_MAX = 1
    with pytest.raises(BadRetryPolicy) as refused:
        set_for(PolicyTarget(group, "claims"))
    assert "Set one for a whole group" in str(refused.value)
    set_for(PolicyTarget(group), 1, max_attempts=3)


# -- Recorded tries ----------------------------------------------------------------------------------------
def record_at(offset, key=b"key"):
    return ConsumerRecord(
        place=PartitionRef("claims", 0),
        offset=offset,
        leader_epoch=None,
        timestamp_ms=None,
        key=key,
        value=b"secret payload",
        headers=(),
    )


def note(group, offset, number, outcome, **changes):
    tried = {
        "handler": "app.handlers.triage",
        "event_id": None,
        "event_type": "claim.opened",
        "number": number,
        "outcome": outcome,
        "failure_class": FailureClass.TRANSIENT,
        "error_class": "TimeoutError",
        "fingerprint": "f1",
        "wait_s": 5.0 if outcome is WAITS else None,
    } | changes
    with transaction.atomic(), connection.cursor() as cursor:
        note_attempt(cursor, group, record_at(offset), Tried(**tried))


def make_old(group, seconds):
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE dlq_attempt SET at = at - make_interval(secs => %s) WHERE group_name = %s", [seconds, group]
        )


def test_tries_are_listed_in_order_without_the_key(group):
    note(group, 7, 1, WAITS)
    note(group, 7, 2, PARKED, topic_id="T1")
    note(group, 8, 1, PARKED)
    rows = list_attempts(group, PartitionRef("claims", 0), 7, "T1")
    assert [(r.number, r.outcome, r.wait_s) for r in rows] == [(1, WAITS, 5.0), (2, PARKED, None)]
    assert [r.number for r in list_attempts(group, PartitionRef("claims", 0), 7, "T2")] == [1]
    assert set(Attempt.objects.values_list("key_label", flat=True)) == {label_key(b"key")}


def test_tries_beyond_their_age_and_number_are_swept_batch_by_batch(group, settings):
    Attempt.objects.all().delete()
    for offset in range(6):
        note(group, offset, 1, PARKED)
    make_old(group, settings.DLQ_ATTEMPT_RETENTION.total_seconds() + 60)
    for offset in range(6, 10):
        note(group, offset, 1, PARKED)
    settings.DLQ_ATTEMPT_SWEEP_ROWS, settings.DLQ_ATTEMPT_SWEEP_BATCHES = 2, 2
    forget_old_attempts()
    assert Attempt.objects.count() == 6
    forget_old_attempts()
    assert list(Attempt.objects.order_by("offset").values_list("offset", flat=True)) == [6, 7, 8, 9]
    settings.DLQ_ATTEMPT_ROWS = 3
    forget_old_attempts()
    assert list(Attempt.objects.order_by("offset").values_list("offset", flat=True)) == [7, 8, 9]


def test_the_simulation_reads_records_whole_and_says_what_it_leaves_out(group, settings):
    note(group, 1, 1, WAITS)
    make_old(group, 3 * 86_400)
    note(group, 1, 2, PARKED)  # its first try is before the days that are asked for
    for number, outcome in ((1, WAITS), (2, APPLIED)):
        note(group, 2, number, outcome)
    found = simulate_retry_policy(PolicyTarget(group), default_policy(), days=2)
    assert (found.unseen, found.is_cut, found.result.total.recovered, found.result.total.parked) == (1, False, 1, 0)
    found = simulate_retry_policy(PolicyTarget(group), default_policy(), days=4)
    assert (found.unseen, found.result.total.parked) == (0, 1)
    settings.DLQ_SIMULATION_ROWS = 2
    found = simulate_retry_policy(PolicyTarget(group), default_policy(), days=4)
    assert (found.is_cut, found.result.total.records) == (True, 1)
    with pytest.raises(BadRetryPolicy):
        simulate_retry_policy(PolicyTarget(group), default_policy(), days=15)


# -- A running consumer ------------------------------------------------------------------------------------
@pytest.fixture
def line(transactional_db):
    make_effect_table()
    made = Line()
    yield made
    made.drop()


def test_a_running_consumer_obeys_a_new_policy_and_records_its_tries(line, settings):
    settings.CONSUMER_RETRY_BASE_S, settings.CONSUMER_RETRY_JITTER = 60, 0

    def fail(event, tx):
        if event.payload["n"] != 3:
            raise RuntimeError("odd")  # no outage, so no breaker takes part
        write_effect(event, tx)

    line.put(1, key="a")
    with running(line, fail):
        until(lambda: Attempt.objects.filter(group=line.group, outcome="waits").exists())
        assert not DeadLetter.objects.filter(group=line.group).exists()
        set_for(PolicyTarget(line.group), max_attempts=1, unknown_attempts=1, base_s=0.05)
        until(
            lambda: (
                line.put(2, key=uuid.uuid4().hex) and DeadLetter.objects.filter(group=line.group, attempts=1).exists()
            )
        )
        line.put(3, key="c")
        until(lambda: effects(line) == [("c", 3)])
    tries = Attempt.objects.filter(group=line.group, offset=0)
    assert [(t.number, t.outcome, t.failure_class, t.wait_s) for t in tries] == [(1, "waits", "unknown", 60.0)]
    parked = Attempt.objects.filter(group=line.group, outcome="parked").first()
    assert (parked.number, parked.error_class, parked.wait_s) == (1, "RuntimeError", None)
    letter = DeadLetter.objects.get(group=line.group, offset=parked.offset)
    assert letter.fingerprint == parked.fingerprint


def test_a_running_consumer_obeys_an_override(line, settings):
    settings.CONSUMER_RETRY_BASE_S, settings.CONSUMER_RETRY_JITTER = 0.05, 0
    set_for(PolicyTarget(line.group), max_attempts=3, base_s=0.05, overrides={"LookupError": "transient"})

    def fail_twice(event, tx):
        if Attempt.objects.filter(group=line.group).count() < 2:
            raise KeyError("iban")
        write_effect(event, tx)

    line.put(1, key="a")
    with running(line, fail_twice):
        until(lambda: effects(line) == [("a", 1)])
    tries = Attempt.objects.filter(group=line.group).order_by("id")
    assert [(t.number, t.outcome, t.failure_class) for t in tries] == [
        (1, "waits", "transient"),
        (2, "waits", "transient"),
        (3, "applied", "transient"),
    ]
