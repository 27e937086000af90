"""What a runner holds in memory: its shards, the rounds in the air, deferred keys, held topics. No database.

read round -> rows wait in `queue` -> produced -> reported -> the round is final once every row of it is acknowledged,
deferred or held -> `collect()` gives the changes that the store writes in one transaction.

A row is *final* when it is acknowledged, or when a deferral or hold that is written in the same transaction as its
round's places takes care of it.
"""

import json
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import itemgetter
from typing import Any
from uuid import UUID

from relay.domain import envelope, histogram
from relay.domain.outcome import Failure, GiveUp, Retry, Scope, TopicFacts, check_record, decide_retry
from relay.domain.places import Page, Place, Snapshot, advance, share_quota, takes_fresh
from relay.domain.policy import TopicRule
from relay.errors import BadHeaders
from relay.kafka.ports import RecordProducer, Report
from relay.store import Changes, Claimed, Deferral, Hold, Orders, Reader, RoundRead
from relay.types import OnFailed

KeyId = tuple[str, bytes | int | None]

LEASE_CHECK_ROWS = 50
"""The lease is looked at before every so many rows: less than a millisecond."""

_number, _position = itemgetter(0), itemgetter(1)
_number_and_position = itemgetter(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The engine's bounds; the settings of the same names say what they mean."""

    round_rows: int
    round_bytes: int
    late_rows: int
    pump_rows: int
    max_unacked_rows: int
    max_unacked_bytes: int
    least_quota: int
    retry_rows: int
    retry_key_rows: int
    rejoin_rows: int
    rejoin_s: float
    rejoin_pause_s: float
    rule: TopicRule
    snapshot_lag_xids: int
    topic_facts_s: float
    topic_recheck_s: float


@dataclass(slots=True)
class Shard:
    """A shard that this runner holds. `read` is where the reader is, `final` what may be stored, `stored` what is."""

    epoch: int
    read: Place
    final: Place
    stored: Place
    draining: bool = False


@dataclass(slots=True, eq=False)
class OutRow:
    """One outbox row on its way; the first fields are the columns of a read, in their order."""

    n: int
    position: int
    shard: int
    event_id: str
    topic: str
    key: bytes | None
    partition: int | None
    type: str
    stored_headers: str | None
    payload: bytes | None
    content_type: str
    published_ms: int
    round: "Round | None" = None
    acked: bool = False
    size: int = 0
    deferral: Deferral | None = None

    @property
    def key_id(self) -> KeyId:
        """What keeps its order: the topic and key; a row without a key stands alone."""
        return self.topic, self.position if self.key is None else self.key

    def headers(self) -> list[envelope.Header]:
        """The headers of the record.

        Raises:
            BadHeaders: what is stored is malformed (written by plain SQL).
        """
        return envelope.build_headers(
            event_id=self.event_id,
            event_type=self.type,
            published_ms=self.published_ms,
            content_type=self.content_type,
            own=() if self.stored_headers is None else envelope.load_headers(json.loads(self.stored_headers)),
        )


@dataclass(slots=True, eq=False)
class Round:
    """One read: where its readers stood before and after, and what is still in the air."""

    seq: int
    readers: Sequence[Reader]
    after: dict[int, Place]
    epochs: dict[int, int]
    pending: int
    rows: list[OutRow]
    shards: frozenset[int]
    sent_at: float | None = None
    defer: list[Deferral] = field(default_factory=list)
    hold: list[Hold] = field(default_factory=list)
    merged: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pause:
    """A topic that a person paused. Rounds up to `after_round` were read before and go out: nothing is sent twice."""

    failure: Failure
    after_round: int


@dataclass(slots=True)
class _Range:
    from_position: int
    to_position: int
    from_offset: int
    to_offset: int
    sent: int
    first: float
    last: float


class Engine:
    """See the module. Not thread-safe; `now` arguments and `clock` are seconds of one monotonic clock."""

    def __init__(self, producer: RecordProducer, bounds: Bounds, clock: Callable[[], float]) -> None:
        self.producer = producer
        self._bounds = bounds
        self._clock = clock
        self.shards: dict[int, Shard] = {}
        self.rounds: deque[Round] = deque()
        self.queue: deque[OutRow] = deque()
        self.keys: dict[KeyId, deque[Deferral]] = {}
        self.holds: dict[tuple[int, str], Hold] = {}
        self.topics: dict[str, tuple[TopicFacts, float]] = {}
        self.paused_topics: dict[str, _Pause] = {}
        self.paused_keys: frozenset[KeyId] = frozenset()
        self.rules: Mapping[str, TopicRule] = {}
        self.eager: deque[KeyId] = deque()
        self.behind: dict[KeyId, deque[OutRow]] = {}
        self._rejoins_until: dict[KeyId, float] = {}
        self.unacked = 0
        self.unacked_bytes = 0
        self.sent_total = 0
        self.broken: Failure | None = None
        self.failed_rows: list[tuple[OutRow, Failure]] = []
        self.failed_topics: dict[str, Failure] = {}
        self.order_broken: list[Deferral] = []
        self.remade_topics: set[str] = set()
        self.clock_offset_ms = 0.0
        self.buckets = [0] * histogram.SIZE
        self.settled_rows = 0
        self._seq = 0
        self._hungry: frozenset[int] = frozenset()
        self._read_out_at: Snapshot | None = None
        self._row_bytes = 1_000.0
        self._queued_topics: set[str] = set()
        self._topic_ids: dict[str, str] = {}
        self._ranges: dict[tuple[str, int], _Range] = {}
        self._touched: dict[int, int] = {}
        self._changed: dict[tuple[int, int], Deferral | None] = {}
        self._hold_changes: dict[tuple[int, str], Hold | None] = {}
        self._retries: dict[tuple[int, int], float] = {}

    def take_over(self, before: "Engine") -> None:
        """Go on for an engine that was given up: what people were not told yet, and the count of what was sent."""
        self.sent_total = before.sent_total
        self.failed_rows, self.failed_topics = before.failed_rows, before.failed_topics
        self.order_broken, self.remade_topics = before.order_broken, before.remade_topics

    # -- Shards ------------------------------------------------------------------------------------------------
    def adopt(self, claimed: Iterable[Claimed], deferred: Iterable[Deferral], holds: Iterable[Hold]) -> None:
        """Start with shards that were just claimed; what is deferred or held there comes with them."""
        now = self._clock()
        for claim in claimed:
            self.shards[claim.shard] = Shard(epoch=claim.epoch, read=claim.place, final=claim.place, stored=claim.place)
        for deferral in deferred:
            deferral.due_mono = now + (deferral.due_s or 0.0)
            deferral.facts_from = now
            self._doubt(deferral.topic)
            self.keys.setdefault(_key_id(deferral), deque()).append(deferral)
        for hold in holds:
            self.holds[hold.shard, hold.topic] = hold

    def drop(self, shards: Iterable[int]) -> None:
        """Forget shards: lost, or given up after they were drained."""
        gone = set(shards)
        for shard in gone:
            self.shards.pop(shard, None)
            self._touched.pop(shard, None)
        self.keys = {k: d for k, d in self.keys.items() if d[0].shard not in gone}
        self.holds = {k: h for k, h in self.holds.items() if h.shard not in gone}
        self._changed = {k: d for k, d in self._changed.items() if k[0] not in gone}
        self._hold_changes = {k: h for k, h in self._hold_changes.items() if k[0] not in gone}

    def drained(self) -> list[int]:
        """Draining shards of which nothing is in the air and nothing waits to be stored."""
        if not any(held.draining for held in self.shards.values()):
            return []
        busy = {shard for r in self.rounds for shard in r.shards} | set(self._touched)
        busy |= {shard for shard, _ in self._retries}
        return [shard for shard, held in self.shards.items() if held.draining and shard not in busy]

    # -- What people want --------------------------------------------------------------------------------------
    def obey(self, orders: Orders, rules: Mapping[str, TopicRule]) -> None:
        """Take in what people want: pauses, the rules of topics, and what they did to rows that were set aside."""
        self.rules = rules
        self._pause_topics(orders.paused_topics)
        resumed = self.paused_keys - frozenset(orders.paused_keys)
        self.paused_keys = frozenset(orders.paused_keys)
        self.eager.extend(key for key in resumed if key in self.keys)
        for shard, position, topic, key in orders.skipped:
            self._give_up(shard, position, (topic, position if key is None else key))
        for amended in orders.amended:
            self._amend(amended)

    def _pause_topics(self, wanted: Mapping[str, str]) -> None:
        before = self.paused_topics
        self.paused_topics = {topic: before.get(topic) or self._pause(why) for topic, why in wanted.items()}
        for topic in before.keys() - wanted.keys():
            self._doubt(topic)  # its holds resume when the broker says that it is there
        for hold in self.holds.values():
            if hold.topic in self.paused_topics:
                hold.resuming = hold.caught_up = False

    def _pause(self, why: str) -> _Pause:
        return _Pause(failure=Failure(scope=Scope.TOPIC, code="paused", text=why), after_round=self._seq)

    def _give_up(self, shard: int, position: int, key_id: KeyId) -> None:
        found = self._find(shard, position, key_id)
        if found is None:
            return
        if found.in_flight:
            found.skipped = True  # its report decides: sent anyway, or gone
        else:
            self._remove(found, key_id)

    def _amend(self, amended: Deferral) -> None:
        found = self._find(amended.shard, amended.position, _key_id(amended))
        if found is None or found.revision >= amended.revision:
            return
        found.revision = amended.revision
        found.attempts, found.failed, found.parking = amended.attempts, amended.failed, False
        found.due_s = amended.due_s
        found.due_mono = self._clock() + (amended.due_s or 0.0)
        found.facts_from = self._clock()  # the person may have changed the topic just now
        self._doubt(amended.topic)

    def _find(self, shard: int, position: int, key_id: KeyId) -> Deferral | None:
        waiting = self.keys.get(key_id, ())
        return next((d for d in waiting if d.position == position and d.shard == shard), None)

    def _remove(self, deferral: Deferral, key_id: KeyId) -> None:
        """Let a key go on without one of its rows; it rejoins the log behind the last one."""
        waiting = self.keys[key_id]
        is_head = waiting[0] is deferral
        waiting.remove(deferral)
        if not waiting:
            del self.keys[key_id]
            self._rejoins_until.pop(key_id, None)
            self.queue.extendleft(reversed(self.behind.pop(key_id, ())))
        elif is_head:
            waiting[0].due_mono = self._clock()
            self.eager.append(key_id)

    # -- Reading -----------------------------------------------------------------------------------------------
    @property
    def rounds_read(self) -> int:
        """How many rounds were read."""
        return self._seq

    def may_read(self) -> bool:
        """Tell whether another round fits the bounds."""
        bounds = self._bounds
        waiting = self.unacked + sum(map(len, self.behind.values()))
        return (
            bool(self.shards)
            and not self.queue
            and waiting < bounds.max_unacked_rows
            and self.unacked_bytes < bounds.max_unacked_bytes
        )

    def is_read_out(self, readers: Sequence[Reader]) -> bool:
        """Tell whether these readers had read all that their one snapshot saw, so that only unseen rows are new."""
        at = self._read_out_at
        return at is not None and all(r.topic is None and r.place.snapshot is at for r in readers)

    @property
    def is_draining(self) -> bool:
        """Whether the last round was cut: there is a backlog."""
        return bool(self._hungry)

    def may_read_ahead(self) -> bool:
        """Tell whether the next round may be read while the last one is produced."""
        return self.is_draining and not self.holds and not self.behind and self._has_room()

    def _has_room(self) -> bool:
        bounds = self._bounds
        rows, size = self.unacked + len(self.queue), self.unacked_bytes + len(self.queue) * self._row_bytes
        return (
            rows + bounds.round_rows <= bounds.max_unacked_rows
            and size + bounds.round_bytes <= bounds.max_unacked_bytes
        )

    def may_take(self, readers: Sequence[Reader]) -> bool:
        """Tell whether a round that was begun for these readers is still theirs: nothing happened to their shards."""
        held = {s: h for s, h in self.shards.items() if not h.draining}
        return (
            len(held) == len(readers)
            and not self.holds
            and all(r.topic is None and r.shard in held and held[r.shard].read is r.place for r in readers)
        )

    def plan_readers(self) -> list[Reader]:
        """Who reads in the next round, and how much."""
        bounds = self._bounds
        places = {s: held.read for s, held in sorted(self.shards.items()) if not held.draining}
        room = bounds.max_unacked_rows - self.unacked - len(self.queue)
        rows = max(1, min(bounds.round_rows, room, int(bounds.round_bytes / self._row_bytes)))
        quota = share_quota(places, self._hungry, rows=rows, least=min(bounds.least_quota, rows))
        resuming = [h for h in self.holds.values() if h.resuming and h.shard in places]
        for hold in resuming:
            if hold.caught_up:  # its place meets the shard's in this round
                quota[hold.shard] = 0
        readers = [Reader(n=n, shard=s, place=p, quota=quota[s]) for n, (s, p) in enumerate(places.items())]
        held_rows = max(1, rows // max(1, len(resuming)))
        readers += [
            Reader(
                n=len(places) + i,
                shard=hold.shard,
                place=hold.place,
                quota=0 if hold.place.is_paging else held_rows,
                topic=hold.topic,
                cap=places[hold.shard].hw,
            )
            for i, hold in enumerate(resuming)
        ]
        return readers

    def take(self, readers: Sequence[Reader], read: RoundRead) -> int:
        """Take a round in: its rows wait in the queue, the readers move on. How many rows there are."""
        late = Page(last=read.late[-1][1] if read.late else None, is_cut=len(read.late) >= self._bounds.late_rows)
        paused = {r.n for r in readers if not takes_fresh(r.place, late)}
        fresh = [row for row in read.fresh if row[0] not in paused] if paused else read.fresh
        counts: dict[int, int] = Counter(map(_number, fresh))
        lasts: dict[int, int] = dict(map(_number_and_position, fresh))
        top = max([*lasts.values(), *(r.place.hw for r in readers)])
        after = {
            r.n: advance(
                r.place,
                late=late,
                last_fresh=lasts.get(r.n),
                snapshot=read.snapshot,
                top=top if r.topic is None and counts.get(r.n, 0) < r.quota else 0,
            )
            for r in readers
        }
        rows = [OutRow(*columns) for columns in sorted([*read.late, *fresh], key=_position)]
        self._seq += 1
        made = Round(
            seq=self._seq,
            readers=readers,
            after=after,
            epochs={r.shard: self.shards[r.shard].epoch for r in readers},
            pending=len(rows),
            rows=rows,
            shards=frozenset(readers[n].shard for n in {*counts, *map(_number, read.late)}),
        )
        self._note_read_out(readers, counts, read.snapshot, is_cut=late.is_cut or bool(paused))
        self._hungry = frozenset(r.shard for r in readers if r.topic is None and r.quota and counts.get(r.n) == r.quota)
        self._move_readers(made, counts, late)
        self._admit(made)
        return len(rows)

    def _note_read_out(
        self, readers: Sequence[Reader], counts: Mapping[int, int], snapshot: Snapshot, *, is_cut: bool
    ) -> None:
        is_whole = not is_cut and all(r.topic is None and counts.get(r.n, 0) < r.quota for r in readers)
        self._read_out_at = snapshot if is_whole else None

    def _move_readers(self, made: Round, counts: dict[int, int], late: Page) -> None:
        for reader in made.readers:
            if reader.topic is None:
                self.shards[reader.shard].read = made.after[reader.n]
        for reader in made.readers:
            if reader.topic is not None:
                self._move_hold(made, reader, is_complete=not late.is_cut and counts.get(reader.n, 0) < reader.quota)

    def _move_hold(self, made: Round, reader: Reader, *, is_complete: bool) -> None:
        hold = self.holds[reader.shard, reader.topic or ""]
        place = made.after[reader.n]
        if is_complete and not reader.place.is_paging and reader.cap is not None:
            place = replace(place, hw=max(place.hw, reader.cap))
            made.after[reader.n] = place
            hold.caught_up = True
        hold.place = place
        main = self.shards[reader.shard].read
        if (main.hw, main.snapshot, main.is_paging) == (place.hw, place.snapshot, place.is_paging):
            del self.holds[reader.shard, hold.topic]
            made.merged.append((reader.shard, hold.topic))

    def _admit(self, made: Round) -> None:
        size = 0
        for row in made.rows:
            row.round = made
            row.size = len(row.payload or b"") + len(row.key or b"")
            size += row.size
        if made.rows:
            average = size / len(made.rows) + 200
            self._row_bytes = max(self._row_bytes * 0.7 + average * 0.3, average)
            self.queue.extend(made.rows)
            self._queued_topics = {row.topic for row in made.rows}
        if made.rows or made.merged or self.rounds:
            self.rounds.append(made)
        else:
            self._finish(made)

    # -- Topics ------------------------------------------------------------------------------------------------
    def topics_to_ask(self, now: float) -> set[str]:
        """Topics whose facts are missing or old."""
        bounds = self._bounds
        wanted = (self._queued_topics if self.queue else set()) | {
            h.topic for h in self.holds.values() if not h.resuming
        }
        old = {
            name
            for name, (facts, at) in self.topics.items()
            if now - at > (bounds.topic_recheck_s if facts.failure else bounds.topic_facts_s)
        }
        return {name for name in wanted if name not in self.topics} | (old & (wanted | self._deferred_topics()))

    def learn(self, facts: Iterable[TopicFacts], now: float) -> None:
        """Take in what the broker says; holds of a topic that is back begin to resume."""
        for fact in facts:
            self.topics[fact.name] = (fact, now)
            self._note_topic_id(fact)
            if fact.failure is None and fact.name not in self.paused_topics:
                for hold in self.holds.values():
                    if hold.topic == fact.name and not hold.resuming:
                        hold.resuming, hold.caught_up = True, False

    def _note_topic_id(self, fact: TopicFacts) -> None:
        if fact.topic_id is None:
            return
        if self._topic_ids.get(fact.name, fact.topic_id) != fact.topic_id:
            self.remade_topics.add(fact.name)
        self._topic_ids[fact.name] = fact.topic_id

    def _deferred_topics(self) -> set[str]:
        return {topic for topic, _ in self.keys}

    # -- Producing ---------------------------------------------------------------------------------------------
    def pump(self, may_go_on: Callable[[], bool]) -> int:
        """Produce waiting rows while the bounds, the client's queue and `may_go_on` (the lease) allow it.

        At most `pump_rows`: reports are served in between.
        """
        sent = 0
        queue, bounds = self.queue, self._bounds
        while queue and self.unacked < bounds.max_unacked_rows and sent < bounds.pump_rows:
            if sent % LEASE_CHECK_ROWS == 0 and not may_go_on():
                break
            if not self._send(queue[0]):
                break
            queue.popleft()
            sent += 1
        return sent

    def _send(self, row: OutRow) -> bool:
        made, held = row.round, self.shards.get(row.shard)
        if (
            made is None
            or held is None
            or held.epoch != made.epochs[row.shard]
            or (self.holds and self._is_held(row, made))
        ):
            return self._set_aside(row)
        if self.paused_topics and self._is_paused(row, made):
            return self._hold(row, self.paused_topics[row.topic].failure)
        if (self.keys or self.paused_keys) and self._must_wait(row.key_id):
            return self._rejoins(row) or self._defer_behind(row)
        known = self.topics.get(row.topic)
        if known is None:
            return False
        headers, failure = _check(row, known[0])
        if failure is not None:
            return self._refuse(row, failure)
        return self._produce(row, known[0], headers)

    def _is_held(self, row: OutRow, made: Round) -> bool:
        return made.readers[row.n].topic is None and (row.shard, row.topic) in self.holds

    def _is_paused(self, row: OutRow, made: Round) -> bool:
        pause = self.paused_topics.get(row.topic)
        return pause is not None and made.seq > pause.after_round

    def _must_wait(self, key_id: KeyId) -> bool:
        return key_id in self.keys or key_id in self.paused_keys

    def _produce(self, row: OutRow, facts: TopicFacts, headers: list[envelope.Header]) -> bool:
        taken = self.producer.produce(
            facts, key=row.key, value=row.payload, headers=headers, partition=row.partition, tag=row
        )
        if taken is False:
            return False
        self.unacked += 1
        self.unacked_bytes += row.size
        made = row.round
        if made is not None and made.sent_at is None:
            made.sent_at = self._clock()
        if taken is not True:
            self.hear([(row, 0, 0, taken)])
        return True

    def poll(self, timeout_s: float) -> None:
        """Take in what the client heard, waiting at most `timeout_s` for the first of it."""
        self.hear(self.producer.poll(timeout_s))

    def send_now(self, timeout_s: float) -> None:
        """Let nothing linger in the client, and take in what it heard."""
        self.hear(self.producer.send_now(timeout_s))

    def hear(self, reports: Sequence[Report]) -> None:
        """Take in what became of records, in the order in which the client told it."""
        if not reports:
            return
        now = time.time()
        now_ms, edges = now * 1000 + self.clock_offset_ms, histogram.EDGES_MS
        row: OutRow
        for row, partition, offset, failure in reports:
            self.unacked -= 1
            self.unacked_bytes -= row.size
            if failure is not None:
                self._on_failure(row, failure)
                continue
            self.sent_total += 1
            self.buckets[bisect_left(edges, now_ms - row.published_ms)] += 1
            self._note_range(row.topic, partition, row.position, offset, now)
            if row.deferral is not None:
                self._on_retried(row, row.deferral)
                continue
            row.acked = True
            if self.keys and row.key_id in self.keys:
                self._note_order(row)
            if row.round is not None:
                row.round.pending -= 1

    def _note_range(self, topic: str, partition: int, position: int, offset: int, now: float) -> None:
        known = self._ranges.get((topic, partition))
        if known is None:
            self._ranges[topic, partition] = _Range(position, position, offset, offset, 1, now, now)
            return
        # Once a record: comparisons, not min() and max().
        if position > known.to_position:
            known.to_position = position
        elif position < known.from_position:
            known.from_position = position
        if offset > known.to_offset:
            known.to_offset = offset
        elif offset < known.from_offset:
            known.from_offset = offset
        known.sent += 1
        known.last = now

    def _on_failure(self, row: OutRow, failure: Failure) -> None:
        if row.deferral is not None:
            self._on_retry_failed(row, row.deferral, failure)
            return
        self._doubt(row.topic)
        self._refuse(row, failure)

    def _doubt(self, topic: str) -> None:
        """Ask anew about a topic that refused what its facts allow."""
        known = self.topics.get(topic)
        if known is not None:
            self.topics[topic] = (known[0], float("-inf"))

    def _refuse(self, row: OutRow, failure: Failure) -> bool:
        if failure.scope is Scope.ROW:
            return self._defer(row, failure)
        if failure.scope is Scope.TOPIC:
            return self._hold(row, failure)
        self.broken = failure
        return True

    def _set_aside(self, row: OutRow) -> bool:
        self._settle_row(row)
        return True

    def _settle_row(self, row: OutRow) -> None:
        if row.round is not None:
            row.round.pending -= 1

    def _is_ours(self, shard: int, made: Round) -> bool:
        held = self.shards.get(shard)
        return held is not None and held.epoch == made.epochs[shard]

    # -- Keys that rejoin the log ------------------------------------------------------------------------------
    # A key that always has new rows would never be without rows set aside: they are stored, sent and acknowledged while
    # the next ones come. So once few are left and none was refused, new rows wait here, as part of their round, and
    # follow the last of them.
    def _rejoins(self, row: OutRow) -> bool:
        """Let the row wait in memory until the few before it are acknowledged; False = it must be set aside."""
        key_id = row.key_id
        if key_id not in self.keys or not self._may_rejoin(key_id):
            return False
        self.behind.setdefault(key_id, deque()).append(row)
        return True

    def _may_rejoin(self, key_id: KeyId) -> bool:
        waiting = self.keys.get(key_id, ())
        if not waiting or waiting[0].error or len(waiting) > self._bounds.rejoin_rows:
            return False
        if key_id in self.paused_keys or not self._is_open(waiting[0]):
            return False
        now = self._clock()
        until = self._rejoins_until.setdefault(key_id, now + self._bounds.rejoin_s)
        if now > until + self._bounds.rejoin_pause_s:
            until = self._rejoins_until[key_id] = now + self._bounds.rejoin_s
        return now < until and len(self.behind.get(key_id, ())) < self._bounds.rejoin_rows

    def _defer_behind(self, row: OutRow) -> bool:
        self._fall_back(row.key_id)
        return self._defer(row, None)

    def _fall_back(self, key_id: KeyId) -> None:
        """The key does not rejoin now: what waited in memory is set aside like the rows before it."""
        for row in self.behind.pop(key_id, ()):
            self._defer(row, None)

    # -- Row failures ------------------------------------------------------------------------------------------
    def _defer(self, row: OutRow, failure: Failure | None) -> bool:
        made = row.round
        if made is None or not self._is_ours(row.shard, made):
            return self._set_aside(row)
        deferral = Deferral(
            shard=row.shard, position=row.position, topic=row.topic, key=row.key, event_id=UUID(row.event_id)
        )
        if failure is not None:
            self._after_failure(deferral, row, failure)
            deferral.order_broken = self._is_overtaken(row)
        if _insert(self.keys.setdefault(row.key_id, deque()), deferral):
            made.defer.append(deferral)
        return self._set_aside(row)

    def _after_failure(self, deferral: Deferral, row: OutRow, failure: Failure) -> None:
        deferral.error = f"{failure.code}: {failure.text}"
        deferral.permanent = failure.permanent
        rule = self.rules.get(row.topic, self._bounds.rule)
        match decide_retry(failure, deferral.attempts, rule.backoff):
            case Retry(attempts=attempts, delay_s=delay_s):
                deferral.attempts, deferral.due_s = attempts, delay_s
                deferral.due_mono = self._clock() + delay_s
            case GiveUp(attempts=attempts):
                deferral.attempts, deferral.due_s = attempts, None
                self._end(deferral, row, failure, rule)

    def _end(self, deferral: Deferral, row: OutRow, failure: Failure, rule: TopicRule) -> None:
        """The row used its attempts up: it is parked with the next settling, or its key waits for a person."""
        if rule.on_failed is OnFailed.PARK:
            deferral.parking = True
            return
        deferral.failed = True
        self.failed_rows.append((row, failure))

    def _is_overtaken(self, row: OutRow) -> bool:
        """A later row of the key is already acknowledged: the order is broken, and shown."""
        later = (
            other
            for made in self.rounds
            for other in made.rows
            if other.acked and other.position > row.position and other.key_id == row.key_id
        )
        return next(later, None) is not None

    def _note_order(self, row: OutRow) -> None:
        head = self.keys[row.key_id][0]
        if head.position < row.position and head.error and not head.order_broken:
            head.order_broken = True
            self.order_broken.append(head)
            if head.stored:
                self._change(head)

    def due_deferrals(self, now: float) -> list[Deferral]:
        """Rows whose time has come, in the order of their keys, at most `retry_rows`."""
        for key_id in [k for k in self.behind if not self._may_rejoin(k)]:
            self._fall_back(key_id)
        self.eager.clear()
        return self._due(self.keys, now)

    def eager_deferrals(self, now: float) -> list[Deferral]:
        """The same for keys alone whose head just changed, without a look at all the others."""
        keys = dict.fromkeys(self.eager.popleft() for _ in range(min(len(self.eager), self._bounds.retry_rows)))
        return self._due(keys, now)

    def _due(self, keys: Iterable[KeyId], now: float) -> list[Deferral]:
        due: list[Deferral] = []
        for key_id in keys:
            if len(due) >= self._bounds.retry_rows:
                break
            due += self._ready(key_id, now)
        return due

    def _ready(self, key_id: KeyId, now: float) -> Iterator[Deferral]:
        """The first row of a key, and those behind it while none was ever refused: they go out as a round's rows do."""
        waiting = self.keys.get(key_id, ())
        if key_id in self.paused_keys or not waiting or not self._is_open(waiting[0]):
            return
        for deferral in islice(waiting, self._bounds.retry_key_rows):
            if not deferral.is_due(now) or (deferral.error and deferral is not waiting[0]):
                return
            if not deferral.in_flight:
                yield deferral
            if deferral.error:
                return

    def _is_open(self, head: Deferral) -> bool:
        held = self.shards.get(head.shard)
        is_ours = held is not None and not held.draining and self._facts_at(head.topic) >= head.facts_from
        return is_ours and head.topic not in self.paused_topics and (head.shard, head.topic) not in self.holds

    def _facts_at(self, topic: str) -> float:
        """When the broker was heard of the topic; those that were never asked about are asked before a retry."""
        known = self.topics.get(topic)
        return float("inf") if known is None else known[1]

    def retry(self, columns: Sequence[Any]) -> None:
        """Produce a row that was set aside; its key goes on when it is acknowledged."""
        row = OutRow(*columns)
        row.size = len(row.payload or b"") + len(row.key or b"")
        deferral = self._next_to_retry(row)
        if deferral is None or row.topic not in self.topics:
            return
        facts = self.topics[row.topic][0]
        headers, failure = _check(row, facts)
        if failure is not None:
            self._retry_failed(deferral, row, failure)
            return
        row.deferral = deferral
        deferral.in_flight = True
        self._retries[row.shard, row.position] = self._clock()
        if not self._produce(row, facts, headers):
            deferral.in_flight = False
            del self._retries[row.shard, row.position]

    def _next_to_retry(self, row: OutRow) -> Deferral | None:
        """The row's deferral, if everything before it of its key is on its way."""
        for deferral in self.keys.get(row.key_id, ()):
            if not deferral.in_flight:
                return deferral if deferral.position == row.position else None
        return None

    def _is_retrys_end(self, row: OutRow, deferral: Deferral) -> bool:
        """Note that a row landed; False = its shard went to another runner."""
        self._retries.pop((row.shard, row.position), None)
        deferral.in_flight = False
        return self._find(row.shard, row.position, row.key_id) is deferral

    def _on_retry_failed(self, row: OutRow, deferral: Deferral, failure: Failure) -> None:
        if self._is_retrys_end(row, deferral):
            self._doubt(row.topic)
            self._retry_failed(deferral, row, failure)

    def _on_retried(self, row: OutRow, deferral: Deferral) -> None:
        if not self._is_retrys_end(row, deferral):
            return
        self._note_order(row)
        self._remove(deferral, row.key_id)
        self._changed[deferral.shard, deferral.position] = None
        self._touched[deferral.shard] = self.shards[deferral.shard].epoch

    def _retry_failed(self, deferral: Deferral, row: OutRow, failure: Failure) -> None:
        if failure.scope is Scope.CLUSTER:
            self.broken = failure
            return
        if deferral.skipped:
            self._remove(deferral, row.key_id)
            return
        if failure.scope is Scope.TOPIC:  # not the row's fault: no attempt is spent
            deferral.due_mono = self._clock() + self._bounds.topic_recheck_s
            self.failed_topics[row.topic] = failure
            return
        self._fall_back(row.key_id)
        self._after_failure(deferral, row, failure)
        self._change(deferral)

    def _change(self, deferral: Deferral) -> None:
        self._changed[deferral.shard, deferral.position] = deferral
        self._touched[deferral.shard] = self.shards[deferral.shard].epoch

    # -- Topic failures ----------------------------------------------------------------------------------------
    def _hold(self, row: OutRow, failure: Failure) -> bool:
        made = row.round
        if made is None or not self._is_ours(row.shard, made):
            return self._set_aside(row)
        is_pause = row.topic in self.paused_topics and failure is self.paused_topics[row.topic].failure
        if not is_pause:
            self.topics[row.topic] = (TopicFacts(name=row.topic, failure=failure), self._clock())
            self.failed_topics[row.topic] = failure
        before = made.readers[row.n].place
        hold = self.holds.get((row.shard, row.topic))
        if hold is None:
            reason = f"{failure.code}: {failure.text}"
            hold = Hold(shard=row.shard, topic=row.topic, place=before, final=before, reason=reason)
            self.holds[row.shard, row.topic] = hold
        elif before.order < hold.place.order:
            hold.place = before
            hold.final = min(hold.final, before, key=lambda place: place.order)
        hold.resuming = hold.caught_up = False
        made.hold.append(hold)
        return self._set_aside(row)

    # -- Settling ----------------------------------------------------------------------------------------------
    def finish_rounds(self) -> int:
        """Let final rounds at the head go; their places may be stored. How many rows they had."""
        rows = 0
        while self.rounds and self.rounds[0].pending == 0:
            made = self.rounds.popleft()
            rows += len(made.rows)
            self._finish(made)
        self.settled_rows += rows
        return rows

    def _finish(self, made: Round) -> None:
        ours = {r.shard for r in made.readers if self._is_ours(r.shard, made)}
        touched = set(made.shards)
        for reader in made.readers:
            if reader.shard in ours:
                self._finish_reader(made, reader, touched)
        self._changed |= {(d.shard, d.position): d for d in made.defer if d.shard in ours}
        self._hold_changes |= {(h.shard, h.topic): h for h in made.hold if h.shard in ours}
        merged = {k: None for k in made.merged if k[0] in ours and k not in self.holds}
        self._hold_changes |= merged
        touched |= {shard for shard, _ in merged}
        self._touched |= {shard: self.shards[shard].epoch for shard in touched & ours}
        made.rows.clear()  # rows know their round: without this only the cycle collector would free them

    def _finish_reader(self, made: Round, reader: Reader, touched: set[int]) -> None:
        if reader.topic is None:
            self.shards[reader.shard].final = made.after[reader.n]
            return
        hold = self.holds.get((reader.shard, reader.topic))
        if hold is not None and hold.final.order < made.after[reader.n].order:
            hold.final = made.after[reader.n]
            self._hold_changes[reader.shard, reader.topic] = hold
            touched.add(reader.shard)

    def touch_all(self) -> None:
        """Let places be stored that moved without rows of their own; an old snapshot makes the late probe walk far.

        While nothing is published and few transactions pass, nothing is written.
        """
        is_busy = bool(self._touched)
        for shard, held in self.shards.items():
            stored, final = held.stored, held.final
            lag = final.snapshot.xmax - stored.snapshot.xmax
            if (
                final.hw != stored.hw
                or final.late_snapshot != stored.late_snapshot
                or lag > self._snapshot_lag(is_busy)
            ):
                self._touched[shard] = held.epoch

    def _snapshot_lag(self, is_busy: bool) -> int:
        return 0 if is_busy else self._bounds.snapshot_lag_xids

    def collect(self) -> Changes | None:
        """Take out what became final since the last call, to be written in one transaction; None = nothing did."""
        if not self._touched and not self._ranges:
            return None
        changes = Changes(
            moves=[(s, epoch, self.shards[s].final) for s, epoch in self._touched.items()],
            ranges=[_range_row(topic, partition, r) for (topic, partition), r in self._ranges.items()],
            defer=[d for d in self._changed.values() if d is not None and not d.parking],
            park=[d for d in self._changed.values() if d is not None and d.parking],
            undefer=[k for k, d in self._changed.items() if d is None],
            hold=[h for h in self._hold_changes.values() if h is not None],
            unhold=[k for k, h in self._hold_changes.items() if h is None],
        )
        for shard in self._touched:
            self.shards[shard].stored = self.shards[shard].final
        self._touched, self._ranges, self._changed, self._hold_changes = {}, {}, {}, {}
        self.settled_rows = 0
        return changes

    def note_parked(self, parked: Iterable[Deferral]) -> None:
        """Let the keys of rows go on that are dead letters now."""
        for deferral in parked:
            key_id = _key_id(deferral)
            if self._find(deferral.shard, deferral.position, key_id) is deferral:
                self._remove(deferral, key_id)

    def take_latencies(self) -> tuple[int, list[int]] | None:
        """Rows acknowledged since the last call and their latency buckets; None = none."""
        sent = sum(self.buckets)
        if not sent:
            return None
        taken, self.buckets = self.buckets, [0] * histogram.SIZE
        return sent, taken

    def oldest_unacked_s(self, now: float) -> float | None:
        """Age of the oldest row that was produced and not reported; None = nothing is in the air."""
        if not self.unacked:
            return None
        began = [r.sent_at for r in self.rounds if r.sent_at is not None and r.pending][:1]
        began += list(self._retries.values())
        return now - min(began) if began else 0.0


def without_shards(changes: Changes, lost: frozenset[int]) -> Changes:
    """The same changes without those of lost shards."""
    return Changes(
        moves=[m for m in changes.moves if m[0] not in lost],
        ranges=changes.ranges,
        defer=[d for d in changes.defer if d.shard not in lost],
        park=[d for d in changes.park if d.shard not in lost],
        undefer=[k for k in changes.undefer if k[0] not in lost],
        hold=[h for h in changes.hold if h.shard not in lost],
        unhold=[k for k in changes.unhold if k[0] not in lost],
        stat=changes.stat,
    )


def mark_stored(changes: Changes) -> None:
    """Note after the commit what is in the database now: a deferred row may be tried again from here on."""
    for deferral in changes.defer:
        deferral.stored = True
    for deferral in changes.park:
        deferral.stored = deferral.stored or deferral.failed


def _check(row: OutRow, facts: TopicFacts) -> tuple[list[envelope.Header], Failure | None]:
    try:
        headers = row.headers()
    except BadHeaders as error:
        return [], Failure(scope=Scope.ROW, code="bad_headers", text=str(error), permanent=True)
    if _fits_surely(row, facts):
        return headers, None
    size = envelope.count_wire_bytes(row.key, row.payload, headers)
    return headers, check_record(facts, wire_bytes=size, partition=row.partition)


def _fits_surely(row: OutRow, facts: TopicFacts) -> bool:
    """Nearly every row; what is left is counted exactly."""
    if facts.failure is not None or row.partition is not None or row.stored_headers is not None:
        return False
    limit = facts.max_message_bytes
    return limit is None or envelope.fits_surely(limit, row.size, event_type=row.type, content_type=row.content_type)


def _insert(waiting: deque[Deferral], deferral: Deferral) -> bool:
    """Keep the rows of a key by position, each once; an earlier row may be refused after a later one was set aside."""
    if not waiting or waiting[-1].position < deferral.position:
        waiting.append(deferral)
        return True
    at = next(i for i, other in enumerate(waiting) if other.position >= deferral.position)
    if waiting[at].position == deferral.position:
        return False  # the reader of a held topic meets rows again that were set aside before
    waiting.insert(at, deferral)
    return True


def _key_id(deferral: Deferral) -> KeyId:
    return deferral.topic, deferral.position if deferral.key is None else deferral.key


def _range_row(topic: str, partition: int, r: _Range) -> tuple[str, int, int, int, int, int, int, float, float]:
    return topic, partition, r.from_position, r.to_position, r.from_offset, r.to_offset, r.sent, r.first, r.last
