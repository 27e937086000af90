"""How the engine obeys the policy of a topic, with a producer that answers as the test says."""

from collections import deque
from dataclasses import replace
from uuid import uuid4

import pytest

from relay.domain.backoff import Backoff
from relay.domain.outcome import Failure, Scope, TopicFacts
from relay.domain.places import Place, Snapshot
from relay.domain.policy import PolicyDocument, PolicyLimits, TopicRule, check_document
from relay.engine import Engine, mark_stored
from relay.errors import BadPolicy
from relay.runner import bounds_from_settings
from relay.store import Claimed, Orders, RoundRead
from relay.types import OnFailed

ACKED = None
TRANSIENT = Failure(scope=Scope.ROW, code="refused", text="not now")
LIMITS = PolicyLimits(attempts=100, first_retry_s=3_600, age_s=1_000, rows=1_000)


class Desk:
    """One shard, one engine, its clock, and a producer that keeps what it got until `answer()`."""

    brokers_down = False

    def __init__(self, rule=None):
        self.now = 100.0
        self.sent = deque()
        self.rows = {}
        self.engine = Engine(self, replace(bounds_from_settings(), rejoin_rows=0), lambda: self.now)
        place = Place(hw=0, snapshot=Snapshot(xmin=1, xmax=1))
        self.engine.adopt([Claimed(shard=0, epoch=1, place=place)], [], [])
        self.engine.learn([TopicFacts(name="t", partitions=1)], self.now)
        self.order(rules={} if rule is None else {"t": rule})

    def order(self, *, rules=None, **orders):
        wanted = {"revision": 1, "paused_topics": {}, "paused_keys": (), "policies": {}} | orders
        self.engine.obey(Orders(**wanted), self.engine.rules if rules is None else rules)

    def produce(self, facts, *, value, tag, **_record):
        self.sent.append((value, tag))
        return True

    def publish(self, *positions, key=b"k"):
        rows = [(0, p, 0, str(uuid4()), "t", key, None, "t", None, b"%d" % p, "application/json", 0) for p in positions]
        self.rows |= {row[1]: row for row in rows}
        self.engine.take(self.engine.plan_readers(), RoundRead(snapshot=Snapshot(xmin=9, xmax=9), late=[], fresh=rows))
        self.engine.pump(lambda: True)

    def answer(self, *reports):
        for report in reports:
            self.engine.hear([(self.sent.popleft()[1], 0, 0, report)])

    def settle(self):
        self.engine.finish_rounds()
        changes = self.engine.collect()
        if changes is not None:
            mark_stored(changes)
        return changes

    def wait(self, seconds):
        """Let time pass and try what is due; the values that were sent by it."""
        self.now += seconds
        self.engine.learn([TopicFacts(name=n, partitions=1) for n in self.engine.topics_to_ask(self.now)], self.now)
        for deferral in self.engine.due_deferrals(self.now):
            self.engine.retry(self.rows[deferral.position])
        return [value for value, _ in self.sent]


def rule(on_failed=OnFailed.BLOCK, **backoff):
    return TopicRule(on_failed=on_failed, backoff=Backoff(**({"base_s": 3, "factor": 2, "attempts": 3} | backoff)))


def test_tries_and_waits_are_those_of_the_topics_policy():
    desk = Desk(rule(most_s=5))
    desk.publish(1, 2)
    desk.answer(TRANSIENT, TRANSIENT)
    desk.settle()
    assert desk.wait(2.9) == []
    assert desk.wait(0.2) == [b"1"]  # 3 s after the first failure, and alone
    desk.answer(TRANSIENT)
    desk.settle()
    assert desk.wait(4.9) == []
    assert desk.wait(0.2) == [b"1"]  # 6 s, but at most 5
    desk.answer(TRANSIENT)
    (ended,) = [d for d in desk.settle().defer if d.position == 1]
    assert (ended.attempts, ended.failed) == (3, True)
    assert desk.wait(10_000) == []
    assert [row.position for row, _ in desk.engine.failed_rows] == [1]


def test_a_row_that_is_parked_lets_its_key_go_on_only_after_the_commit():
    desk = Desk(rule(OnFailed.PARK, attempts=1))
    desk.publish(1, 2)
    desk.answer(TRANSIENT, ACKED)
    desk.publish(3)
    assert desk.wait(100) == []
    changes = desk.settle()
    assert ([d.position for d in changes.park], [d.position for d in changes.defer]) == ([1], [3])
    assert desk.wait(100) == []
    desk.engine.note_parked(changes.park)
    assert desk.wait(100) == [b"3"]
    assert desk.engine.failed_rows == []


def test_rows_that_never_failed_are_tried_together_and_those_behind_a_failure_one_by_one():
    desk = Desk()
    desk.order(paused_keys=[("t", b"k")])
    desk.publish(1, 2, 3, 4)
    desk.settle()
    assert desk.wait(100) == []
    desk.order()
    assert desk.wait(100) == [b"1", b"2", b"3", b"4"]
    desk.answer(ACKED, TRANSIENT)
    desk.answer(Failure(scope=Scope.TOPIC, code="gone", text=""), Failure(scope=Scope.TOPIC, code="gone", text=""))
    desk.settle()
    assert desk.wait(100) == [b"2"]


def test_what_a_person_skips_in_the_air_ends_with_its_report():
    desk = Desk()
    desk.order(paused_keys=[("t", b"k")])
    desk.publish(1, 2)
    desk.settle()
    desk.order()
    assert desk.wait(1) == [b"1", b"2"]
    desk.order(revision=2, skipped=[(0, 1, "t", b"k"), (0, 2, "t", b"k")])
    desk.answer(TRANSIENT, ACKED)
    assert (desk.settle().undefer, desk.engine.keys) == ([(0, 2)], {})


def test_a_pause_holds_what_was_read_after_it_and_lets_out_what_was_read_before():
    desk = Desk()
    desk.publish(1)
    desk.order(paused_topics={"t": "by ann: x"})
    desk.publish(2, 3)
    assert [value for value, _ in desk.sent] == [b"1"]
    desk.answer(ACKED)
    (hold,) = desk.settle().hold
    assert (hold.final.hw, hold.reason) == (1, "paused: by ann: x")
    assert not desk.engine.failed_topics


@pytest.mark.parametrize("attempts", [1, 100])
def test_the_longest_policy_has_waits_that_a_clock_can_count(attempts):
    document = PolicyDocument(on_failed=OnFailed.BLOCK, max_attempts=attempts, first_retry_s=3_600)
    backoff = document.rule(Backoff(base_s=5, factor=2, attempts=10, most_s=3_600)).backoff
    assert all(0 < wait_s <= 3_600 for wait_s in backoff.waits_s())
    assert check_document(document.as_json(), LIMITS) == document


def test_a_document_of_another_version_is_refused_and_not_guessed():
    with pytest.raises(BadPolicy):
        check_document({"on_failed": "block"}, LIMITS)


def test_what_people_were_not_told_yet_outlives_an_engine_that_is_given_up():
    before, after = Desk(), Desk()
    before.publish(1)
    before.answer(Failure(scope=Scope.TOPIC, code="gone", text=""))
    after.engine.take_over(before.engine)
    assert list(after.engine.failed_topics) == ["t"]
