"""Records that wait: what they spent survives everything, their key keeps its order, others go on."""

import threading
import time

import pytest

from dlq.models import DeadLetter
from dlq.retrying import list_holds
from dlq.types import Ordering, Permanent
from relay.facade import label_key, list_open_incidents
from relay.types import IncidentKind
from tests.consumers import (
    Child,
    admin,
    effects,
    make_topic,
    running,
    until,
    write_effect,
)
from tests.waiting import attempts_noted, by_key, make_due, set_policy, unaccounted, waiting

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def make_line(make_line, settings):
    settings.CONSUMER_SESSION_TIMEOUT_MS = 6_000
    settings.CONSUMER_RETRY_BASE_S = 0.05
    return make_line


class Downstream:
    """What a handler needs: away until `up` is set."""

    def __init__(self, keys=None):
        self.up = threading.Event()
        self.keys = keys
        self.tries = []
        self.takes_s = 0.0

    def work(self, event, tx):
        time.sleep(self.takes_s)
        if (self.keys is None or event.payload["key"] in self.keys) and not self.up.is_set():
            self.tries.append((event.payload["key"], event.payload["n"], tx.attempt))
            raise ConnectionError("away")
        write_effect(event, tx)


def test_what_a_record_has_spent_survives_a_kill(make_line):
    line = make_line()
    set_policy(line, max_attempts=4, base_s=0.5, factor=1.0, max_s=0.5, jitter=0.0)
    line.put(0, key="held")
    first = Child(line, "fail", FAIL_AT=0)
    until(lambda: [(offset, attempts) for offset, attempts, _ in waiting(line) if attempts >= 2])
    first.kill()
    spent = waiting(line)[0][1]
    second = Child(line, "fail", FAIL_AT=0)
    try:
        until(lambda: DeadLetter.objects.filter(group=line.group).exists())
    finally:
        second.end()
    letter = DeadLetter.objects.get(group=line.group)
    assert (letter.attempts, letter.error_class, letter.failure_class) == (4, "ConnectionError", "transient")
    assert spent < 4
    assert attempts_noted(line) == [(0, 1, "waits"), (0, 2, "waits"), (0, 3, "waits"), (0, 4, "parked")]
    assert waiting(line) == []


def test_a_record_that_is_not_due_is_not_tried_by_the_next_member_either(make_line):
    line = make_line()
    set_policy(line, base_s=600.0, max_s=600.0)
    down = Downstream(keys={"held"})
    line.put(0, key="held")
    with running(line, down.work):
        until(lambda: waiting(line) == [(0, 1, False)])
    down.up.set()
    line.put(1, key="free")
    with running(line, down.work):
        until(lambda: effects(line) == [("free", 1)])
    assert len(down.tries) == 1
    (hold,) = list_holds(line.group)
    assert (hold.records, hold.stored, hold.key_label, hold.attempts) == (1, 0, label_key(b"held"), 1)
    make_due(line)
    with running(line, down.work):
        until(lambda: line.committed() == 2)
    assert effects(line) == [("free", 1), ("held", 0)]
    assert waiting(line) == []
    assert attempts_noted(line) == [(0, 1, "waits"), (0, 2, "applied")]


def test_a_changed_policy_is_obeyed_by_running_consumers(make_line):
    line = make_line()
    set_policy(line, max_attempts=100, base_s=0.2, max_s=0.2)
    line.put(0)
    with running(line, Downstream().work):
        until(lambda: [1 for _, attempts, _ in waiting(line) if attempts >= 2])
        set_policy(line, version=1, max_attempts=3, unknown_attempts=3, base_s=0.2, max_s=0.2)
        until(lambda: line.committed() == 1, within_s=30)
    assert DeadLetter.objects.get(group=line.group).attempts >= 3


def test_later_records_of_a_parked_head_park_behind_it_and_others_go_on(make_line):
    line = make_line()

    def refuse(event, tx):
        if event.payload["key"] == "a":
            raise Permanent("no")
        write_effect(event, tx)

    for number, key in enumerate("abaab"):
        line.put(number, key=key)
    with running(line, refuse):
        until(lambda: line.committed() == 5)
    assert effects(line) == [("b", 1), ("b", 4)]
    letters = DeadLetter.objects.filter(group=line.group).order_by("offset")
    assert [(row.offset, row.failure_class) for row in letters] == [(0, "permanent"), (2, "behind"), (3, "behind")]


def test_where_order_blocks_a_record_that_cannot_succeed_waits_in_front_of_its_key(make_line):
    line = make_line()
    set_policy(line, ordering=Ordering.BLOCK, base_s=0.2, max_s=0.2, max_attempts=2, unknown_attempts=2)
    is_fixed = threading.Event()

    def refuse(event, tx):
        if event.payload["key"] == "a" and not is_fixed.is_set():
            raise Permanent("no")
        write_effect(event, tx)

    for number, key in enumerate("abaab"):
        line.put(number, key=key)
    with running(line, refuse):
        until(lambda: [1 for offset, attempts, _ in waiting(line) if offset == 0 and attempts >= 3])
        assert effects(line) == [("b", 1), ("b", 4)]
        assert line.committed() == 0
        is_fixed.set()
        until(lambda: line.committed() == 5)
    assert by_key(effects(line)) == {"a": [0, 2, 3], "b": [1, 4]}
    assert not DeadLetter.objects.filter(group=line.group).exists()


def test_where_order_does_not_matter_a_parked_record_holds_nobody(make_line):
    line = make_line()
    set_policy(line, ordering=Ordering.PARK_AND_MOVE_ON)

    def refuse(event, tx):
        if event.payload["n"] == 0:
            raise Permanent("no")
        write_effect(event, tx)

    line.put(0)
    line.put(1)
    with running(line, refuse):
        until(lambda: line.committed() == 2)
    assert effects(line) == [("k", 1)]


def test_a_waiting_key_that_crowds_its_partition_is_stored_and_runs_later_in_order(make_line, settings):
    settings.CONSUMER_BUFFER_RECORDS = 20
    line = make_line()
    set_policy(line, base_s=600.0, max_s=600.0)
    down = Downstream(keys={"held"})
    line.put_many((n, "held", 0) for n in range(60))
    line.put_many((n, "free", 0) for n in range(60, 90))
    with running(line, down.work):
        until(lambda: line.committed() == 90)
        assert by_key(effects(line)) == {"free": list(range(60, 90))}
        assert [(offset, stored) for offset, _, stored in waiting(line)] == [(n, True) for n in range(60)]
        assert unaccounted(line, 0) == []
        line.put(90, key="held")
        until(lambda: line.committed() == 91)
        assert len(waiting(line)) == 61
    down.up.set()
    make_due(line)
    line.put(91, key="held")
    with running(line, down.work):
        until(lambda: not waiting(line))
        until(lambda: line.committed() == 92)
    assert by_key(effects(line)) == {"free": list(range(60, 90)), "held": [*range(60), 90, 91]}
    assert len(down.tries) == 1


def test_stored_records_run_on_while_their_partition_changes_hands(make_line, settings):
    settings.CONSUMER_BUFFER_RECORDS = 16
    line = make_line(partitions=2)
    set_policy(line, base_s=600.0, max_s=600.0)
    down = Downstream(keys={"a", "b"})
    line.put_many((n, "ab"[n % 2], n % 2) for n in range(80))
    with running(line, down.work):
        until(lambda: [line.committed(0), line.committed(1)] == [40, 40])
    down.up.set()
    down.takes_s = 0.01
    make_due(line)
    with running(line, down.work):
        until(lambda: len(effects(line)) > 5)
        with running(line, down.work):
            until(lambda: not waiting(line))
    assert by_key(effects(line)) == {"a": list(range(0, 80, 2)), "b": list(range(1, 80, 2))}


def test_stored_records_outlive_their_topic(make_line, settings):
    settings.CONSUMER_BUFFER_RECORDS = 20
    line = make_line()
    set_policy(line, base_s=600.0, max_s=600.0)
    down = Downstream(keys={"held"})
    line.put_many((n, "held", 0) for n in range(30))
    with running(line, down.work):
        until(lambda: line.committed() == 30)
    client = admin()
    client.delete_topics([line.topic])[line.topic].result(30)
    until(lambda: line.topic not in client.list_topics(timeout=5).topics)
    make_topic(name=line.topic)
    down.up.set()
    make_due(line)
    line.put(30, key="held")
    with running(line, down.work):
        until(lambda: len(effects(line)) == 31)
    assert by_key(effects(line)) == {"held": list(range(31))}


def test_no_more_records_of_a_key_wait_than_may_and_nothing_is_dropped(make_line, settings):
    settings.CONSUMER_BUFFER_RECORDS = 20
    settings.CONSUMER_WAITING_KEY_RECORDS = 30
    settings.CONSUMER_FULL_RETRY_S = 0.3
    settings.CONSUMER_ROOM_CHECK_EVERY_S = 0.2
    line = make_line()
    set_policy(line, base_s=600.0, max_s=600.0)
    down = Downstream(keys={"held"})
    line.put_many((n, "held", 0) for n in range(80))
    line.put(80, key="free")
    with running(line, down.work):
        until(lambda: full_incidents(line))
        until(lambda: len(waiting(line)) == 30)
        until(lambda: line.committed() == 30)  # and never more, as long as no more of the key may wait
        assert effects(line) == []
        down.up.set()
        make_due(line)
        until(lambda: line.committed() == 81)
        until(lambda: not waiting(line))
        until(lambda: not full_incidents(line))
    assert by_key(effects(line)) == {"held": list(range(80)), "free": [80]}


def full_incidents(line):
    return [i for i in list_open_incidents() if i.kind is IncidentKind.WAITING_FULL and i.cause == line.group]


def test_a_record_that_never_returns_is_parked_at_its_last_deadline_although_its_thread_is_lost(make_line, settings):
    settings.HANDLER_DEADLINE_S = 1
    settings.HANDLER_STUCK_GRACE_S = 60
    line = make_line()
    set_policy(line, max_attempts=1, unknown_attempts=1)
    release = threading.Event()

    def hang(event, tx):
        if event.payload["n"] == 0:
            write_effect(event, tx)
            assert release.wait(60)
            return
        write_effect(event, tx)

    line.put(0, key="hangs")
    with running(line, hang):
        until(lambda: DeadLetter.objects.filter(group=line.group).exists())
        letter = DeadLetter.objects.get(group=line.group)
        assert letter.error_class.endswith("DeadlinePassed")
        line.put(1, key="free")
        until(lambda: effects(line) == [("free", 1)])
        release.set()
        until(lambda: line.committed() == 2)
    assert effects(line) == [("free", 1)]
    assert DeadLetter.objects.filter(group=line.group).count() == 1


@pytest.mark.timeout(240)
def test_with_members_coming_and_going_and_failures_order_and_offsets_hold(make_line):
    line = make_line(partitions=4)
    set_policy(line, base_s=0.1, max_s=1.0, max_attempts=50, unknown_attempts=3)
    total, tries, lost = 1_200, iter(range(10**9)), []

    def work(event, tx):
        time.sleep(0.004)
        if next(tries) % 10 == 0:
            raise TimeoutError
        write_effect(event, tx)

    line.put_many((n, f"k{n % 100}", n % 4) for n in range(total))
    with running(line, work, concurrency=3):
        for round_ in range(5):
            with running(line, work, concurrency=3):
                ends_at = time.monotonic() + 2
                until(lambda: time.monotonic() > ends_at)  # noqa: B023 - called at once
                lost += [(round_, p, unaccounted(line, p)) for p in range(4) if unaccounted(line, p)]
        until(lambda: sum(line.committed(p) for p in range(4)) == total, within_s=90)
    assert lost == []
    assert by_key(effects(line)) == {f"k{k}": list(range(k, total, 100)) for k in range(100)}
    assert not DeadLetter.objects.filter(group=line.group).exists()
    assert waiting(line) == []
