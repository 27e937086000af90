"""The races that an outbox reader must survive, each against the relay and against a reader that it finds out."""

from contextlib import ExitStack, contextmanager
from uuid import uuid4

import pytest
from django.db import connection

from relay.check.judge import Record, Row, judge
from tests.relay_helpers import open_connection, skip_to_now, wait_until
from tests.wrong_readers import (
    AfterLastPosition,
    HalfOfTheRelay,
    RunningOnly,
    SkipLocked,
    TheRelay,
    UnderXminCeiling,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS tests_sent")
    skip_to_now()


class World:
    """Readers of one topic and writers of one key. `wrote` has the key's events in the order of its lock."""

    def __init__(self, reader, count=1):
        self.topic = f"race-{uuid4().hex[:8]}"
        self.log = []
        self.wrote = []
        self.readers = [reader(self.topic, self.log) for _ in range(count)]
        self.reader = self.readers[0]
        self._open = ExitStack()

    def begin(self):
        """A writer's connection; its transaction begins with its first statement."""
        return self._open.enter_context(open_connection())

    def insert(self, conn, position=None, key="k"):
        """Write an event of the key, which the writer has locked."""
        event_id = str(uuid4())
        conn.execute(
            "INSERT INTO relay_outbox (position, id, topic, key, type)"
            " VALUES (coalesce(%s, nextval('relay_outbox_position')), %s, %s, %s, 't')",
            [position, event_id, self.topic, key.encode()],
        )
        if key == "k":
            self.wrote.append(event_id)

    def settle(self):
        """Let the readers read until nothing is left for them."""
        for _ in range(4):
            for reader in self.readers:
                reader.step()

    def verdict(self, lost=0):
        """(lost, inverted), once all but `lost` rows were read: transactions of other tests hold an xmin ceiling up."""
        wait_until(lambda: self.settle() or len(set(self.log) & set(self.wrote)) >= len(self.wrote) - lost)
        self.settle()
        rows = {event_id: Row(1, n) for n, event_id in enumerate(self.wrote, start=1)}
        records = [Record(0, n, event_id, rows[event_id]) for n, event_id in enumerate(self.log) if event_id in rows]
        verdict = judge({1: len(rows)}, rows, records)
        assert (verdict.unknown, verdict.repeats) == (0, 0)
        return verdict.lost, verdict.inversions

    def close(self):
        self._open.close()
        for reader in self.readers:
            reader.close()


@contextmanager
def world(reader, count=1):
    made = World(reader, count)
    try:
        yield made
    finally:
        made.close()


def a_lower_position_commits_later(at):
    slow, quick = at.begin(), at.begin()
    at.insert(slow)
    at.insert(quick, key="other")  # another key: its writer need not wait
    quick.commit()
    at.reader.step()
    slow.commit()


def an_id_is_taken_after_the_read(at):
    """A position is given out, the reader passes it, and only then does its transaction get an id."""
    slow, quick = at.begin(), at.begin()
    position = slow.execute("SELECT nextval('relay_outbox_position')").fetchone()[0]
    at.insert(quick, key="other")
    quick.commit()
    at.reader.step()
    at.insert(slow, position=position)
    slow.commit()


def a_key_goes_from_a_later_transaction_to_an_earlier_one(at):
    """Both take the key's lock in turn; the one with the lower id takes it second."""
    first, second = at.begin(), at.begin()
    at.insert(first, key="other")  # has its id now
    at.insert(second)
    second.commit()
    at.insert(first)
    first.commit()


def a_savepoint_of_a_slow_transaction_holds_the_row(at):
    slow, quick = at.begin(), at.begin()
    slow.execute("SELECT pg_current_xact_id()")
    slow.execute("SAVEPOINT one")
    at.insert(slow)
    slow.execute("RELEASE one")
    slow.execute("SAVEPOINT two")
    slow.execute(
        "INSERT INTO relay_outbox (topic, key, type) VALUES (%s, 'k', 'undone')",
        [at.topic],
    )
    slow.execute("ROLLBACK TO two")
    at.insert(quick, key="other")
    quick.commit()
    at.reader.step()
    slow.commit()


def two_take_and_the_second_is_faster(at):
    writer = at.begin()
    for _ in range(2):
        at.insert(writer)
        writer.commit()
    for reader in at.readers:
        reader.take()
    for reader in reversed(at.readers):
        reader.publish()


ONE_READER = [
    a_lower_position_commits_later,
    an_id_is_taken_after_the_read,
    a_key_goes_from_a_later_transaction_to_an_earlier_one,
    a_savepoint_of_a_slow_transaction_holds_the_row,
]


@pytest.mark.parametrize("race", ONE_READER)
def test_the_relay_loses_and_inverts_nothing_in_any_race(race):
    with world(TheRelay) as at:
        race(at)
        assert at.verdict() == (0, 0)


@pytest.mark.parametrize("shards_first", [True, False])
def test_two_relays_that_read_at_once_invert_nothing(shards_first):
    with world(HalfOfTheRelay, 2) as at:
        at.readers.sort(key=lambda reader: min(reader.engine.shards), reverse=not shards_first)
        two_take_and_the_second_is_faster(at)
        assert at.verdict() == (0, 0)


@pytest.mark.parametrize(
    ("reader", "race", "found"),
    [
        (AfterLastPosition, a_lower_position_commits_later, (1, 0)),
        (AfterLastPosition, an_id_is_taken_after_the_read, (1, 0)),
        (AfterLastPosition, a_savepoint_of_a_slow_transaction_holds_the_row, (1, 0)),
        (RunningOnly, an_id_is_taken_after_the_read, (1, 0)),
        (UnderXminCeiling, a_key_goes_from_a_later_transaction_to_an_earlier_one, (0, 1)),
    ],
)
def test_a_wrong_reader_is_found_out_by_its_race(reader, race, found):
    with world(reader) as at:
        race(at)
        assert at.verdict(lost=found[0]) == found


def test_workers_that_skip_each_others_rows_break_the_order_of_a_key():
    with world(SkipLocked, 2) as at:
        two_take_and_the_second_is_faster(at)
        assert at.verdict() == (0, 1)


@pytest.mark.parametrize(
    ("reader", "race"),
    [
        (RunningOnly, a_lower_position_commits_later),
        (UnderXminCeiling, a_lower_position_commits_later),
        (UnderXminCeiling, an_id_is_taken_after_the_read),
        (AfterLastPosition, a_key_goes_from_a_later_transaction_to_an_earlier_one),
        (SkipLocked, a_lower_position_commits_later),
    ],
)
def test_each_race_is_survived_by_a_reader_that_fails_another_one(reader, race):
    """So it is the race that finds a reader out, not the test around it."""
    with world(reader) as at:
        race(at)
        assert at.verdict() == (0, 0)


@pytest.mark.parametrize(("reader", "published"), [(TheRelay, 1), (UnderXminCeiling, 0)])
def test_an_open_transaction_elsewhere_stops_a_reader_under_the_xmin_ceiling_only(reader, published):
    with world(reader) as at:
        idle, writer = at.begin(), at.begin()
        idle.execute("SELECT pg_current_xact_id()")
        at.insert(writer)
        writer.commit()
        at.settle()
        assert len(at.log) == published
        idle.commit()
        assert at.verdict() == (0, 0)
