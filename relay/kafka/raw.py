"""Records without the outbox: written as a foreign producer writes them, and a topic read from end to end.

For demos, drills and checks. The product itself publishes through the outbox only.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from django.conf import settings

from relay.errors import RelayError
from relay.kafka.consumer import read_record
from relay.kafka.reader import CLIENT_LOG, open_reader
from relay.types import ConsumerRecord

_lock = threading.Lock()
_producers: list[Producer] = []


class ForeignRecordNotSent(RelayError):
    """The broker did not acknowledge a foreign record in time, or refused it; it may or may not be in the topic."""


class TopicNotRead(RelayError):
    """A topic could not be read to its end; what was yielded before is right but not all."""


def produce_foreign_record(
    topic: str,
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> None:
    """Produce one record past the outbox, byte for byte, and wait for its delivery report.

    For demos and drills: it stands for a producer that is not ours, and may be malformed on purpose. The topic need
    not be declared here. Takes no part in any transaction.

    Raises:
        ForeignRecordNotSent: no delivery report within `RAW_PRODUCE_WITHIN_S`, or one with an error.
    """
    reports: list[KafkaError | None] = []
    producer = _producer()
    try:
        producer.produce(
            topic, key=key, value=value, headers=list(headers), on_delivery=lambda error, _: reports.append(error)
        )
    except (KafkaException, BufferError) as error:
        raise ForeignRecordNotSent(f"the client took no record for {topic!r}: {error}") from error
    deadline = time.monotonic() + settings.RAW_PRODUCE_WITHIN_S
    while not reports and time.monotonic() < deadline:
        producer.poll(0.05)
    if not reports or reports[0] is not None:
        raise ForeignRecordNotSent(f"{topic!r}: {reports[0] if reports else 'no delivery report in time'}")


def read_whole_topic(topic: str) -> Iterator[ConsumerRecord]:
    """Yield every record of `topic` up to the ends that it had at the call; each partition in offset order.

    Joins no group and commits nothing.

    Raises:
        TopicNotRead: the broker refused, or was silent for `RAW_READ_SILENCE_S`.
    """
    consumer = open_reader("topic-reader", reset="earliest")
    try:
        yield from _read_to_ends(consumer, topic, _ends(consumer, topic))
    except KafkaException as error:
        raise TopicNotRead(f"{topic!r}: {error}") from error
    finally:
        consumer.close()


def _read_to_ends(consumer: Consumer, topic: str, ends: dict[int, int]) -> Iterator[ConsumerRecord]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
    while ends:
        message = consumer.poll(settings.RAW_READ_SILENCE_S)
        if message is None:
            raise TopicNotRead(f"{topic!r}: the broker is silent, partitions {sorted(ends)} are not read")
        partition = int(message.partition() or 0)
        if _is_at_end(message):
            ends.pop(partition, None)
            continue
        record = read_record(message)
        if record.offset < ends.get(partition, 0):
            yield record
        if record.offset + 1 >= ends.get(partition, 0):
            ends.pop(partition, None)


def _is_at_end(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - confluent_kafka's name
        return True
    raise KafkaException(error)


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    timeout = settings.RAW_READ_SILENCE_S
    places = [TopicPartition(topic, partition) for partition in _partitions(consumer, topic)]
    return {at.partition: int(consumer.get_watermark_offsets(at, timeout=timeout)[1]) for at in places}


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    known = consumer.list_topics(topic, timeout=settings.RAW_READ_SILENCE_S).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    return sorted(known.partitions)


def _producer() -> Producer:
    with _lock:
        if not _producers:
            config: dict[str, Any] = {
                "bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS,
                "client.id": "foreign-producer",
                "partitioner": "murmur2_random",
                "linger.ms": 0,
                **settings.KAFKA_CLIENT_CONFIG,
            }
            _producers.append(Producer(config, logger=CLIENT_LOG))
        return _producers[0]
