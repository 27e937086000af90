"""The relay's engine against any order of commits, acknowledgements, crashes, hand-overs and failures."""

from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from relay.engine import Engine
from tests.relay_model import PARTITIONS, TOPICS, Broker, Database, ModelRunner, is_drained

KEYS = [b"%d" % n for n in range(4)]
NOT_THERE = 99
MOST_TURNS = 60


class Relays(RuleBasedStateMachine):
    """Writers, up to three relays, a broker; every step may come at any time."""

    @initialize()
    def start(self):
        self.database, self.broker = Database(), Broker()
        self.runners = [ModelRunner(self.database, self.broker)]
        self.zombies = []
        self.runners[0].share()

    # -- Writers -----------------------------------------------------------------------------------------------
    @precondition(lambda self: len(self.database.open) < 4)
    @rule(topic=st.sampled_from(TOPICS), keys=st.lists(st.sampled_from(KEYS), max_size=4))
    def begin(self, topic, keys):
        self.database.begin()
        for key in keys:
            self.database.insert(self.database.open[-1], topic, key)

    @precondition(lambda self: self.database.open)
    @rule(data=st.data())
    def take_a_position_before_an_id(self, data):
        self.database.reserve(self._transaction(data))

    @precondition(lambda self: self.database.open)
    @rule(
        data=st.data(),
        topic=st.sampled_from(TOPICS),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        partition=st.sampled_from([None, None, NOT_THERE]),
    )
    def insert(self, data, topic, keys, partition):
        """The first row may ask for a partition that is not there, until the topic is made anew."""
        transaction = self._transaction(data)
        for key in keys:
            self.database.insert(transaction, topic, key, partition=partition)
            partition = None

    @precondition(lambda self: self.database.open)
    @rule(data=st.data(), commits=st.booleans())
    def end(self, data, commits):
        self.database.end(self._transaction(data), commits=commits)

    @precondition(lambda self: self.database.open and self.runners)
    @rule(data=st.data())
    def commit_and_let_a_relay_take_a_turn(self, data):
        self.database.end(self._transaction(data), commits=True)
        turn(data.draw(st.sampled_from(self.runners)))

    def _transaction(self, data):
        return data.draw(st.sampled_from(self.database.open))

    # -- Relays ------------------------------------------------------------------------------------------------
    @precondition(lambda self: len(self.runners) < 3)
    @rule()
    def start_a_relay(self):
        self.runners.append(ModelRunner(self.database, self.broker))

    @precondition(lambda self: self.runners)
    @rule(
        data=st.data(),
        steps=st.lists(st.sampled_from(["share", "read", "read_ahead", "ask", "pump", "retry", "settle"]), max_size=8),
    )
    def let_a_relay_work(self, data, steps):
        runner = data.draw(st.sampled_from(self.runners))
        for step in steps:
            getattr(runner, step)()

    @precondition(lambda self: self.runners)
    @rule(data=st.data())
    def let_a_relay_take_a_turn(self, data):
        turn(data.draw(st.sampled_from(self.runners)))

    @precondition(lambda self: self.runners or self.zombies)
    @rule(data=st.data(), partition=st.integers(0, PARTITIONS - 1), records=st.integers(1, 6))
    def acknowledge(self, data, partition, records):
        runner = data.draw(st.sampled_from(self.runners + self.zombies))
        for _ in range(records):
            runner.deliver(partition)

    @precondition(lambda self: self.runners)
    @rule(data=st.data(), landed=st.lists(st.integers(0, 6), min_size=PARTITIONS, max_size=PARTITIONS))
    def kill(self, data, landed):
        """Some of what was in the air arrives; nobody hears of it."""
        runner = data.draw(st.sampled_from(self.runners))
        self.runners.remove(runner)
        runner.lose_lease()
        for partition, records in enumerate(landed):
            for _ in range(records):
                runner.deliver(partition, reports=False)

    @precondition(lambda self: self.runners and len(self.zombies) < 3)
    @rule(data=st.data())
    def pause_past_the_lease(self, data):
        """It comes back later: what it sent arrives, and it tries to store its places."""
        runner = data.draw(st.sampled_from(self.runners))
        self.runners.remove(runner)
        runner.lose_lease()
        self.zombies.append(runner)

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def let_a_stale_relay_go_on(self, data):
        zombie = data.draw(st.sampled_from(self.zombies))
        for step in (zombie.pump, zombie.read, zombie.retry, zombie.settle):
            step()

    # -- The broker --------------------------------------------------------------------------------------------
    @rule(topic=st.sampled_from(TOPICS), is_there=st.booleans())
    def change_a_topic(self, topic, is_there):
        change = self.broker.mend if is_there else self.broker.fail
        change(topic)

    @rule(seconds=st.sampled_from([1, 10, 100]))
    def let_time_pass(self, seconds):
        self.database.now += seconds

    # -- What must hold ----------------------------------------------------------------------------------------
    @invariant()
    def first_occurrences_are_in_the_order_of_publishing(self):
        for key, ids in self.broker.first_occurrences().items():
            wrote = self.database.wrote.get(key, [])
            assert ids == wrote[: len(ids)]

    @invariant()
    def each_shard_has_one_holder_with_a_lease(self):
        held = [shard for runner in self.runners for shard in runner.engine.shards]
        owned = [s for r in self.runners for s in r.engine.shards if self.database.holders[s] == r.id]
        assert sorted(held) == sorted(set(held)) == sorted(owned)

    @invariant()
    def what_was_stored_as_sent_is_in_the_broker(self):
        """A place passes a row only if Kafka has it, or it is set aside, or its topic is held."""
        database = self.database
        sent = {event_id for log in self.broker.logs for _, _, event_id in log}
        for row in database.rows:
            place = database.places[row.shard]
            passed = row.position <= place.hw and place.snapshot.is_visible(row.xid) and not place.is_paging
            kept = (row.shard, row.position) in database.deferred or (row.shard, row.topic) in database.holds
            assert not passed or kept or row.id in sent

    def teardown(self):
        """Everything ends well: writers end, topics are there, one relay goes on. Then nothing is missing."""
        if not hasattr(self, "database"):
            return
        for transaction in list(self.database.open):
            self.database.end(transaction, commits=True)
        for runner in self.runners + self.zombies:
            runner.lose_lease()
            while any(runner.in_flight):
                for partition in range(PARTITIONS):
                    runner.deliver(partition)
            runner.settle()
        for topic in TOPICS:
            self.broker.mend(topic)
        self.database.retry_all()
        last = ModelRunner(self.database, self.broker)
        for _ in range(MOST_TURNS):
            turn(last)
            if is_drained(self.database) and last.is_done():
                break
            self.database.now += 3_000
        assert is_drained(self.database), (self.database.deferred, self.database.holds)
        assert self.broker.first_occurrences() == self.database.wrote
        assert not self.database.rolled_back & {event_id for log in self.broker.logs for _, _, event_id in log}


def turn(runner):
    """One turn of a relay whose broker answers at once."""
    for step in (runner.share, runner.ask, runner.retry, runner.read, runner.pump):
        step()
    while any(runner.in_flight):
        for partition in range(PARTITIONS):
            runner.deliver(partition)
    runner.settle(touches_all=True)


TestRelays = Relays.TestCase
TestRelays.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
)


# -- The model finds faults --------------------------------------------------------------------------------
def one_commits_late_and_a_row_is_refused():
    """Two writers, one relay; the first one commits after the relay read the second one's rows."""
    world = Relays()
    world.start()
    world.begin("a", [KEYS[0]])
    world.begin("a", [KEYS[1]])
    first, second = world.database.open
    world.database.insert(second, "a", KEYS[2], partition=NOT_THERE)
    world.database.insert(second, "a", KEYS[2])
    world.database.end(second, commits=True)
    turn(world.runners[0])
    world.first_occurrences_are_in_the_order_of_publishing()
    world.database.end(first, commits=True)
    world.teardown()


def test_the_engine_survives_a_late_commit_and_a_refused_row():
    one_commits_late_and_a_row_is_refused()


def test_the_model_finds_a_reader_that_forgets_late_rows(monkeypatch):
    read_round = Database.read_round
    monkeypatch.setattr(Database, "read_round", lambda self, r, n: replace(read_round(self, r, n), late=[]))
    with pytest.raises(AssertionError):
        one_commits_late_and_a_row_is_refused()


def test_the_model_finds_an_engine_that_lets_a_key_overtake_its_refused_row(monkeypatch):
    monkeypatch.setattr(Engine, "_must_wait", lambda self, key_id: False)
    with pytest.raises(AssertionError):
        one_commits_late_and_a_row_is_refused()
