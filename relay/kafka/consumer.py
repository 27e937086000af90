"""The only adapter around confluent_kafka's consumer: exact bytes out, exceptions never out of a callback.

What it relies on was measured (see `docs/adr/0301-the-consumer-runtime.md`): with `auto.offset.reset=error` a
partition without a usable offset says so once and is silent until it is assigned again with an offset; an exception
in a rebalance callback ends the poll loop; an application's pause outlives a revocation, and with it the client's
place. So the client's memory of a place is not relied on: whenever it may have moved, the next record is checked
(`relay.domain.reading`).

Errors: ConsumerError <- ConsumerConfigError | ConsumerUnavailable | TopicGone.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, assert_never

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from django.conf import settings

from relay.domain.reading import From, ReadAgain, Reading, Verdict
from relay.types import (
    CommitPoint,
    ConsumerListener,
    ConsumerPort,
    ConsumerProblem,
    ConsumerRecord,
    OffsetMissing,
    PartitionRef,
)

log = structlog.get_logger(__name__)

COOPERATIVE = "cooperative-sticky"
_OURS = {
    "group.id": "the group is the one named on the command line",
    "enable.auto.commit": "an offset is committed only after the database commit",
    "enable.auto.offset.store": "an offset is committed only after the database commit",
    "auto.offset.reset": "a missing offset is a person's decision, never a silent skip",
    "isolation.level": "aborted transactions are never read",
}
_CLASSIC_ONLY = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class ConsumerError(Exception):
    """Root of what opening or asking a consumer may raise."""


class ConsumerConfigError(ConsumerError):
    """Settings that contradict each other or what the runtime promises; the text says which and what to do."""


class ConsumerUnavailable(ConsumerError):
    """The broker did not answer in time; ask again later."""


class TopicGone(ConsumerError):
    """The topic does not exist (any more)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a member joins its group."""

    protocol: str
    strategy: str
    session_timeout_ms: int
    max_poll_interval_ms: int
    further: Mapping[str, object]

    @property
    def is_incremental(self) -> bool:
        """Whether partitions come and go one by one instead of all at once."""
        return self.protocol == "consumer" or self.strategy == COOPERATIVE


def read_options() -> ConsumerOptions:
    """Read the options from the settings."""
    return ConsumerOptions(
        protocol=settings.CONSUMER_GROUP_PROTOCOL,
        strategy=settings.CONSUMER_ASSIGNMENT_STRATEGY,
        session_timeout_ms=settings.CONSUMER_SESSION_TIMEOUT_MS,
        max_poll_interval_ms=settings.CONSUMER_MAX_POLL_INTERVAL_MS,
        further=settings.KAFKA_CLIENT_CONFIG,
    )


def check_consumer_settings() -> None:
    """Check the settings that every consumer is opened with.

    Raises:
        ConsumerConfigError: they cannot work, in plain words.
    """
    check_options(read_options())


def check_options(options: ConsumerOptions) -> None:
    """Refuse combinations that the client refuses late or not at all.

    Raises:
        ConsumerConfigError: with the setting's name and what to do.
    """
    for name, why in _OURS.items():
        if name in options.further:
            raise ConsumerConfigError(f"KAFKA_CLIENT_CONFIG must not set {name}: {why}. Remove it.")
    if options.protocol not in {"classic", "consumer"}:
        raise ConsumerConfigError(
            f'CONSUMER_GROUP_PROTOCOL is "{options.protocol}"; it must be "classic" or "consumer" (KIP-848).'
        )
    if options.protocol == "consumer":
        _refuse_classic_settings(options)
    else:
        _refuse_mixed_strategies(options.strategy)


def _refuse_classic_settings(options: ConsumerOptions) -> None:
    for name in _CLASSIC_ONLY:
        if name in options.further:
            raise ConsumerConfigError(
                f"KAFKA_CLIENT_CONFIG sets {name}, which the broker decides when CONSUMER_GROUP_PROTOCOL is"
                ' "consumer". Remove it, or use "classic".'
            )


def _refuse_mixed_strategies(strategy: str) -> None:
    names = [name.strip() for name in strategy.split(",")]
    unknown = [name for name in names if name not in {COOPERATIVE, "range", "roundrobin"}]
    if unknown:
        raise ConsumerConfigError(
            f'CONSUMER_ASSIGNMENT_STRATEGY names "{unknown[0]}"; it may be cooperative-sticky, range or roundrobin.'
        )
    if COOPERATIVE in names and len(names) > 1:
        raise ConsumerConfigError(
            f'CONSUMER_ASSIGNMENT_STRATEGY is "{strategy}": cooperative-sticky cannot be mixed with eager strategies.'
            " Name one; changing it in a running group takes two rolling restarts."
        )


def build_config(group: str, client_id: str, options: ConsumerOptions) -> dict[str, Any]:
    """Return the client's settings for a member of `group`."""
    check_options(options)
    classic = {
        "partition.assignment.strategy": options.strategy,
        "session.timeout.ms": options.session_timeout_ms,
    }
    return {
        "bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS,
        "client.id": client_id,
        "queued.min.messages": settings.CONSUMER_BUFFER_RECORDS,
        "queued.max.messages.kbytes": settings.CONSUMER_BUFFER_BYTES // 1024,
        "fetch.queue.backoff.ms": settings.CONSUMER_FETCH_BACKOFF_MS,
        "max.poll.interval.ms": options.max_poll_interval_ms,
        **(classic if options.protocol == "classic" else {}),
        **options.further,
        "group.protocol": options.protocol,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
    }


def open_consumer(
    group: str,
    topics: Sequence[str],
    listener: ConsumerListener,
    *,
    client_id: str,
    options: ConsumerOptions | None = None,
) -> ConsumerPort:
    """Join `group` and subscribe to `topics`; returns at once, records come from `poll()`.

    Raises:
        ConsumerConfigError: the settings cannot work, in plain words.
    """
    chosen = options or read_options()
    try:
        return KafkaConsumer(build_config(group, client_id, chosen), chosen, topics, listener)
    except KafkaException as error:
        raise ConsumerConfigError(f"the Kafka client refuses its settings: {error}") from error


class KafkaConsumer:
    """`ConsumerPort` on confluent_kafka."""

    def __init__(
        self, config: dict[str, Any], options: ConsumerOptions, topics: Sequence[str], listener: ConsumerListener
    ) -> None:
        self._options = options
        self._listener = listener
        self._ours: set[PartitionRef] = set()
        self._reading = Reading()
        self._topic_ids: dict[str, str | None] = {}
        self._admin_lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._admin_config = {
            "bootstrap.servers": config["bootstrap.servers"],
            "client.id": config["client.id"],
            **options.further,
        }
        self._consumer = Consumer(
            {**config, "on_commit": self._on_commit, "error_cb": self._on_error},
            logger=logging.getLogger("relay.kafka.client"),
        )
        self._topics = list(topics)
        self.join()

    def poll(self, timeout_s: float) -> ConsumerRecord | OffsetMissing | ConsumerProblem | None:
        """See `ConsumerPort`."""
        try:
            message = self._consumer.poll(timeout_s)
        except KafkaException as raised:
            return _problem(raised.args[0])
        if message is None:
            return None
        error = message.error()
        return self._judge(read_record(message)) if error is None else _read_error(message, error)

    def pause(self, places: Sequence[PartitionRef]) -> None:
        """See `ConsumerPort`."""
        self._consumer.pause([TopicPartition(*place) for place in places if place in self._ours])

    def resume(self, places: Sequence[PartitionRef]) -> None:
        """See `ConsumerPort`."""
        ours = [place for place in places if place in self._ours]
        self._reading.doubt(ours)
        self._consumer.resume([TopicPartition(*place) for place in ours])

    def start_at(self, place: PartitionRef, offset: int | None) -> bool:
        """See `ConsumerPort`: only a new assignment with an offset wakes a partition that lost its own."""
        if place not in self._ours:
            return False
        at = TopicPartition(*place, OFFSET_BEGINNING if offset is None else offset)
        self._reading.begin(place, From.BEGINNING if offset is None else offset)
        try:
            self._forget_pause([TopicPartition(*place)])
            self._assign_again(at)
        except KafkaException as error:
            log.warning("consumer.start_refused", partition=str(place), error=str(error))
            return False
        return True

    def commit_soon(self, offsets: Mapping[PartitionRef, CommitPoint]) -> None:
        """See `ConsumerPort`."""
        try:
            self._consumer.commit(offsets=_commit_list(offsets), asynchronous=True)
        except KafkaException as error:
            why = str(error)
            self._guard(lambda: self._listener.on_committed({}, why))

    def topic_id(self, topic: str) -> str | None:
        """See `ConsumerPort`; remembered until the topic is assigned again."""
        if topic not in self._topic_ids:
            self._topic_ids[topic] = self._ask_topic_id(topic)
        return self._topic_ids[topic]

    def ask_topic_id(self, topic: str) -> str | None:
        """See `ConsumerPort`."""
        self._topic_ids[topic] = self._ask_topic_id(topic)
        return self._topic_ids[topic]

    def first_offset(self, place: PartitionRef) -> int:
        """See `ConsumerPort`."""
        return self._ask_offset(place, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def end_offset(self, place: PartitionRef) -> int:
        """See `ConsumerPort`."""
        return self._ask_offset(place, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """See `ConsumerPort`."""
        self._consumer.unsubscribe()

    def join(self) -> None:
        """See `ConsumerPort`."""
        self._consumer.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _ask_offset(self, place: PartitionRef, spec: OffsetSpec) -> int:
        at = TopicPartition(*place)
        asked = self._admin_client().list_offsets(
            {at: spec},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=settings.CONSUMER_REQUEST_TIMEOUT_S,
        )
        return int(_answer(asked[at]).offset)

    def close(self) -> None:
        """See `ConsumerPort`."""
        self._consumer.close()

    def _admin_client(self) -> AdminClient:
        with self._admin_lock:
            if self._admin is None:
                self._admin = AdminClient(self._admin_config, logger=logging.getLogger("relay.kafka.client"))
            return self._admin

    def _ask_topic_id(self, topic: str) -> str | None:
        asked = self._admin_client().describe_topics(
            TopicCollection([topic]), request_timeout=settings.CONSUMER_REQUEST_TIMEOUT_S
        )
        try:
            found = str(_answer(asked[topic]).topic_id)
        except TopicGone:
            return None
        return None if found == NO_TOPIC_ID else found

    def _assign_again(self, at: TopicPartition) -> None:
        if self._options.is_incremental:
            self._consumer.incremental_unassign([TopicPartition(at.topic, at.partition)])
            self._consumer.incremental_assign([at])
            return
        self._reading.doubt(self._ours)
        self._consumer.assign([at, *(self._where(place) for place in self._ours if place != (at.topic, at.partition))])

    def _where(self, place: PartitionRef) -> TopicPartition:
        """Return a partition with the offset that its reading goes on from."""
        match self._reading.next_of(place):
            case int(offset):
                return TopicPartition(*place, offset)
            case From.BEGINNING:
                return TopicPartition(*place, OFFSET_BEGINNING)
            case _:
                return TopicPartition(*place)

    def _forget_pause(self, partitions: list[TopicPartition]) -> None:
        """Take the pause off before an assignment ends: it would survive, and with it the client's place.

        A partition that comes back and is resumed then is fetched from that remembered place instead of from the
        committed offset: records that were delivered and not finished would be passed over.
        """
        self._consumer.resume(partitions)

    def _judge(self, record: ConsumerRecord) -> ConsumerRecord | OffsetMissing | None:
        """Return the record when it is the next one of its partition."""
        verdict = self._reading.check(record)
        match verdict:
            case Verdict.TAKE:
                return record
            case Verdict.DROP:
                return None
            case Verdict.REFUSE:
                return OffsetMissing(place=record.place, offset=None)
            case ReadAgain(start=start):
                self._read_again(record, start)
                return None
            case _:
                assert_never(verdict)

    def _read_again(self, record: ConsumerRecord, start: int | From) -> None:
        log.info("consumer.read_again", partition=str(record.place), came=record.offset, start=str(start))
        try:
            self._consumer.seek(self._where(record.place))
        except KafkaException as error:  # the record that comes next is checked in its turn
            log.warning("consumer.seek_refused", partition=str(record.place), error=str(error))

    def _find_starts(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions with the offsets that the group committed; without an answer the client asks itself."""
        try:
            found = self._consumer.committed(partitions, timeout=settings.CONSUMER_REQUEST_TIMEOUT_S)
        except KafkaException as error:
            log.warning("consumer.committed_unknown", error=str(error))
            for place in _places(partitions):
                self._reading.begin(place, From.CLIENT)
            return partitions
        self._reading.close(_places(found))
        for tp in found:
            if tp.offset >= 0:
                self._reading.begin(PartitionRef(tp.topic, tp.partition), tp.offset)
        return found

    # -- Callbacks, inside poll() and close() --
    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        def take() -> None:
            starts = self._find_starts(partitions)
            (consumer.incremental_assign if self._options.is_incremental else consumer.assign)(starts)
            places = _places(partitions)
            self._reading.doubt(self._ours)
            self._ours.update(places)
            for place in places:
                self._topic_ids.pop(place.topic, None)
            consumer.resume(partitions)
            self._listener.on_assigned(places)

        self._guard(take)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        places = _places(partitions)
        self._guard(lambda: self._listener.on_revoked(places))
        self._guard(lambda: self._forget_pause(partitions))
        self._ours.difference_update(places)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        places = _places(partitions)
        self._ours.difference_update(places)
        self._guard(lambda: self._forget_pause(partitions))
        self._guard(lambda: self._listener.on_lost(places))

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        done = {
            PartitionRef(tp.topic, tp.partition): CommitPoint(offset=tp.offset)
            for tp in partitions
            if tp.error is None and tp.offset >= 0
        }
        refused = [str(tp.error) for tp in partitions if tp.error is not None]
        why = str(error) if error is not None else (refused[0] if refused else None)
        self._guard(lambda: self._listener.on_committed(done if error is None else {}, why))

    def _on_error(self, error: KafkaError) -> None:
        log.warning("consumer.client_error", code=error.name(), error=error.str())
        self._guard(lambda: self._listener.on_trouble(error.name(), error.str()))

    def _guard(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:  # an exception that leaves a callback ends the poll loop
            log.exception("consumer.callback_failed")


def read_record(message: Message) -> ConsumerRecord:
    """Copy a message's bytes and coordinates; nothing is decoded but header names, which the client decodes."""
    kind, at_ms = message.timestamp()
    return ConsumerRecord(
        place=PartitionRef(str(message.topic()), int(message.partition() or 0)),
        offset=int(message.offset() or 0),
        leader_epoch=message.leader_epoch(),
        timestamp_ms=at_ms if kind else None,
        key=_as_bytes(message.key()),
        value=_as_bytes(message.value()),
        headers=_read_headers(message),
    )


def _as_bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _read_headers(message: Message) -> tuple[tuple[str, bytes | None], ...] | None:
    try:
        found: Any = message.headers()
    except (UnicodeDecodeError, ValueError, SystemError):
        return None
    return tuple((name, _as_bytes(value)) for name, value in found or ())


def _read_error(message: Message, error: KafkaError) -> OffsetMissing | ConsumerProblem:
    if error.code() != KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - confluent_kafka's names of local errors
        return _problem(error)
    offset = message.offset()
    return OffsetMissing(
        place=PartitionRef(str(message.topic()), int(message.partition() or 0)),
        offset=offset if offset is not None and offset >= 0 else None,
    )


def _problem(error: Any) -> ConsumerProblem:
    if not isinstance(error, KafkaError):
        return ConsumerProblem(code=type(error).__name__, text=str(error), fatal=False)
    return ConsumerProblem(code=error.name(), text=error.str(), fatal=error.fatal())


def _places(partitions: list[TopicPartition]) -> list[PartitionRef]:
    return [PartitionRef(tp.topic, tp.partition) for tp in partitions]


def _commit_list(offsets: Mapping[PartitionRef, CommitPoint]) -> list[TopicPartition]:
    return [
        TopicPartition(*place, point.offset)
        if point.leader_epoch is None
        else TopicPartition(*place, point.offset, leader_epoch=point.leader_epoch)
        for place, point in offsets.items()
    ]


def _answer(asked: "Future[Any]") -> Any:
    try:
        return asked.result(timeout=settings.CONSUMER_REQUEST_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicGone("the topic does not exist") from error
        raise ConsumerUnavailable(f"the broker did not answer: {error}") from error
