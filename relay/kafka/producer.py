"""The relay's producer: idempotent, acknowledged by all replicas, and it never lets a row time out.

`delivery.timeout.ms=0`: when a row times out in the client, the client goes on with later rows of the same key, which
breaks the order. The relay judges a stall by the age of its oldest unacknowledged row instead.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from relay.domain.outcome import Failure, Scope, TopicFacts
from relay.kafka.errors import ALL_BROKERS_DOWN, PURGED, ClusterUnreachableError, classify
from relay.kafka.ports import Acked, OnReport

log = structlog.get_logger(__name__)

BATCH_BYTES = 1_000_000
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

    def produce(
        self,
        facts: TopicFacts,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
        on_report: OnReport,
    ) -> bool:
        """Hand a record over; see `RecordProducer`."""
        client = self._by_topic.get(facts.name) or self._client_for(facts)

        def report(error: KafkaError | None, message: Message) -> None:
            if self._abandoned:
                return
            if error is None:
                self._down = False
                on_report(Acked(partition=message.partition() or 0, offset=message.offset() or 0))
            elif error.code() not in PURGED:
                on_report(classify(error))

        try:
            client.produce(
                facts.name,
                value=value,
                key=key,
                partition=-1 if partition is None else partition,
                on_delivery=report,
                headers=list(headers),
            )
        except BufferError:
            return False
        except KafkaException as error:
            on_report(classify(error.args[0]))
        return True

    def poll(self, timeout_s: float) -> int:
        """Serve reports; see `RecordProducer`."""
        clients = list(self._clients.values())
        if not clients:
            return 0
        served = sum(client.poll(0) for client in clients)
        if served or timeout_s <= 0:
            return served
        # One client is the rule; with more, the wait is on the first and the others are served next time.
        return clients[0].poll(timeout_s if len(clients) == 1 else min(timeout_s, 0.005))

    def flush(self, timeout_s: float) -> None:
        """Wait for reports; see `RecordProducer`."""
        for client in self._clients.values():
            client.flush(timeout_s)

    def describe(self, topics: Collection[str], timeout_s: float) -> dict[str, TopicFacts]:
        """Ask for partitions and limits; see `RecordProducer`. A limit that may not be read is None."""
        admin = self._admin_client()
        names = sorted(topics)
        described = admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)
        limits = {
            name: admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)], request_timeout=timeout_s)
            for name in names
        }
        facts = {name: _read_topic(name, described[name], timeout_s) for name in names}
        return {
            name: fact
            if fact.failure
            else TopicFacts(
                name=name,
                partitions=fact.partitions,
                max_message_bytes=_read_limit(next(iter(limits[name].values())), timeout_s),
            )
            for name, fact in facts.items()
        }

    def is_reachable(self, timeout_s: float) -> bool:
        """Ask for the brokers; see `RecordProducer`."""
        try:
            self._admin_client().describe_cluster(request_timeout=timeout_s).result(timeout_s + 1)
        except (KafkaException, TimeoutError):
            return False
        self._down = False
        return True

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
            "linger.ms": 2,
            "batch.size": batch,
            "message.max.bytes": CLIENT_MESSAGE_BYTES,
            "queue.buffering.max.messages": self._queue_rows,
            "queue.buffering.max.kbytes": 512 * 1024,
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1_000,
            "error_cb": self._on_error,
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


def _read_topic(name: str, future: "Future[Any]", timeout_s: float) -> TopicFacts:
    try:
        return TopicFacts(name=name, partitions=len(future.result(timeout_s + 1).partitions))
    except TimeoutError as error:
        raise ClusterUnreachableError("the cluster did not answer in time") from error
    except KafkaException as error:
        failure = classify(error.args[0])
        if failure.scope is Scope.CLUSTER:
            raise ClusterUnreachableError(failure.text) from error
        # A broker that knows the topic's name as invalid says so here: the topic's failure, not the row's.
        return TopicFacts(name=name, failure=Failure(scope=Scope.TOPIC, code=failure.code, text=failure.text))


def _read_limit(future: "Future[Any]", timeout_s: float) -> int | None:
    try:
        return int(future.result(timeout_s + 1)["max.message.bytes"].value)
    except (KafkaException, TimeoutError, KeyError, ValueError):
        return None
