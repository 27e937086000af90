"""Ways to read an outbox that look right, kept to show that the tests' races find each of them out; and the relay's.

Each reads the real table for one topic. `take()` reads, `publish()` publishes what was taken: `log` has the event ids
in the order of publishing.
"""

from uuid import uuid4

from django.conf import settings

from relay.domain.outcome import TopicFacts
from relay.domain.places import Snapshot
from relay.engine import Engine, mark_stored
from relay.runner import bounds_from_settings, lease_clock
from relay.store import Store, connect


class Reader:
    """What all of them share. `conn` is in autocommit."""

    def __init__(self, topic, log):
        self.topic = topic
        self.log = log
        self.taken = []
        self.conn = connect(f"reader {topic}")
        self.start()

    def start(self):
        self.position = self._one("SELECT last_value FROM relay_outbox_position")
        self.snapshot = Snapshot.parse(self._one("SELECT pg_current_snapshot()::text"))

    def step(self):
        self.take()
        self.publish()

    def publish(self):
        self.log += self.taken
        self.taken = []

    def close(self):
        self.conn.close()

    def _one(self, query):
        return self.conn.execute(query).fetchone()[0]

    def _rows(self, condition, order, params=()):
        query = f"SELECT id::text, position, xid::text::bigint FROM relay_outbox WHERE topic = %s AND {condition}"
        return self.conn.execute(f"{query} ORDER BY {order}", [self.topic, *params]).fetchall()

    def _take(self, rows):
        self.taken = [event_id for event_id, *_ in rows]


class AfterLastPosition(Reader):
    """`position > last`: a lower position that commits later is never seen."""

    def take(self):
        rows = self._rows("position > %s", "position", [self.position])
        self.position = max([self.position, *(position for _, position, _ in rows)])
        self._take(rows)


class UnderXminCeiling(Reader):
    """By (xid, position), finished transactions only: the order of beginnings is not the order of commits."""

    def start(self):
        self.place = (0, 0)
        self.place = max([(xid, position) for _, position, xid in self._finished()], default=(0, 0))

    def take(self):
        rows = self._finished()
        self.place = max([self.place, *((xid, position) for _, position, xid in rows)])
        self._take(rows)

    def _finished(self):
        return self._rows(
            "xid < pg_snapshot_xmin(pg_current_snapshot()) AND (xid::text::bigint, position) > (%s, %s)",
            "xid, position",
            self.place,
        )


class SkipLocked(Reader):
    """`FOR UPDATE SKIP LOCKED` by several workers: one takes a key's second row while another still has the first."""

    ROWS = 1

    def start(self):
        self.conn.execute("CREATE TABLE IF NOT EXISTS tests_sent (id uuid PRIMARY KEY)")

    def take(self):
        self.conn.execute("BEGIN")
        found = self.conn.execute(
            "SELECT o.id::text FROM relay_outbox o WHERE o.topic = %s"
            " AND NOT EXISTS (SELECT 1 FROM tests_sent s WHERE s.id = o.id)"
            " ORDER BY o.position LIMIT %s FOR UPDATE OF o SKIP LOCKED",
            [self.topic, self.ROWS],
        ).fetchall()
        self._take(found)

    def publish(self):
        for event_id in self.taken:
            self.conn.execute("INSERT INTO tests_sent VALUES (%s)", [event_id])
        super().publish()
        self.conn.execute("COMMIT")

    def step(self):
        before = None
        while before != len(self.log):
            before = len(self.log)
            super().step()


class RunningOnly(Reader):
    """(hw, snapshot), but late rows only of transactions that had an id then: forgets `xid >= xmax`."""

    def take(self):
        late = "position <= %s AND xid = ANY(%s::xid8[])"
        rows = self._rows(
            f"(position > %s OR ({late}))",
            "position",
            [self.position, self.position, [str(xid) for xid in self.snapshot.xip]],
        )
        self.snapshot = Snapshot.parse(self._one("SELECT pg_current_snapshot()::text"))
        self.position = max([self.position, *(position for _, position, _ in rows)])
        self._take(rows)


class TheRelay(Reader):
    """The relay's own engine and statements, step by step, with a producer that acknowledges at once."""

    SHARDS = 64

    def start(self):
        self.runner = uuid4()
        self._heard = []
        self.store = Store(self.conn, self.runner, settings.RELAY_LEASE_S)
        self.store.register("reader", "process")
        self.engine = Engine(self, bounds_from_settings(), lease_clock)
        self.engine.adopt(self.store.claim(self.SHARDS), [], [])
        self.engine.learn([TopicFacts(name=self.topic, partitions=1, max_message_bytes=1_000_000)], lease_clock())

    def take(self):
        readers = self.engine.plan_readers()
        read = self.store.read_unseen(readers, 1_000) if self.engine.is_read_out(readers) else None
        self.engine.take(readers, read or self.store.read_round(readers, settings.RELAY_LATE_ROWS))

    def publish(self):
        self.engine.pump(lambda: True)
        self.engine.hear(self._heard)
        self._heard = []
        self.engine.finish_rounds()
        changes = self.engine.collect()
        if changes is not None:
            self.store.settle(changes)
            mark_stored(changes)

    def produce(self, facts, *, headers, tag, **_record):
        self.log.append(dict(headers)["event-id"].decode())
        self._heard.append((tag, 0, len(self.log), None))
        return True

    def close(self):
        self.store.release(list(self.engine.shards))
        self.store.unregister()
        self.store.close()


class HalfOfTheRelay(TheRelay):
    """One of two relays that share the shards."""

    SHARDS = 32
