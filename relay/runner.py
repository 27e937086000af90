"""The relay loop: claim shards, read rounds, produce, settle what is acknowledged, hand shards over.

One runner is one thread with one database connection and one Kafka producer. `manage.py relay` and the Celery task
`relay.tick` run the same one.
"""

import gc
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

import psycopg
import structlog
from django.conf import settings
from django.db import Error as DatabaseError

from relay import reports
from relay.bell import Bell, BellUnavailableError
from relay.domain.backoff import Backoff
from relay.domain.circuit import Circuit, is_stalled
from relay.domain.outcome import TopicFacts
from relay.domain.ownership import Peer, plan_share
from relay.domain.policy import TopicRule, check_document
from relay.engine import Bounds, Engine, mark_stored, without_shards
from relay.errors import BadPolicy
from relay.kafka.errors import ClusterUnreachableError
from relay.kafka.ports import Pending, RecordProducer
from relay.kafka.producer import KafkaProducer
from relay.policies import policy_limits
from relay.ports import may_park
from relay.store import Changes, Claimed, Reader, RoundRead, ShardsLostError, Store, connect
from relay.topics import list_topics
from relay.types import OnFailed

log = structlog.get_logger(__name__)

RECONNECT = Backoff(base_s=0.2, factor=2, attempts=1_000, most_s=settings.RELAY_RECONNECT_MAX_S)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LeaseLostError(Exception):
    """The lease ran out, or somebody removed it: nothing may be produced, every shard is claimed afresh."""


class ProducerBrokenError(Exception):
    """The client cannot go on (fatal error): a new one starts at the stored places."""


def lease_clock() -> float:
    """Seconds that also pass while the machine sleeps, so that a lease is never overestimated."""
    return time.clock_gettime(_CLOCK)


def calm_collector() -> None:
    """Let the cycle collector leave what is loaded alone and look at young objects seldom.

    A runner holds tens of thousands of rows in the air and makes no cycles; by default half of its time would go into
    looking through them. For a process that is there for the relay.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(settings.RELAY_GC_YOUNG_OBJECTS, 10, 10)


def make_producer(name: str) -> RecordProducer:
    """The real producer, by the settings."""
    return KafkaProducer(
        settings.KAFKA_BOOTSTRAP_SERVERS,
        settings.KAFKA_CLIENT_CONFIG,
        client_id=f"signalbox-{name}"[:80],
        queue_rows=settings.RELAY_MAX_UNACKED_ROWS * 2,
    )


def bounds_from_settings() -> Bounds:
    """The engine's bounds."""
    return Bounds(
        round_rows=settings.RELAY_ROUND_ROWS,
        round_bytes=settings.RELAY_ROUND_BYTES,
        late_rows=settings.RELAY_LATE_ROWS,
        pump_rows=settings.RELAY_PUMP_ROWS,
        max_unacked_rows=settings.RELAY_MAX_UNACKED_ROWS,
        max_unacked_bytes=settings.RELAY_MAX_UNACKED_BYTES,
        least_quota=settings.RELAY_LEAST_QUOTA_ROWS,
        retry_rows=settings.RELAY_RETRY_ROUND_ROWS,
        retry_key_rows=settings.RELAY_RETRY_KEY_ROWS,
        rejoin_rows=settings.RELAY_REJOIN_ROWS,
        rejoin_s=settings.RELAY_REJOIN_S,
        rejoin_pause_s=settings.RELAY_REJOIN_PAUSE_S,
        rule=usual_rule(),
        snapshot_lag_xids=settings.RELAY_SNAPSHOT_LAG_XIDS,
        topic_facts_s=settings.RELAY_TOPIC_FACTS_S,
        topic_recheck_s=settings.RELAY_TOPIC_RECHECK_S,
    )


def usual_rule() -> TopicRule:
    """How topics without a policy are treated."""
    backoff = Backoff(
        base_s=settings.RELAY_RETRY_BASE_S,
        factor=settings.RELAY_RETRY_FACTOR,
        attempts=settings.RELAY_RETRY_ATTEMPTS,
        most_s=settings.RELAY_RETRY_MOST_S,
    )
    return TopicRule(on_failed=OnFailed.BLOCK, backoff=backoff)


def read_rules(policies: Mapping[str, Mapping[str, object]]) -> dict[str, TopicRule]:
    """The rules of topics, by their policies; one that cannot be read is logged, and its topic has the usual rule."""
    usual = usual_rule()
    parking = replace(usual, on_failed=OnFailed.PARK if may_park() else OnFailed.BLOCK)
    rules = {spec.name: parking for spec in list_topics() if spec.parks_failed}
    for topic, document in policies.items():
        try:
            rule = check_document(document, policy_limits()).rule(usual.backoff)
        except BadPolicy as error:
            log.warning("relay.policy_not_read", topic=topic, reason=str(error))
            continue
        rules[topic] = rule if may_park() else replace(rule, on_failed=OnFailed.BLOCK)
    return rules


@dataclass(slots=True)
class Due:
    """When each repeated thing is next due, in seconds of the lease clock."""

    beat: float = 0.0
    persist: float = 0.0
    every: float = 0.0
    share: float = 0.0
    ask: float = 0.0
    stat: float = 0.0
    retry: float = 0.0
    bell: float = 0.0


@dataclass(slots=True)
class Runner:
    """One relay runner. `run()` returns when it was stopped or its time is over, with nothing of it in the air.

    `budget_s`: from then on it hands over as soon as another runner is alive; `limit_s`: it ends anyway.
    `on_step` is called between the steps (`claim`, `read`, `produce`, `report`, `settle`); tests crash there.
    """

    name: str
    kind: str
    budget_s: float | None = None
    limit_s: float | None = None
    on_step: Callable[[str], None] = lambda _step: None
    id: UUID = field(default_factory=uuid4)
    stopping: threading.Event = field(default_factory=threading.Event)
    state: str = "starting"
    started: float = field(default_factory=lease_clock)
    engine: Engine = field(init=False)
    circuit: Circuit = field(default_factory=Circuit)
    _store: Store | None = None
    _lease_until: float = 0.0
    _peers: list[Peer] = field(default_factory=list)
    _gives_from: float | None = None
    _former_ids: list[UUID] = field(default_factory=list)
    _paused_by: str | None = None
    _revision: int = -1
    _due: Due = field(default_factory=Due)
    _busy_until: float = 0.0
    _sent_at_opening: int = 0
    _question: Pending[Mapping[str, TopicFacts]] | None = None
    _probe: Pending[bool] | None = None
    _begun: list[Reader] = field(default_factory=list)
    _bell: Bell | None = None
    _armed_at: deque[float] = field(default_factory=deque)
    wakes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.engine = self._new_engine()

    # -- Life ------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Work until `stop()` or the end of the budget; reconnects by itself."""
        log.info("relay.started", runner=self.name, kind=self.kind)
        failures = 0
        while not self._is_over():
            try:
                self._turn()
                failures = 0
            except (psycopg.OperationalError, psycopg.InterfaceError, DatabaseError) as error:
                failures += 1
                log.warning("relay.database_away", runner=self.name, error=type(error).__name__, tries=failures)
                self._start_over()
                self.state = "database away"
                self.stopping.wait(RECONNECT.delay_s(failures))
            except (LeaseLostError, ProducerBrokenError, ShardsLostError) as error:
                log.warning("relay.starts_over", runner=self.name, reason=str(error))
                self._start_over()
                self.stopping.wait(RECONNECT.delay_s(1))
        self._leave()
        log.info("relay.ended", runner=self.name, sent=self.engine.sent_total)

    def stop(self) -> None:
        """Ask it to end: what is in the air is finished within `RELAY_STOP_WITHIN_S`, shards are released."""
        self.stopping.set()

    def age_s(self) -> float:
        """Seconds since it was made."""
        return lease_clock() - self.started

    @property
    def is_leaving(self) -> bool:
        """Past its budget: it keeps its shards until somebody else can take them."""
        return self.budget_s is not None and self.age_s() >= self.budget_s

    def _is_over(self) -> bool:
        if self.stopping.is_set():
            return True
        if self.limit_s is not None and self.age_s() >= self.limit_s:
            return True
        return self.is_leaving and self._has_successor() and not self.engine.shards

    def _has_successor(self) -> bool:
        return any(p.id != self.id and not p.leaving for p in self._peers)

    def _turn(self) -> None:
        store = self._connected()
        now = lease_clock()
        if now >= self._due.beat:
            self._beat(store, now)
        if now >= self._due.share:
            self._share(store, now)
        self.engine.poll(0)
        self._hear_answer(now)
        self._judge_cluster(now)
        self._persist_if_due(store, now)
        worked = 0
        if self._may_publish():
            worked = self._publish(store, now)
        self._wait(worked)

    def _has_lease(self) -> bool:
        return lease_clock() < self._lease_until

    def _may_publish(self) -> bool:
        if self.circuit.is_open or self._paused_by is not None:
            return False
        if not self._has_lease():
            raise LeaseLostError("the lease ran out before it could be extended")
        return True

    # -- Lease and shards --------------------------------------------------------------------------------------
    def _connected(self) -> Store:
        if self._store is None:
            self._store = Store(connect(f"relay {self.name}"), self.id, settings.RELAY_LEASE_S)
            asked = lease_clock()
            self._store.register(self.name, self.kind, replaces=self._former_ids)
            self._former_ids.clear()
            self._extend_lease(asked)
            self._due = Due()
            self._open_bell(self._store)
        return self._store

    def _open_bell(self, store: Store) -> None:
        self._due.bell = lease_clock() + settings.RELAY_BELL_RETRY_S
        try:
            self._bell = store.open_bell(self.name)
        except (BellUnavailableError, psycopg.Error) as error:
            log.info("relay.polls", runner=self.name, reason=str(error)[:200])

    def _lose_bell(self, error: psycopg.Error) -> None:
        """Poll until the next beat, which opens another one."""
        log.info("relay.bell_lost", runner=self.name, error=type(error).__name__)
        self._close_bell()
        self._due.bell = 0.0

    def _close_bell(self) -> None:
        if self._bell is not None:
            self._bell.close()
            self._bell = None

    def _extend_lease(self, asked: float) -> None:
        self._lease_until = asked + settings.RELAY_LEASE_S - settings.RELAY_LEASE_MARGIN_S

    def _beat(self, store: Store, now: float) -> None:
        if self.engine.shards and now >= self._lease_until + settings.RELAY_LEASE_MARGIN_S:
            raise LeaseLostError("this process was paused past its lease")
        circuit_s = None if self.circuit.open_since is None else now - self.circuit.open_since
        db_now, self._peers, paused_by, revision = store.beat(
            state=self._describe(),
            leaving=self.is_leaving,
            sent_total=self.engine.sent_total,
            unacked=self.engine.unacked,
            doorbell=self._bell is not None,
            circuit_s=circuit_s,
        )
        if db_now is None:
            raise LeaseLostError("the runner's row is gone")
        self.engine.clock_offset_ms = (db_now - time.time()) * 1000
        self._extend_lease(now)
        self._paused_by = paused_by
        if revision != self._revision:
            self._hear_orders(store)
        self._keep_bell(store, now)
        self._due.beat = now + settings.RELAY_HEARTBEAT_EVERY_MS / 1000
        if self.is_leaving and self._gives_from is None:
            self._gives_from = now + settings.RELAY_HANDOVER_NOTICE_MS / 1000
        reports.tell(self.engine, self.circuit)

    def _hear_orders(self, store: Store) -> None:
        """People changed something: obey at once, between two rounds."""
        orders = store.load_orders(self._revision, list(self.engine.shards))
        self.engine.obey(orders, read_rules(orders.policies))
        self._revision = orders.revision
        log.info("relay.orders", runner=self.name, revision=orders.revision)

    def _keep_bell(self, store: Store, now: float) -> None:
        """Keep the doorbell's session alive; without one, try again now and then."""
        try:
            if self._bell is not None:
                self._bell.keep()
            elif now >= self._due.bell:
                self._open_bell(store)
        except psycopg.Error as error:
            self._lose_bell(error)

    def _describe(self) -> str:
        if self._paused_by is not None:
            self.state = f"paused by {self._paused_by}"
        elif self.circuit.is_open:
            self.state = "circuit open"
        elif self.is_leaving:
            self.state = "handing over"
        elif not self.engine.shards:
            self.state = "waiting for shards"
        else:
            self.state = "publishing" if self.engine.unacked or self._is_busy() else "idle"
        return self.state

    def _share(self, store: Store, now: float) -> None:
        """Take what is free up to the fair share; give up what is above it once nothing of it is in the air."""
        if self._gives_from is not None and now < self._gives_from:
            # The successor learns with its own next beat that it may take everything; until then nothing lies idle.
            self._due.share = self._gives_from
            return
        engine = self.engine
        keeps = [shard for shard, held in engine.shards.items() if not held.draining]
        share = plan_share(self.id, self._peers, keeps, settings.RELAY_SHARDS)
        for shard in share.give:
            engine.shards[shard].draining = True
        drained = engine.drained()
        if drained:
            store.release(drained)
            engine.drop(drained)
        if share.take:
            self._claim(store, share.take)
        waiting = bool(share.take or share.give or any(held.draining for held in engine.shards.values()))
        self._due.share = now + (0.05 if waiting else settings.RELAY_HEARTBEAT_EVERY_MS / 1000)

    def _claim(self, store: Store, limit: int) -> None:
        claimed = store.claim(limit)
        if not claimed:
            return
        restored = [c.shard for c in claimed if c.is_restored]
        if restored:
            claimed = [c for c in claimed if not c.is_restored] + self._rebase(store, restored)
        shards = [c.shard for c in claimed]
        self.engine.adopt(claimed, store.load_deferred(shards), store.load_holds(shards))
        self.on_step("claim")
        log.info("relay.claimed", runner=self.name, shards=len(shards))

    def _rebase(self, store: Store, restored: list[int]) -> list[Claimed]:
        reports.relay_is_restored()
        claimed, late = store.rebase(restored)
        log.warning("relay.restored", runner=self.name, shards=len(restored), rows_set_aside=late)
        return claimed

    # -- Publishing --------------------------------------------------------------------------------------------
    def _publish(self, store: Store, now: float) -> int:
        engine = self.engine
        self._retry(store, now)
        rows = self._read(store) if engine.may_read() else 0
        self._ask(engine.topics_to_ask(now))
        sent = engine.pump(self._has_lease)
        if sent:
            self.on_step("produce")
            self._busy_until = now + settings.RELAY_BUSY_FOR_MS / 1000
        return rows

    def _read(self, store: Store) -> int:
        begun = self._end_begun(store)
        readers = begun[0] if begun else self.engine.plan_readers()
        if not readers:
            return 0
        read = begun[1] if begun else self._read_now(store, readers)
        rows = self.engine.take(readers, read)
        if rows:
            self.on_step("read")
        if self.engine.may_read_ahead():
            self._begun = self.engine.plan_readers()
            store.begin_round(self._begun, settings.RELAY_LATE_ROWS)
        return rows

    def _end_begun(self, store: Store) -> tuple[list[Reader], RoundRead] | None:
        """Take the round that the server read meanwhile, if its readers are still where they were."""
        readers, self._begun = self._begun, []
        if not readers:
            return None
        read = store.end_round()
        return (readers, read) if self.engine.may_take(readers) else None

    def _read_now(self, store: Store, readers: list[Reader]) -> RoundRead:
        read = None
        if self.engine.is_read_out(readers):
            read = store.read_unseen(readers, min(settings.RELAY_LATE_ROWS, sum(r.quota for r in readers)))
        return read or store.read_round(readers, settings.RELAY_LATE_ROWS)

    def _retry(self, store: Store, now: float) -> None:
        engine = self.engine
        if now >= self._due.retry:
            self._due.retry = now + settings.RELAY_RETRY_EVERY_MS / 1000
            due = engine.due_deferrals(now)
        else:
            due = engine.eager_deferrals(now) if engine.eager else []
        if not due:
            return
        self._ask({d.topic for d in due} - set(self.engine.topics))
        known = [(d.shard, d.position) for d in due if d.topic in self.engine.topics]
        for row in store.fetch_rows(known) if known else ():
            self.engine.retry(row)

    def _ask(self, topics: set[str]) -> None:
        """Ask the broker about topics unless a question is on its way; the loop goes on meanwhile."""
        if topics and self._question is None:
            self._question = self.engine.producer.ask(topics, settings.RELAY_BROKER_TIMEOUT_S)

    def _hear_answer(self, now: float) -> None:
        if self._question is None:
            return
        try:
            facts = self._question.poll()
        except ClusterUnreachableError as error:
            self._question = None
            self._open_circuit(now, str(error))
            return
        if facts is not None:
            self._question = None
            self.engine.learn(facts.values(), now)

    def _wait(self, worked: int) -> None:
        engine = self.engine
        if worked or engine.unacked or self.circuit.is_open or self._paused_by is not None:
            self._with_bell(Bell.disarm)
        if engine.unacked and not engine.queue and not engine.is_draining and not self.circuit.is_open:
            engine.send_now(settings.RELAY_SEND_NOW_MS / 1000)
            if worked:
                self.stopping.wait(settings.RELAY_PACE_MS / 1000)
        elif worked or engine.eager:
            return
        elif engine.unacked:
            engine.poll(0.005)
        elif self._question is not None and engine.queue:
            self.stopping.wait(0.005)
        else:
            self._sleep()

    def _sleep(self) -> None:
        """Sleep until a commit rings; the one read after the bell is set sees what was committed before."""
        is_publishing = not self.circuit.is_open and self._paused_by is None
        if self._bell is None or not is_publishing or not self._may_arm():
            self.stopping.wait(self._pause_ms() / 1000)
            self.wakes["poll"] += 1
        elif not self._bell.is_armed:
            if not self._with_bell(Bell.arm):
                self.stopping.wait(settings.RELAY_BUSY_WAIT_MS / 1000)
        else:
            rang = self._with_bell(lambda bell: bell.wait(settings.RELAY_IDLE_WAIT_MS / 1000))
            self.wakes["bell" if rang else "fallback"] += 1

    def _pause_ms(self) -> int:
        """How long to wait before the next look: short where the bell would ring at once."""
        if not self._is_busy():
            return settings.RELAY_IDLE_WAIT_MS
        return settings.RELAY_BUSY_WAIT_MS if self._bell is None else settings.RELAY_PACE_MS

    def _may_arm(self) -> bool:
        """Tell whether the bell may be set again: NOTIFY lets writers commit one by one, so a busy runner polls."""
        if self._bell is not None and self._bell.is_armed:
            return True
        now = lease_clock()
        while self._armed_at and now - self._armed_at[0] > 1:
            self._armed_at.popleft()
        if len(self._armed_at) >= settings.RELAY_BELL_MAX_PER_S:
            return False
        self._armed_at.append(now)
        return True

    def _with_bell(self, act: Callable[[Bell], bool | None]) -> bool:
        """Do something with the bell; without one, or when its connection is gone, the runner polls."""
        if self._bell is None:
            return False
        try:
            return bool(act(self._bell))
        except psycopg.Error as error:
            self._lose_bell(error)
            return False

    def _is_busy(self) -> bool:
        return lease_clock() < self._busy_until

    # -- Cluster -----------------------------------------------------------------------------------------------
    def _judge_cluster(self, now: float) -> None:
        engine = self.engine
        if engine.broken is not None:
            raise ProducerBrokenError(f"{engine.broken.code}: {engine.broken.text}")
        stalled = is_stalled(
            engine.oldest_unacked_s(now),
            stall_s=settings.RELAY_STALL_S,
            brokers_down=engine.producer.brokers_down,
            down_s=settings.RELAY_BROKERS_DOWN_STALL_S,
        )
        if stalled:
            self._open_circuit(now, "no acknowledgement from Kafka")
        elif self.circuit.is_open:
            self._look_for_life(now)

    def _look_for_life(self, now: float) -> None:
        """Close the circuit on an acknowledgement, or on an answer while nothing is in the air."""
        engine = self.engine
        if engine.sent_total > self._sent_at_opening:
            self._close_circuit()
        elif self._probe is not None:
            self._hear_probe(self._probe)
        elif not engine.unacked and self.circuit.may_probe(now):
            self._probe = engine.producer.probe(settings.RELAY_PROBE_TIMEOUT_S)

    def _hear_probe(self, probe: Pending[bool]) -> None:
        answered = probe.poll()
        if answered is None:
            return
        self._probe = None
        if answered and not self.engine.unacked:
            self._close_circuit()
        else:
            self.circuit = self.circuit.after_probe(lease_clock(), answered=False)

    def _open_circuit(self, now: float, reason: str) -> None:
        if not self.circuit.is_open:
            log.warning("relay.circuit_opened", runner=self.name, reason=reason)
            self._sent_at_opening = self.engine.sent_total
            self._due.beat = 0.0
        self.circuit = self.circuit.opened(now, reason)

    def _close_circuit(self) -> None:
        self.circuit = Circuit()
        self._probe = None
        self._due.beat = 0.0
        log.info("relay.circuit_closed", runner=self.name)
        reports.cluster_is_back()

    # -- Settling ----------------------------------------------------------------------------------------------
    def _persist_if_due(self, store: Store, now: float) -> None:
        if self.engine.finish_rounds():
            self.on_step("report")
        if now < self._due.persist and self.engine.settled_rows < settings.RELAY_CHECKPOINT_EVERY_ROWS:
            return
        self._persist(store, now)

    def _persist(self, store: Store, now: float) -> None:
        if now >= self._due.every:
            self._due.every = now + settings.RELAY_CHECKPOINT_ALL_EVERY_S
            self.engine.touch_all()
        changes = self.engine.collect()
        if now >= self._due.stat:
            self._due.stat = now + settings.RELAY_STAT_EVERY_S
            changes = self._with_stat(changes)
        if changes is None:
            return
        try:
            parked = store.settle(changes)
        except ShardsLostError as error:
            log.warning("relay.shards_lost", runner=self.name, shards=sorted(error.shards))
            self.engine.drop(error.shards)
            changes = without_shards(changes, error.shards)
            parked = store.settle(changes)
        mark_stored(changes)
        self.engine.note_parked(parked)
        reports.tell_parked(parked)
        self._due.persist = now + settings.RELAY_CHECKPOINT_EVERY_MS / 1000
        self.on_step("settle")

    def _with_stat(self, changes: Changes | None) -> Changes | None:
        stat = self.engine.take_latencies()
        if stat is None:
            return changes
        changes = changes or Changes()
        changes.stat = stat
        return changes

    # -- Ending ------------------------------------------------------------------------------------------------
    def _new_engine(self) -> Engine:
        return Engine(make_producer(self.name), bounds_from_settings(), lease_clock)

    def _start_over(self) -> None:
        """Drop everything in memory; the stored places are the truth. A new id: the old one's shards are free then."""
        self._former_ids.append(self.id)
        self.id = uuid4()
        self.engine.producer.abandon()
        before, self.engine = self.engine, self._new_engine()
        self.engine.take_over(before)
        self._revision = -1
        self._question = self._probe = None
        self._begun = []
        self._close_bell()
        if self._store is not None:
            self._store.close()
            self._store = None
        self.circuit = Circuit() if not self.circuit.is_open else self.circuit
        reports.forget_connection()

    def _beat_while_leaving(self) -> None:
        """Keep the lease while the last rows are in the air; without it nothing more is produced."""
        now = lease_clock()
        if self._store is None or now < self._due.beat:
            return
        try:
            self._beat(self._store, now)
        except (psycopg.Error, LeaseLostError) as error:
            self._due.beat = now + settings.RELAY_HEARTBEAT_EVERY_MS / 1000
            log.warning("relay.beat_failed", runner=self.name, error=type(error).__name__)

    def _leave(self) -> None:
        """Finish what is in the air within the bound, store it, release the shards, remove the row."""
        self.state = "stopping"
        self._close_bell()
        until = lease_clock() + settings.RELAY_STOP_WITHIN_S
        engine = self.engine
        while (engine.unacked or engine.queue) and lease_clock() < until and self.circuit.open_since is None:
            self._beat_while_leaving()
            if engine.pump(self._has_lease) == 0 and not engine.unacked:
                break  # what waits here needs facts of its topic: the next holder reads it again
            engine.send_now(0.05)
        engine.poll(0)
        if self._store is None:
            engine.producer.abandon()
            return
        try:
            engine.finish_rounds()
            self._persist(self._store, lease_clock())
            engine.producer.abandon()
            self._store.release(list(engine.shards))
            self._store.unregister()
        except psycopg.Error as error:
            log.warning("relay.not_released", runner=self.name, error=type(error).__name__)
        finally:
            self._store.close()
            reports.forget_connection()
