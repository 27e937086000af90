"""The relay's producer: idempotent, acknowledged by all replicas, and it never lets a row time out.

`delivery.timeout.ms=0`: when a row times out in the client, the client goes on with later rows of the same key, which
breaks the order. The relay judges a stall by the age of its oldest unacknowledged row instead.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial as partial_of
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from relay.domain.outcome import Failure, Scope, TopicFacts
from relay.kafka.errors import ALL_BROKERS_DOWN, PURGED, ClusterUnreachableError, classify
from relay.kafka.ports import Report

log = structlog.get_logger(__name__)

BATCH_BYTES = 1_000_000
LINGER_MS = 20
"""How long a record waits for a fuller request while a backlog is drained; see `KafkaProducer.send_now()`."""
TOPIC_GONE_AFTER_MS = 5_000
# The client ends a request at its timeout; a question is given up this much later even if it did not.
ANSWER_GRACE_S = 1
# The client must not refuse what a topic takes; the relay checks against the topic's own limit.
CLIENT_MESSAGE_BYTES = 1_000_000_000


class KafkaProducer:
    """`RecordProducer` on confluent-kafka.

    A client sends batches up to `batch.size`; a topic with a lower `max.message.bytes` refuses such a batch whole.
    So there is one client per batch size, and a topic stays with its client.
    """

    def __init__(self, bootstrap: str, client_config: Mapping[str, object], *, client_id: str, queue_rows: int) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": client_id, **client_config}
        self._queue_rows = queue_rows
        self._clients: dict[int, Producer] = {}
        self._by_topic: dict[str, Producer] = {}
        self._admin: AdminClient | None = None
        self._down = False
        self._abandoned = False
        self._heard: list[Report] = []

    def produce(
        self,
        facts: TopicFacts,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int | None,
        tag: object,
    ) -> bool | Failure:
        """Hand a record over; see `RecordProducer`."""
        client = self._by_topic.get(facts.name) or self._client_for(facts)
        try:
            client.produce(  # by place: the client looks for each name otherwise, once a record
                facts.name,
                value,
                key,
                -1 if partition is None else partition,
                partial_of(self._hear, tag),
                None,
                0,
                headers,  # type: ignore[arg-type]  # pairs that never hold a str
            )
        except BufferError:
            return False
        except KafkaException as error:
            return classify(error.args[0])
        return True

    def _hear(self, tag: object, error: KafkaError | None, message: Message) -> None:
        """Once a record: keep what is told, and let the engine look at all of it together."""
        if error is None:
            self._down = False
            self._heard.append((tag, message.partition() or 0, message.offset() or 0, None))
        elif error.code() not in PURGED:
            self._heard.append((tag, 0, 0, classify(error)))

    def poll(self, timeout_s: float) -> Sequence[Report]:
        """Serve reports; see `RecordProducer`."""
        clients = list(self._clients.values())
        for client in clients:
            client.poll(0)
        if clients and not self._heard and timeout_s > 0:
            # One client is the rule; with more, the wait is on the first and the others are served next time.
            clients[0].poll(timeout_s if len(clients) == 1 else min(timeout_s, 0.005))
        return self._take_heard()

    def send_now(self, timeout_s: float) -> Sequence[Report]:
        """Flush, which ends the lingering; see `RecordProducer`."""
        for client in self._clients.values():
            client.flush(timeout_s)
        return self._take_heard()

    def _take_heard(self) -> Sequence[Report]:
        if self._abandoned or not self._heard:
            return ()
        heard, self._heard = self._heard, []
        return heard

    def ask(self, topics: Collection[str], timeout_s: float) -> "TopicQuestion":
        """Ask for partitions and limits; see `RecordProducer`. A limit that may not be read is None."""
        admin = self._admin_client()
        names = sorted(topics)
        described = admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)
        limits = {
            name: next(
                iter(
                    admin.describe_configs(
                        [ConfigResource(ResourceType.TOPIC, name)], request_timeout=timeout_s
                    ).values()
                )
            )
            for name in names
        }
        return TopicQuestion(described, limits, timeout_s + ANSWER_GRACE_S)

    def probe(self, timeout_s: float) -> "ClusterProbe":
        """Ask for the brokers; see `RecordProducer`."""
        return ClusterProbe(
            self._admin_client().describe_cluster(request_timeout=timeout_s),
            timeout_s + ANSWER_GRACE_S,
            self._is_up,
        )

    @property
    def brokers_down(self) -> bool:
        """See `RecordProducer`."""
        return self._down

    def abandon(self) -> None:
        """Purge every queue; see `RecordProducer`."""
        self._abandoned = True
        for client in self._clients.values():
            client.purge(in_queue=True, in_flight=True, blocking=False)
            client.flush(0.1)
        self._clients.clear()
        self._by_topic.clear()

    def _is_up(self) -> None:
        self._down = False

    def _client_for(self, facts: TopicFacts) -> Producer:
        batch = min(BATCH_BYTES, facts.max_message_bytes or BATCH_BYTES)
        if batch not in self._clients:
            self._clients[batch] = Producer(self._producer_config(batch))
        self._by_topic[facts.name] = self._clients[batch]
        return self._clients[batch]

    def _producer_config(self, batch: int) -> dict[str, Any]:
        return {
            **self._common,
            "enable.idempotence": True,
            "acks": "all",
            "max.in.flight.requests.per.connection": 5,
            "delivery.timeout.ms": 0,
            "partitioner": "murmur2_random",
            "linger.ms": LINGER_MS,
            "batch.size": batch,
            "message.max.bytes": CLIENT_MESSAGE_BYTES,
            "queue.buffering.max.messages": self._queue_rows,
            "queue.buffering.max.kbytes": 512 * 1024,
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1_000,
            "error_cb": self._on_error,
            # Below the relay's stall limit: a topic that is deleted under rows in the air is that topic's failure, not
            # the cluster's. A topic that only looks missing is held for a moment and resumes.
            "topic.metadata.propagation.max.ms": TOPIC_GONE_AFTER_MS,
            "log_level": 2,
        }

    def _admin_client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({**self._common, "reconnect.backoff.max.ms": 1_000, "log_level": 2})
        return self._admin

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == ALL_BROKERS_DOWN:
            self._down = True
        log.info("relay.kafka_error", code=error.name())


class TopicQuestion:
    """`Pending` facts of topics: the partitions and the limit of each."""

    def __init__(
        self, topics: "Mapping[str, Future[Any]]", limits: "Mapping[str, Future[Any]]", within_s: float
    ) -> None:
        self._topics = topics
        self._limits = limits
        self._until = time.monotonic() + within_s

    def poll(self) -> dict[str, TopicFacts] | None:
        """Return the facts once every part of the answer is there; see `Pending`."""
        if not all(future.done() for future in (*self._topics.values(), *self._limits.values())):
            if time.monotonic() > self._until:
                raise ClusterUnreachableError("the cluster did not answer in time")
            return None
        return {name: _read_facts(name, topic, self._limits[name]) for name, topic in self._topics.items()}


class ClusterProbe:
    """`Pending` yes or no: does a broker answer?"""

    def __init__(self, future: "Future[Any]", within_s: float, on_yes: Callable[[], None]) -> None:
        self._future = future
        self._until = time.monotonic() + within_s
        self._on_yes = on_yes

    def poll(self) -> bool | None:
        """Return whether a broker answered; see `Pending`."""
        if not self._future.done():
            return False if time.monotonic() > self._until else None
        if self._future.exception() is not None:
            return False
        self._on_yes()
        return True


def _read_facts(name: str, topic: "Future[Any]", limit: "Future[Any]") -> TopicFacts:
    try:
        found = topic.result()
    except KafkaException as error:
        failure = classify(error.args[0])
        if failure.scope is Scope.CLUSTER:
            raise ClusterUnreachableError(failure.text) from error
        # A broker that knows the topic's name as invalid says so here: the topic's failure, not the row's.
        return TopicFacts(name=name, failure=Failure(scope=Scope.TOPIC, code=failure.code, text=failure.text))
    return TopicFacts(
        name=name,
        partitions=len(found.partitions),
        max_message_bytes=_read_limit(limit),
        topic_id=None if found.topic_id is None else str(found.topic_id),
    )


def _read_limit(future: "Future[Any]") -> int | None:
    try:
        return int(future.result()["max.message.bytes"].value)
    except (KafkaException, KeyError, ValueError):
        return None
