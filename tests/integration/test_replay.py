"""Replays: what a preview says, how a job goes, and that nothing is lost or done twice whatever happens."""

import threading
from uuid import uuid4

import pytest
from django.db import connection, transaction

from dlq import services
from dlq.facade import (
    AlreadyStarted,
    BadSelection,
    NeedsSecondPerson,
    NotStartable,
    StaleReplay,
    cancel_replay,
    get_dlq_status,
    get_preview,
    get_replay,
    list_replay_items,
    list_replays,
    list_replays_of,
    pause_replay,
    preview_replay,
    release_key,
    replay_failed,
    resume_replay,
    set_replay_rate,
    start_replay,
)
from dlq.models import DeadLetter, QuarantinedKey, ReplayItem
from dlq.replay.leasing import take_items
from dlq.types import (
    DeadLetterFilter,
    Permanent,
    ReplayMode,
    ReplayOutcome,
    ReplayPhase,
    ReplayState,
    ReplayVerdict,
    Selection,
)
from relay.facade import declare_topic
from relay.types import TopicSpec
from tests.consumers import effects, until, write_effect
from tests.replays import Shop, failure_of, in_thread

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def shop(transactional_db, settings):
    settings.REPLAY_LOOK_EVERY_MS = settings.REPLAY_BUSY_LOOK_MS = 20
    made = Shop()
    yield made
    made.drop()


def preview(shop, ids=(), **narrowed):
    wanted = Selection(ids=ids) if ids else Selection(filter=DeadLetterFilter(group=shop.group, **narrowed))
    return preview_replay(wanted, rate_per_s=None, actor="ada")


def start(shop, ids=(), *, rate_per_s=None, **narrowed):
    return start_replay(preview(shop, ids, **narrowed).id, rate_per_s=rate_per_s, reason="fixed", actor="ada")


def refuse(event, tx):
    raise Permanent("no")


def states(shop):
    return [d.state for d in shop.letters()]


# -- A job goes its way ------------------------------------------------------------------------------------
def test_a_replay_applies_each_dead_letter_once_and_ends_with_exact_counts(shop):
    shop.park_many(range(30))
    job = shop.run(start(shop))
    assert (job.state, job.phase) == (ReplayState.FINISHED, ReplayPhase.REST)
    assert (job.total, job.applied, job.failed, job.skipped, job.queued, job.running) == (30, 30, 0, 0, 0, 0)
    assert sorted(effects(shop)) == sorted((f"k{n}", n) for n in range(30))
    assert set(states(shop)) == {"applied"}
    assert get_dlq_status().open == 0
    assert [row.outcome for row in list_replay_items(job.id, limit=5).items] == [ReplayOutcome.APPLIED] * 5
    assert list_replays().jobs[0].id == job.id


def test_the_first_goes_alone_then_ten_then_the_rest(shop):
    shop.park_many(range(30))
    seen, gate = [], threading.Semaphore(0)

    def work(event, tx):
        seen.append(event.payload["n"])
        assert gate.acquire(timeout=40)
        write_effect(event, tx)

    shop.work = work
    job = start(shop)
    with shop.executor(threads=30):
        for started in (1, 11, 30):
            until(lambda wanted=started: len(seen) == wanted)
            assert get_replay(job.id).running == len(seen) - get_replay(job.id).settled
            gate.release(started - len(effects(shop)))
        assert shop.wait(job, ["finished"]).applied == 30


def test_a_replay_stops_by_itself_when_the_first_one_fails_again(shop):
    ids = shop.park_many(range(20))
    shop.work = refuse
    job = shop.run(start(shop))
    assert (job.state, job.failed, job.queued) == (ReplayState.PAUSED, 1, 19)
    assert "stopped by itself" in job.why
    shop.work = write_effect
    resumed = resume_replay(job.id, expected_version=job.version, actor="ada")
    assert resumed.state is ReplayState.RUNNING
    done = shop.run(job, until_state=["finished"])
    assert (done.applied, done.failed) == (19, 1)
    again = replay_failed(job.id, rate_per_s=None, actor="ada")
    assert (again.total, again.runnable) == (1, 1)
    assert shop.run(start_replay(again.id, rate_per_s=None, reason="", actor="ada")).applied == 1
    assert len(list_replays_of(ids[0])) == 2
    assert set(states(shop)) == {"applied"}


def test_a_replay_of_one_that_fails_again_is_finished_since_nothing_is_left_to_stop(shop):
    shop.park_many(range(1))
    shop.work = refuse
    job = shop.run(start(shop))
    assert (job.state, job.failed, job.why) == (ReplayState.FINISHED, 1, "")


def test_a_replay_stops_by_itself_when_too_many_of_many_fail(shop):
    shop.park_many(range(100))

    def work(event, tx):
        if event.payload["n"] > 30:
            raise Permanent("no")
        write_effect(event, tx)

    shop.work = work
    job = shop.run(start(shop), threads=2)
    assert (job.state, job.applied) == (ReplayState.PAUSED, 31)
    assert 10 < job.failed < 69
    assert states(shop).count("parked") == 69


def test_a_failure_keeps_one_row_with_its_new_cause_and_says_whether_it_is_the_same(shop):
    letter_id = shop.park(1)
    shop.work = refuse
    jobs = [shop.run(start(shop, [letter_id])) for _ in range(2)]
    (row,) = shop.letters()
    assert (row.attempts, row.replays, row.state) == (3, 2, "parked")
    assert row.error_class == "dlq.types.Permanent"
    assert [list_replay_items(job.id).items[0].same_error for job in jobs] == [False, True]
    assert [job.failed_same for job in jobs] == [0, 1]


def test_five_failed_replays_leave_one_row_with_six_attempts_that_needs_a_person(shop):
    letter_id = shop.park(1)
    shop.park(2, key="other")
    shop.work = refuse
    for _ in range(5):
        assert shop.run(start(shop, [letter_id])).failed == 1
    row = DeadLetter.objects.get(pk=letter_id)
    assert (row.attempts, row.replays, row.needs_human) == (6, 5, True)
    assert DeadLetter.objects.filter(group=shop.group).count() == 2
    assert preview(shop).counts == {ReplayVerdict.LOOP_GUARD: 1, ReplayVerdict.ELIGIBLE: 1}


def test_an_event_that_was_applied_meanwhile_is_deduplicated(shop):
    event_id = uuid4()
    letter_id = shop.park(1, event_id=event_id, quarantines=False)
    shop.consume(shop.record(1, event_id=event_id))
    assert preview(shop).counts == {ReplayVerdict.APPLIED: 1}
    job = shop.run(start(shop, [letter_id]))
    assert (job.deduplicated, job.applied) == (1, 0)
    assert (effects(shop), states(shop)) == ([("k", 1)], ["applied"])


# -- Order -------------------------------------------------------------------------------------------------
def quarantine_three(shop):
    """A1 fails; A2 and A3 park behind it."""
    shop.work = refuse
    for n in (1, 2, 3):
        shop.consume(shop.record(n))
    return [d.pk for d in shop.letters()]


def test_a_released_key_is_replayed_in_order_with_what_arrives_meanwhile(shop):
    first, *_ = quarantine_three(shop)
    arrived = threading.Event()

    def work(event, tx):
        if event.payload["n"] == 2:
            arriving = in_thread(shop.consume, shop.record(4))
            arrived.set()
            threads.append(arriving)
        write_effect(event, tx)

    threads = []
    shop.work = work
    asked = preview(shop, [first])
    assert (asked.runnable, asked.followers) == (1, 2)
    job = shop.run(start_replay(asked.id, rate_per_s=None, reason="", actor="ada"))
    assert arrived.is_set()
    threads[0].result()
    assert effects(shop) == [("k", 1), ("k", 2), ("k", 3), ("k", 4)]
    assert (job.total - job.followed, job.applied) == (1, job.total)
    assert not QuarantinedKey.objects.filter(group=shop.group).exists()
    shop.consume(shop.record(5))
    assert effects(shop)[-1] == ("k", 5)


def test_a_selection_of_a_whole_key_is_replayed_in_its_order_with_many_workers(shop):
    shop.work = refuse
    for n in range(40):
        shop.consume(shop.record(n, key=f"k{n % 4}"))
    shop.work = write_effect
    asked = preview(shop)
    assert asked.counts == {ReplayVerdict.ELIGIBLE: 4, ReplayVerdict.FOLLOWS: 36}
    job = shop.run(start_replay(asked.id, rate_per_s=None, reason="", actor="ada"), threads=8)
    assert (job.applied, job.total, job.followed) == (40, 40, 0)
    by_key = {}
    for key, n in effects(shop):
        by_key.setdefault(key, []).append(n)
    assert by_key == {f"k{k}": list(range(k, 40, 4)) for k in range(4)}


def test_a_failure_stops_the_release_at_that_record_with_its_new_cause(shop):
    ids = quarantine_three(shop)

    def work(event, tx):
        if event.payload["n"] == 2:
            raise KeyError("new")
        write_effect(event, tx)

    shop.work = work
    key = QuarantinedKey.objects.get(group=shop.group)
    job = shop.run(release_key(key.pk, reason="fixed", actor="ada"))
    assert (job.applied, job.failed, job.followed) == (1, 1, 1)
    assert effects(shop) == [("k", 1)]
    key.refresh_from_db()
    assert (key.head_id, key.letters) == (ids[1], 2)
    assert [(d.state, d.error_class, d.attempts) for d in shop.letters()][1:] == [
        ("parked", "KeyError", 1), ("parked", "behind the head of its key", 0),
    ]  # fmt: skip
    shop.consume(shop.record(4))
    assert effects(shop) == [("k", 1)]


def test_what_is_selected_behind_a_head_that_fails_again_is_skipped_and_stays_parked(shop):
    quarantine_three(shop)
    job = shop.run(start(shop))
    assert (job.failed, job.skipped) == (1, 2)
    assert [row.why for row in list_replay_items(job.id, ReplayOutcome.SKIPPED).items] == [
        "one before it of its key failed again, so that its order would not hold"
    ] * 2
    assert states(shop) == ["parked"] * 3


def test_a_dead_letter_behind_a_head_that_is_not_selected_is_left_out(shop):
    _, second, third = quarantine_three(shop)
    assert preview(shop, [second, third]).counts == {ReplayVerdict.BEHIND: 2}
    with pytest.raises(NotStartable, match="Nothing in this selection"):
        start(shop, [second, third])


# -- The selection -----------------------------------------------------------------------------------------
def test_what_arrives_after_the_preview_is_counted_and_not_swept_in(shop):
    shop.park_many(range(3))
    asked = preview(shop)
    shop.park_many(range(10, 14))
    assert (get_preview(asked.id).late, get_preview(asked.id).total) == (4, 3)
    job = shop.run(start_replay(asked.id, rate_per_s=None, reason="", actor="ada"))
    assert job.applied == 3
    assert states(shop).count("parked") == 4


def test_a_preview_says_why_what_cannot_be_replayed_is_left_out(shop):
    shop.park(1, key="fine")
    broken = shop.record(2, key="broken", value=b"{not json")
    shop.consume(broken)
    discarded = shop.park(3, key="gone")
    DeadLetter.objects.filter(pk=discarded).update(state="discarded")
    busy = shop.park(4, key="busy")
    start(shop, [busy])
    passed = shop.park(5, key="passed", quarantines=False)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO dlq_position (group_name, topic, partition, topic_id, next_offset) VALUES (%s, %s, 0, '', 99)",
            [shop.group, shop.topic],
        )
    assert preview(shop, state="").counts == {
        ReplayVerdict.ELIGIBLE: 1,
        ReplayVerdict.SCHEMA: 1,
        ReplayVerdict.NOT_PARKED: 1,
        ReplayVerdict.IN_REPLAY: 1,
        ReplayVerdict.HAZARD: 1,
    }
    shop.drop()
    assert preview(shop, [passed]).counts == {ReplayVerdict.NO_HANDLER: 1}


def test_a_selection_that_is_empty_too_large_or_of_two_groups_is_refused_in_words(shop, settings):
    other = Shop()
    with pytest.raises(BadSelection, match="Nothing matches"):
        preview(shop)
    ids = [shop.park(1), other.park(1)]
    with pytest.raises(BadSelection, match="several groups"):
        preview(shop, ids)
    with pytest.raises(BadSelection, match="not there any more"):
        preview(shop, [ids[0], uuid4()])
    settings.REPLAY_SELECTION_MAX = 1
    shop.park(2)
    with pytest.raises(BadSelection, match="More than 1"):
        preview(shop)
    with pytest.raises(BadSelection, match="rate"):
        preview_replay(Selection(ids=ids[:1]), rate_per_s=0, actor="ada")
    other.drop()


def test_a_preview_is_started_once_in_time_and_by_two_people_when_it_is_large(shop, settings):
    shop.park_many(range(3))
    settings.DLQ_SECOND_PERSON_ABOVE = 2
    asked = preview(shop)
    assert asked.needs_second
    for reason, second in [("", "bob"), ("why", None), ("why", "ada")]:
        with pytest.raises(NeedsSecondPerson):
            start_replay(asked.id, rate_per_s=None, reason=reason, actor="ada", second=second)
    job = start_replay(asked.id, rate_per_s=None, reason="why", actor="ada", second="bob")
    with pytest.raises(AlreadyStarted) as caught:
        start_replay(asked.id, rate_per_s=None, reason="why", actor="ada", second="bob")
    assert caught.value.job_id == job.id
    settings.REPLAY_PREVIEW_LIFE_S = 0
    late = preview(shop, [shop.park(9, key="late")])
    with pytest.raises(NotStartable, match="expired"):
        start_replay(late.id, rate_per_s=None, reason="", actor="ada")


def test_a_dead_letter_is_in_one_open_replay_at_most(shop):
    ids = shop.park_many(range(2))
    asked = preview(shop)
    first = start(shop, ids[:1])
    second = start_replay(asked.id, rate_per_s=None, reason="", actor="ada")
    assert (second.total, second.skipped, second.queued) == (2, 1, 1)
    assert shop.run(first).applied == 1
    assert shop.run(second).applied == 1
    assert len(effects(shop)) == 2


# -- Acts --------------------------------------------------------------------------------------------------
def test_an_act_on_an_older_version_changes_nothing_and_says_what_is(shop):
    shop.park_many(range(2))
    job = start(shop)
    paused = pause_replay(job.id, expected_version=job.version, reason="look", actor="bob")
    for act in (pause_replay, cancel_replay):
        with pytest.raises(StaleReplay, match="paused: look"):
            act(job.id, expected_version=job.version, reason="x", actor="ada")
    with pytest.raises(StaleReplay):
        set_replay_rate(job.id, rate_per_s=5, expected_version=job.version, actor="ada")
    assert get_replay(job.id).version == paused.version
    assert shop.run(job, until_state=["paused"]).queued == 2
    resume_replay(job.id, expected_version=paused.version, actor="bob")
    assert shop.run(job).applied == 2


def test_a_cancelled_replay_leaves_what_was_not_begun_parked_and_free_for_another(shop):
    shop.park_many(range(40))
    started, go = threading.Event(), threading.Event()

    def work(event, tx):
        started.set()
        assert go.wait(40)
        write_effect(event, tx)

    shop.work = work
    job = start(shop)
    with shop.executor():
        assert started.wait(40)
        cancelled = cancel_replay(job.id, expected_version=job.version, reason="wrong ones", actor="ada")
        assert (cancelled.state, cancelled.skipped, cancelled.running) == (ReplayState.CANCELLED, 39, 1)
        go.set()
        until(lambda: get_replay(job.id).running == 0)
    job = get_replay(job.id)
    assert (job.applied, job.skipped, job.total) == (1, 39, 40)
    assert states(shop).count("parked") == 39
    assert shop.run(start(shop)).applied == 39
    assert len(effects(shop)) == 40


def test_what_was_taken_when_a_replay_is_paused_goes_back_into_the_queue(shop):
    shop.park_many(range(40))
    gate, seen = threading.Semaphore(0), []

    def work(event, tx):
        seen.append(event.payload["n"])
        assert gate.acquire(timeout=40)
        write_effect(event, tx)

    shop.work = work
    job = start(shop)
    with shop.executor(threads=1):
        until(lambda: seen)
        gate.release()
        until(lambda: len(seen) == 2)
        paused = pause_replay(job.id, expected_version=job.version, reason="", actor="ada")
        gate.release(40)
        until(lambda: get_replay(job.id).running == 0)
        assert (get_replay(job.id).applied, get_replay(job.id).queued) == (2, 38)
        resume_replay(job.id, expected_version=paused.version, actor="ada")
        assert shop.wait(job, ["finished"]).applied == 40


def test_the_rate_is_kept_by_all_consumers_together(shop):
    shop.park_many(range(24))
    job = start(shop, rate_per_s=20)
    with shop.executor(), shop.executor(name="consumer-2"):
        done = shop.wait(job, ["finished"])
    assert done.applied == 24
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), extract(epoch FROM max(settled_at) - min(settled_at)) FROM dlq_replay_item"
            " WHERE job_id = %s", [job.id],
        )  # fmt: skip
        _, took_s = cursor.fetchone()
    assert took_s > 0.8


# -- Failures of the machine -------------------------------------------------------------------------------
def test_what_a_dead_process_had_taken_is_replayed_by_the_next_when_its_lease_ends(shop, settings):
    shop.park_many(range(3))
    job = start(shop)
    settings.REPLAY_LEASE_S = 0.2
    dead = take_items(shop.group, ReplayMode.HANDLER, token=uuid4(), by="dead", most=10)
    assert len(dead) == 1
    settings.REPLAY_LEASE_S = 30
    assert shop.run(job).applied == 3
    assert len(effects(shop)) == 3


def test_a_worker_that_lost_its_lease_commits_nothing(shop):
    shop.park(1)
    job = start(shop)
    begun, go = threading.Event(), threading.Event()

    def work(event, tx):
        begun.set()
        assert go.wait(40)
        write_effect(event, tx)

    shop.work = work
    with shop.executor():
        assert begun.wait(40)
        ReplayItem.objects.filter(job_id=job.id).update(token=uuid4())
        go.set()
        until(lambda: len(effects(shop)) == 0 and get_replay(job.id).running == 1)
    assert (effects(shop), states(shop)) == ([], ["parked"])
    ReplayItem.objects.filter(job_id=job.id).update(lease_until="2020-01-01T00:00Z")
    assert shop.run(job).applied == 1
    assert effects(shop) == [("k", 1)]


def test_what_a_dead_process_left_of_a_cancelled_replay_is_skipped(shop, settings):
    shop.park_many(range(3))
    job = start(shop)
    settings.REPLAY_LEASE_S = 0.01
    take_items(shop.group, ReplayMode.HANDLER, token=uuid4(), by="dead", most=10)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.05)")
    settings.REPLAY_LEASE_S = 30
    job = cancel_replay(job.id, expected_version=job.version, reason="", actor="ada")
    assert (job.skipped, job.running) == (3, 0)
    assert shop.run(start(shop)).applied == 3


def test_a_job_without_a_consumer_says_what_it_waits_for(shop):
    shop.park(1)
    job = start(shop)
    assert get_replay(job.id).waiting_for == f"waiting for a consumer of {shop.group}"


# -- To the topic ------------------------------------------------------------------------------------------
def test_a_row_that_the_relay_gave_up_is_sent_again_under_its_own_id_and_never_called_applied(shop):
    declare_topic(TopicSpec(name=shop.topic))
    event_id = uuid4()
    record = shop.record(7, key="k7", event_id=event_id)
    with transaction.atomic(), connection.cursor() as cursor:
        services.park_unsent(cursor, record, failure_of("refused"), slot=0)
    letter = DeadLetter.objects.get(topic=shop.topic)
    job = shop.run(start(shop, [letter.pk]))
    letter.refresh_from_db()
    assert (job.mode, job.state, job.sent, job.applied) == (ReplayMode.TOPIC, ReplayState.FINISHED, 1, 0)
    assert letter.state == "sent"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT topic, key, type, payload FROM relay_outbox WHERE id = %s", [event_id]
        )  # fmt: skip
        ((topic, key, event_type, payload),) = cursor.fetchall()
    assert (topic, bytes(key), event_type, bytes(payload)) == (shop.topic, b"k7", "thing.done", record.value)


def test_what_the_outbox_refuses_has_failed_again_and_stays_parked(shop):
    declare_topic(TopicSpec(name=shop.topic, max_bytes=400))
    record = shop.record(8, key="k8", value=b"x" * 1_000)
    with transaction.atomic(), connection.cursor() as cursor:
        services.park_unsent(cursor, record, failure_of("refused"), slot=0)
    letter = DeadLetter.objects.get(topic=shop.topic)
    job = shop.run(start(shop, [letter.pk]))
    letter.refresh_from_db()
    assert (job.sent, job.failed) == (0, 1)
    assert (letter.state, letter.replays, letter.error_class) == ("parked", 1, "relay.errors.RecordTooLarge")
