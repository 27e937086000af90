"""The consumer runtime on a real broker and database: one effect, order per key, offsets only behind it."""

import random
import threading
import time

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from dlq.checks import check_handlers
from dlq.facade import ConsumerDied, handler, list_groups
from dlq.models import Applied, DeadLetter
from dlq.signals import applied_changed, dead_letters_changed
from dlq.types import Transient
from relay.facade import label_key, list_processes
from relay.types import Role
from tests.consumers import Line, effects, make_effect_table, running, until, write_effect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def line(db_table):
    made = Line()
    yield made
    made.drop()


@pytest.fixture
def db_table(transactional_db):
    make_effect_table()


def test_an_event_is_applied_once_and_its_offset_moves_afterwards(line):
    event_id = line.put(1)
    with running(line, write_effect):
        until(lambda: line.committed() == 1)
    assert effects(line) == [("k", 1)]
    assert [row.event_id for row in Applied.objects.filter(group=line.group)] == [event_id]


def test_a_repeat_of_an_event_has_no_second_effect_and_is_counted(line):
    event_id = line.put(1)
    line.put(1, event_id=event_id)
    line.put(2)
    with running(line, write_effect) as member:
        until(lambda: line.committed() == 3)
    assert effects(line) == [("k", 1), ("k", 2)]
    assert member.tally == {"applied": 2, "duplicate": 1}


def test_records_of_one_key_run_in_order_and_others_beside_them(line):
    running_keys, together, overlaps = set(), [], []
    lock = threading.Lock()

    def work(event, tx):
        with lock:
            if event.key in running_keys:
                overlaps.append(event.key)
            running_keys.add(event.key)
            together.append(len(running_keys))
        time.sleep(random.uniform(0, 0.02))
        write_effect(event, tx)
        with lock:
            running_keys.discard(event.key)

    line.put_many((n, f"k{n % 12}", 0) for n in range(360))
    with running(line, work, concurrency=8):
        until(lambda: line.committed() == 360)
    by_key = {}
    for key, n in effects(line):
        by_key.setdefault(key, []).append(n)
    assert by_key == {f"k{k}": list(range(k, 360, 12)) for k in range(12)}
    assert overlaps == []
    assert max(together) > 4


def test_records_without_a_key_do_not_wait_for_each_other(line):
    barrier = threading.Barrier(3, timeout=20)

    def meet(event, tx):
        barrier.wait()

    for number in range(3):
        line.put(number, key=None)
    with running(line, meet, concurrency=3):
        until(lambda: line.committed() == 3)


def test_no_offset_is_committed_above_an_unfinished_record(line):
    release = threading.Event()

    def work(event, tx):
        if event.payload["n"] == 1:
            assert release.wait(30)
        write_effect(event, tx)

    for number in (0, 1, 2, 3):
        line.put(number, key=f"k{number}")
    with running(line, work, concurrency=4):
        until(lambda: len(effects(line)) == 3)
        until(lambda: line.committed() == 1)
        line.put(4, key="k4")
        until(lambda: len(effects(line)) == 4)
        assert line.committed() == 1
        release.set()
        until(lambda: line.committed() == 5)


def test_event_types_that_no_handler_names_are_passed_over(line):
    line.put(1, event_type="other.thing")
    line.put(2)
    with running(line, write_effect, event_types=["thing.done"]) as member:
        until(lambda: line.committed() == 2)
    assert effects(line) == [("k", 2)]
    assert member.tally == {"ignored": 1, "applied": 1}
    assert not DeadLetter.objects.exists()


def test_a_transient_failure_holds_its_key_and_no_other_as_long_as_its_policy_allows(line, settings):
    settings.CONSUMER_RETRY_BASE_S = settings.CONSUMER_RETRY_LIMIT_S = 0.2
    settings.CONSUMER_RETRY_ATTEMPTS = 100_000
    down = threading.Event()
    down.set()
    tries = []

    def call(event, tx):
        if event.key == b"held" and down.is_set():
            tries.append(tx.attempt)
            raise ConnectionError("the dependency is away")
        write_effect(event, tx)

    line.put(1, key="held")
    line.put(2, key="held")
    line.put(3, key="free")
    with running(line, call) as member:
        until(lambda: len(tries) >= 4)
        assert effects(line) == [("free", 3)]
        assert line.committed() == 0
        until(lambda: f"held by {label_key(b'held')} until " in doing_of(member))
        assert "ConnectionError" in doing_of(member)
        down.clear()
        until(lambda: line.committed() == 3)
    assert effects(line) == [("free", 3), ("held", 1), ("held", 2)]
    assert tries[:4] == [1, 2, 3, 4]
    assert not DeadLetter.objects.exists()


def doing_of(member):
    return next((p.doing for p in list_processes() if p.name == member.name), "")


def test_what_the_failing_side_asks_to_wait_is_honoured(line, settings):
    settings.CONSUMER_RETRY_BASE_S = 60
    seen = []

    def call(event, tx):
        seen.append(tx.attempt)
        if len(seen) == 1:
            raise Transient("busy", retry_after_s=0.1)

    line.put(1)
    with running(line, call):
        until(lambda: line.committed() == 1)
    assert seen == [1, 2]


def test_a_database_session_that_is_killed_in_a_handler_costs_no_effect_and_makes_no_second_one(line, settings):
    settings.CONSUMER_RETRY_BASE_S = 0.05
    killed = []

    def work(event, tx):
        write_effect(event, tx)
        if not killed:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                killed.append(cursor.fetchone()[0])
            kill_session(killed[0])
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")

    line.put(1)
    line.put(2)
    with running(line, work) as member:
        until(lambda: line.committed() == 2)
    assert effects(line) == [("k", 1), ("k", 2)]
    assert member.tally == {"retry": 1, "applied": 2}
    assert not DeadLetter.objects.exists()


def test_a_session_that_is_killed_behind_an_idle_worker_is_replaced(line, settings):
    settings.CONSUMER_RETRY_BASE_S = 0.05
    sessions = set()

    def work(event, tx):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            sessions.add(cursor.fetchone()[0])
        write_effect(event, tx)

    line.put(1)
    with running(line, work, concurrency=1):
        until(lambda: line.committed() == 1)
        kill_session(next(iter(sessions)))
        line.put(2)
        until(lambda: line.committed() == 2)
    assert effects(line) == [("k", 1), ("k", 2)]
    assert len(sessions) == 2


def kill_session(pid):
    parameters = {
        k: v
        for k, v in connection.get_connection_params().items()
        if k in ("host", "port", "user", "dbname", "password")
    }
    with psycopg.connect(**parameters, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [pid])


def test_an_error_in_a_hook_that_runs_after_the_commit_parks_nothing(line, settings):
    settings.CONSUMER_RETRY_BASE_S = 0.05

    def work(event, tx):
        write_effect(event, tx)
        transaction.on_commit(lambda: {}["boom"])

    line.put(1)
    with running(line, work) as member:
        until(lambda: line.committed() == 1)
    assert effects(line) == [("k", 1)]
    assert member.tally == {"retry": 1, "duplicate": 1}
    assert not DeadLetter.objects.exists()


def test_a_handler_past_its_deadline_commits_nothing_and_is_tried_again(line, settings):
    settings.HANDLER_DEADLINE_S = 1
    settings.CONSUMER_RETRY_BASE_S = 0.05
    attempts = []

    def work(event, tx):
        attempts.append(tx.attempt)
        write_effect(event, tx)
        if tx.attempt == 1:
            time.sleep(1.3)

    line.put(1)
    with running(line, work):
        until(lambda: line.committed() == 1)
    assert (attempts, effects(line)) == ([1, 2], [("k", 1)])


def test_a_process_whose_handlers_do_not_return_ends_with_an_error(line, settings):
    settings.HANDLER_DEADLINE_S = 0.3
    settings.HANDLER_STUCK_GRACE_S = 0.2
    settings.CONSUMER_STOP_WITHIN_S = 1
    release = threading.Event()

    line.put(1)
    with running(line, lambda event, tx: release.wait(60), concurrency=1) as member:
        error = member.wait_dead()
    release.set()
    assert isinstance(error, ConsumerDied)
    assert "1 handlers have not returned" in str(error)
    assert line.committed() == 0


def test_a_full_buffer_pauses_fetching_and_loses_nothing(line, settings):
    settings.CONSUMER_BUFFER_RECORDS = 10
    release = threading.Event()

    def work(event, tx):
        assert release.wait(30)
        write_effect(event, tx)

    line.put_many((n, f"k{n}", 0) for n in range(200))
    with running(line, work, concurrency=2) as member:
        until(lambda: facts_of(member).get("queued") == "8")
        release.set()
        until(lambda: line.committed() == 200)
    assert sorted(n for _, n in effects(line)) == list(range(200))


def test_a_partition_with_a_long_backlog_does_not_starve_the_others(db_table, settings):
    settings.CONSUMER_BUFFER_RECORDS = 10
    release = threading.Event()

    def work(event, tx):
        assert event.partition == 1 or release.wait(30)
        write_effect(event, tx)

    line = Line(partitions=2)
    line.put_many((n, f"k{n}", 0) for n in range(300))
    line.put_many((1_000 + n, f"other{n}", 1) for n in range(20))  # a key is in one partition only
    # Five places on the shelf are partition 0's, and wait; six threads, so that one is left for partition 1.
    with running(line, work, concurrency=6):
        until(lambda: line.committed(1) == 20)
        assert line.committed(0) == 0
        release.set()
        until(lambda: line.committed(0) == 300)
    line.drop()


def facts_of(member):
    return next((p.facts for p in list_processes() if p.name == member.name), {})


def test_the_heartbeat_says_what_the_process_does(line):
    line.put(1)
    line.put_raw(b"x")
    with running(line, write_effect, name=f"consumer-{line.group}") as member:
        until(lambda: facts_of(member).get("parked") == "1")
        facts = facts_of(member)
    assert facts["group"] == line.group
    assert (facts["partitions"], facts["applied"], facts["in flight"]) == ("1", "1", "0")
    (process,) = [p for p in list_processes() if p.name == member.name]
    assert (process.role, process.doing) == (Role.CONSUMER, "stopped")


def test_changes_are_announced_after_their_commit(line):
    seen = {"applied": [], "parked": []}

    def on_applied(**_):
        seen["applied"].append(Applied.objects.count())

    def on_parked(**_):
        seen["parked"].append(DeadLetter.objects.count())

    applied_changed.connect(on_applied)
    dead_letters_changed.connect(on_parked)
    line.put(1)
    line.put_raw(b"x")
    with running(line, write_effect):
        until(lambda: seen["applied"] and seen["parked"])
    assert seen["applied"][-1] == 1
    assert seen["parked"][-1] == 1


def test_an_unknown_group_is_refused_with_the_known_ones(line):
    handler(topic=line.topic, group=line.group)(write_effect)
    with pytest.raises(CommandError, match=f"Known groups: .*{line.group}") as refused:
        call_command("consume", "nobody")
    assert refused.value.returncode == 2
    assert line.group in [group.name for group in list_groups()]


def test_two_handlers_for_one_event_type_are_refused(line):
    def first(event, tx): ...

    def second(event, tx): ...

    for function in (first, second):
        handler(topic=line.topic, group=line.group, event_types=["a"])(function)
    with pytest.raises(CommandError, match="both handle a of"):
        call_command("consume", line.group)
    assert [e.id for e in check_handlers()] == ["dlq.E002"]


def test_a_member_that_stops_leaves_what_it_had_not_begun_to_the_next(line):
    started, release = threading.Event(), threading.Event()

    def slow(event, tx):
        started.set()
        assert release.wait(30)
        write_effect(event, tx)

    for number in range(5):
        line.put(number)
    with running(line, slow, concurrency=1) as member:
        assert started.wait(30)
        until(lambda: facts_of(member).get("queued") == "4")
        member.stop.set()
        until(lambda: facts_of(member).get("queued") == "0")
        release.set()
    assert effects(line) == [("k", 0)]
    assert line.committed() == 1
    with running(line, slow):
        until(lambda: line.committed() == 5)
    assert [n for _, n in effects(line)] == [0, 1, 2, 3, 4]


def test_an_outage_spends_none_of_the_tries_that_an_unknown_failure_has(line, settings):
    settings.CONSUMER_RETRY_BASE_S = settings.CONSUMER_RETRY_LIMIT_S = 0.02
    settings.CONSUMER_UNKNOWN_ATTEMPTS = 2
    seen = []

    def fail(event, tx):
        seen.append(tx.attempt)
        raise TimeoutError if len(seen) <= 5 else RuntimeError("odd")

    line.put(1)
    with running(line, fail):
        until(lambda: line.committed() == 1)
    assert seen == [1, 2, 3, 4, 5, 6, 7]
    assert DeadLetter.objects.get(group=line.group).attempts == 7


def test_a_member_without_a_broker_says_so_and_stops_in_time(line, settings):
    settings.CONSUMER_STOP_WITHIN_S = 4
    working = settings.KAFKA_BOOTSTRAP_SERVERS
    settings.KAFKA_BOOTSTRAP_SERVERS = "127.0.0.1:1"
    with running(line, write_effect) as member:
        until(lambda: "BROKERS_DOWN" in doing_of(member) or "_TRANSPORT" in doing_of(member))
        assert "waiting for partitions" in doing_of(member)
        started = time.monotonic()
        member.end()
    settings.KAFKA_BOOTSTRAP_SERVERS = working
    assert time.monotonic() - started < 8
    assert member.error is None
