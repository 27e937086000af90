"""A database, a broker and runners in memory, to try the relay's real engine against in any order of events.

The database has transactions with ids, snapshots and rows whose positions rise within a key; the broker takes what a
runner sent in order per partition, whenever the test says so. What the SQL of `relay.store` does is said again here in
Python: the statements themselves are tested against PostgreSQL.
"""

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

from relay.domain.outcome import Failure, Scope, TopicFacts
from relay.domain.ownership import Peer, plan_share
from relay.domain.places import Place, Snapshot
from relay.engine import Engine, mark_stored, without_shards
from relay.runner import bounds_from_settings
from relay.store import Claimed, Hold, RoundRead, ShardsLostError, sort_unseen

SHARDS = 4
PARTITIONS = 2
TOPICS = ("a", "b")


@dataclass(frozen=True)
class Row:
    position: int
    xid: int
    topic: str
    key: bytes
    id: str
    partition: int | None = None

    @property
    def shard(self):
        return shard_of(self.topic, self.key)

    def columns(self, n):
        return (
            n, self.position, self.shard, self.id, self.topic, self.key, self.partition, "t", None, b"{}",
            "application/json", 0,
        )  # fmt: skip


def shard_of(topic, key):
    return (key[0] + ord(topic)) % SHARDS


@dataclass
class Transaction:
    xid: int | None = None
    rows: list = field(default_factory=list)
    reserved: int | None = None


class Database:
    """Rows by position, places by shard. `wrote` has the committed ids of each (topic, key) in the lock's order."""

    def __init__(self):
        self.now = 0.0
        self.next_xid = 1
        self.next_position = 1
        self.open = []
        self.rows = []
        self.locks = {}
        self.wrote = {}
        self.rolled_back = set()
        first = Snapshot(xmin=1, xmax=1)
        self.places = {shard: Place(hw=0, snapshot=first) for shard in range(SHARDS)}
        self.epochs = dict.fromkeys(range(SHARDS), 0)
        self.holders = dict.fromkeys(range(SHARDS))
        self.peers = {}
        self.runners = 0
        self.deferred = {}
        self.holds = {}

    def clock(self):
        return self.now

    # -- Writers -----------------------------------------------------------------------------------------------
    def begin(self):
        self.open.append(Transaction())

    def reserve(self, transaction):
        """Take a position before the transaction has an id, as an INSERT's defaults may."""
        if transaction.reserved is None:
            transaction.reserved = self._position()

    def insert(self, transaction, topic, key, partition=None):
        """Write a row under its key's lock; False = another transaction has it."""
        if self.locks.setdefault((topic, key), transaction) is not transaction:
            return False
        if transaction.rows:  # the positions of a key must rise
            self.reserve(transaction)
        position = transaction.reserved or self._position()
        transaction.reserved = None
        if transaction.xid is None:
            transaction.xid, self.next_xid = self.next_xid, self.next_xid + 1
        transaction.rows.append(Row(position, transaction.xid, topic, key, str(uuid4()), partition))
        return True

    def end(self, transaction, *, commits):
        self.open.remove(transaction)
        self.locks = {k: t for k, t in self.locks.items() if t is not transaction}
        if commits:
            self.rows += transaction.rows
            for row in transaction.rows:
                self.wrote.setdefault((row.topic, row.key), []).append(row.id)
        else:
            self.rolled_back |= {row.id for row in transaction.rows}

    def _position(self):
        position, self.next_position = self.next_position, self.next_position + 1
        return position

    # -- The relay's statements --------------------------------------------------------------------------------
    def snapshot(self):
        running = tuple(sorted(t.xid for t in self.open if t.xid is not None))
        return Snapshot(xmin=min(running, default=self.next_xid), xmax=self.next_xid, xip=running)

    def read_round(self, readers, late_rows):
        late = [(r.n, row) for r in readers for row in self.rows if _is_late(row, r)]
        late = sorted(late, key=lambda pair: pair[1].position)[:late_rows]
        fresh = [(r.n, row) for r in readers for row in self._fresh(r)]
        return RoundRead(
            snapshot=self.snapshot(),
            late=[row.columns(n) for n, row in late],
            fresh=[row.columns(n) for n, row in fresh],
        )

    def read_unseen(self, readers):
        """The cheap read of readers that had read all that their one snapshot saw."""
        seen = readers[0].place.snapshot
        shards = {r.shard for r in readers}
        found = [row.columns(0)[1:] for row in self.rows if row.shard in shards and not seen.is_visible(row.xid)]
        return sort_unseen(readers, self.snapshot(), found)

    def _fresh(self, r):
        found = [
            row
            for row in self.rows
            if _is_for(row, r) and row.position > r.place.hw and (r.cap is None or row.position <= r.cap)
        ]
        return sorted(found, key=lambda row: row.position)[: r.quota]

    def fetch_rows(self, wanted):
        return [
            row.columns(0) for row in sorted(self.rows, key=lambda r: r.position) if (row.shard, row.position) in wanted
        ]

    def claim(self, runner, limit):
        free = [s for s in range(SHARDS) if self.holders[s] not in self.peers][:limit]
        for shard in free:
            self.holders[shard], self.epochs[shard] = runner, self.epochs[shard] + 1
        return [Claimed(shard=s, epoch=self.epochs[s], place=self.places[s]) for s in free]

    def release(self, runner, shards):
        for shard in shards:
            if self.holders[shard] == runner:
                self.holders[shard] = None

    def load_deferred(self, shards):
        return [replace(d, stored=True, in_flight=False) for k, d in sorted(self.deferred.items()) if k[0] in shards]

    def retry_all(self):
        """A person lets every row that was set aside be tried again, with all its attempts."""
        for deferral in self.deferred.values():
            deferral.failed, deferral.attempts, deferral.due_s = False, 0, 0.0

    def load_holds(self, shards):
        return [
            Hold(shard=shard, topic=topic, place=place, final=place, reason="")
            for (shard, topic), place in self.holds.items()
            if shard in shards
        ]

    def settle(self, runner, changes):
        lost = {s for s, epoch, _ in changes.moves if (self.holders[s], self.epochs[s]) != (runner, epoch)}
        if lost:
            raise ShardsLostError(lost)
        self.places |= {shard: place for shard, _, place in changes.moves}
        for key in changes.undefer:
            self.deferred.pop(key, None)
        self.deferred |= {(d.shard, d.position): replace(d) for d in changes.defer}
        for key in changes.unhold:
            self.holds.pop(key, None)
        self.holds |= {(h.shard, h.topic): h.final for h in changes.hold}


def _is_for(row, reader):
    return row.shard == reader.shard and reader.topic in (None, row.topic)


def _is_late(row, reader):
    place = reader.place
    return (
        _is_for(row, reader)
        and place.late_after < row.position <= place.hw
        and not place.snapshot.is_visible(row.xid)
        and (place.late_snapshot is None or place.late_snapshot.is_visible(row.xid))
    )


class Broker:
    """A log a partition, and what is on its way there, by runner and partition, in order."""

    def __init__(self):
        self.logs = [[] for _ in range(PARTITIONS)]
        self.facts = {
            name: TopicFacts(name=name, partitions=PARTITIONS, max_message_bytes=1_000_000) for name in TOPICS
        }

    def append(self, partition, topic, key, event_id):
        self.logs[partition].append((topic, key, event_id))
        return len(self.logs[partition]) - 1

    def fail(self, topic):
        failure = Failure(scope=Scope.TOPIC, code="gone", text="is not there")
        self.facts[topic] = TopicFacts(name=topic, failure=failure)

    def mend(self, topic):
        """Make it anew, with room for every row."""
        self.facts[topic] = TopicFacts(name=topic, partitions=1_000, max_message_bytes=1_000_000)

    def first_occurrences(self):
        """Ids by (topic, key) as a reader that drops repeats sees them."""
        seen, found = set(), {}
        for log in self.logs:
            for topic, key, event_id in log:
                if event_id not in seen:
                    seen.add(event_id)
                    found.setdefault((topic, key), []).append(event_id)
        return found


class ModelRunner:
    """The steps of `relay.runner.Runner`, each on its own; this is also its producer."""

    brokers_down = False

    def __init__(self, database, broker):
        database.runners += 1
        self.id = UUID(int=database.runners)
        self.database, self.broker = database, broker
        self.has_lease = True
        self.in_flight = [deque() for _ in range(PARTITIONS)]
        self.begun = None
        bounds = replace(
            bounds_from_settings(), round_rows=6, late_rows=3, max_unacked_rows=14, least_quota=2, retry_rows=4
        )
        self.engine = Engine(self, bounds, database.clock)
        database.peers[self.id] = Peer(id=self.id, leaving=False)

    def share(self):
        """Claim and give up as the fair share says."""
        if not self.has_lease:
            return
        engine, database = self.engine, self.database
        keeps = [s for s, held in engine.shards.items() if not held.draining]
        share = plan_share(self.id, list(database.peers.values()), keeps, SHARDS)
        for shard in share.give:
            engine.shards[shard].draining = True
        drained = engine.drained()
        database.release(self.id, drained)
        engine.drop(drained)
        claimed = database.claim(self.id, share.take) if share.take else []
        shards = [c.shard for c in claimed]
        engine.adopt(claimed, database.load_deferred(shards), database.load_holds(shards))

    def read(self):
        engine = self.engine
        if not (self.has_lease and engine.may_read()):
            return
        begun, self.begun = self.begun, None
        if begun and engine.may_take(begun[0]):
            engine.take(*begun)
        elif readers := engine.plan_readers():
            engine.take(readers, self._read_now(readers))

    def read_ahead(self):
        if self.has_lease and self.begun is None and self.engine.may_read_ahead():
            readers = self.engine.plan_readers()
            self.begun = readers, self.database.read_round(readers, 3)

    def _read_now(self, readers):
        """The cheap read finds what the whole one does, whenever the engine lets it be used."""
        whole = self.database.read_round(readers, 3)
        if not self.engine.is_read_out(readers):
            return whole
        unseen = self.database.read_unseen(readers)
        quotas = {r.n: r.quota for r in readers}
        counts = Counter(row[0] for row in unseen.fresh)
        if len(unseen.late) < 3 and all(counts[n] <= quotas[n] for n in counts):
            assert sorted(unseen.late) == sorted(whole.late)
            assert sorted(unseen.fresh) == sorted(whole.fresh)
        return unseen

    def ask(self):
        """Hear about topics; a far clock lets every fact be old."""
        self.engine.learn(self.broker.facts.values(), self.database.now)

    def pump(self):
        self.engine.pump(lambda: self.has_lease)

    def retry(self):
        if not self.has_lease:
            return
        due = self.engine.due_deferrals(self.database.now)
        for columns in self.database.fetch_rows({(d.shard, d.position) for d in due}):
            self.engine.retry(columns)

    def produce(self, facts, *, key, headers, tag, **_record):
        partition = key[0] % PARTITIONS
        event_id = dict(headers)["event-id"].decode()
        self.in_flight[partition].append((facts.name, key, event_id, tag))
        return True

    def deliver(self, partition, *, reports=True):
        """The broker takes the next record of a partition, and says so or not."""
        if self.in_flight[partition]:
            topic, key, event_id, tag = self.in_flight[partition].popleft()
            offset = self.broker.append(partition, topic, key, event_id)
            if reports:
                self.engine.hear([(tag, partition, offset, None)])

    def settle(self, *, touches_all=False):
        engine = self.engine
        engine.finish_rounds()
        if touches_all:
            engine.touch_all()
        changes = engine.collect()
        if changes is None:
            return
        try:
            self.database.settle(self.id, changes)
        except ShardsLostError as error:
            engine.drop(error.shards)
            changes = without_shards(changes, error.shards)
            self.database.settle(self.id, changes)
        mark_stored(changes)

    def lose_lease(self):
        """Its own clock ends the lease before the database's does; what is in the air is still on its way."""
        self.has_lease = False
        self.database.peers.pop(self.id, None)

    def is_done(self):
        return not (self.engine.queue or self.engine.unacked or any(self.in_flight))


def is_drained(database):
    """Nothing waits: no row is unread, set aside or held."""
    late_or_fresh = any(
        row.position > database.places[row.shard].hw or not database.places[row.shard].snapshot.is_visible(row.xid)
        for row in database.rows
    )
    return not (late_or_fresh or database.deferred or database.holds)
