"""A topic's records from given offsets to the ends that it had when it was opened.

No group is joined and nothing is committed: the reader remembers by itself how far it came.
"""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from django.conf import settings

from relay.kafka.consumer import NO_TOPIC_ID, read_record
from relay.kafka.raw import TopicNotRead
from relay.kafka.reader import CLIENT_LOG, open_reader
from relay.types import ConsumerRecord

ASK_AGAIN_S = 0.1
PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,  # the topic itself was described before
}


class Span(NamedTuple):
    """What a partition holds: from `first`, up to and without `end`; committed records only."""

    first: int
    end: int


class Backlog:
    """An opened topic: `topic_id` (None = the broker gives none), what each partition holds, and its records."""

    def __init__(self, consumer: Consumer, topic: str, topic_id: str | None, spans: Mapping[int, Span]) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.spans = spans
        self._consumer = consumer

    def read(self, starts: Mapping[int, int]) -> Iterator[ConsumerRecord]:
        """Yield the records of these partitions from these offsets up to their ends; each partition in offset order.

        Raises:
            TopicNotRead: the broker refused, was silent for `RAW_READ_SILENCE_S`, or deleted what was to be read next.
        """
        ends = {partition: self.spans[partition].end for partition in starts}
        open_ends = {partition for partition, start in starts.items() if start < ends[partition]}
        self._consumer.assign([TopicPartition(self.topic, partition, starts[partition]) for partition in open_ends])
        while open_ends:
            partition, record = self._next()
            if record is not None and record.offset < ends[partition] and partition in open_ends:
                yield record
            if record is None or record.offset + 1 >= ends[partition]:
                open_ends.discard(partition)

    def _next(self) -> tuple[int, ConsumerRecord | None]:
        """The next record with its partition; None for the record = that partition is at its end."""
        try:
            message = self._consumer.poll(settings.RAW_READ_SILENCE_S)
        except KafkaException as error:
            raise TopicNotRead(f"{self.topic!r}: {error}") from error
        if message is None:
            raise TopicNotRead(f"{self.topic!r}: the broker said nothing for {settings.RAW_READ_SILENCE_S} s")
        told, partition = message.error(), int(message.partition() or 0)
        if told is None:
            return partition, read_record(message)
        if told.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - confluent_kafka's names of local errors
            return partition, None
        raise TopicNotRead(f"{self.topic!r}, partition {partition}: {told.str()}")


@contextmanager
def open_backlog(topic: str) -> Iterator[Backlog]:
    """Open a topic for reading what it holds now.

    Raises:
        TopicNotRead: there is no such topic, or the broker did not answer.
    """
    config: dict[str, Any] = {"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, **settings.KAFKA_CLIENT_CONFIG}
    admin = AdminClient(config, logger=CLIENT_LOG)
    asked = admin.describe_topics(TopicCollection([topic]), request_timeout=settings.CONSUMER_REQUEST_TIMEOUT_S)
    found = _answer(topic, asked[topic])
    partitions = [partition.id for partition in found.partitions]
    firsts = _offsets(admin, topic, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = _offsets(admin, topic, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    topic_id = str(found.topic_id)
    consumer = open_reader(
        "backlog-reader",
        reset="error",
        queued_max_messages_kbytes=settings.CONSUMER_BUFFER_BYTES // 1024,
        queued_min_messages=settings.CONSUMER_BUFFER_RECORDS,
    )
    try:
        yield Backlog(
            consumer,
            topic,
            None if topic_id == NO_TOPIC_ID else topic_id,
            {partition: Span(firsts[partition], ends[partition]) for partition in partitions},
        )
    finally:
        consumer.close()


def _offsets(admin: AdminClient, topic: str, partitions: list[int], spec: OffsetSpec) -> dict[int, int]:
    """Ask until each partition is led: right after a creation or an election the broker refuses for a moment."""
    deadline = time.monotonic() + settings.CONSUMER_REQUEST_TIMEOUT_S
    found: dict[int, int] = {}
    while open_ones := [partition for partition in partitions if partition not in found]:
        for at, answer in _ask_offsets(admin, topic, open_ones, spec).items():
            if time.monotonic() < deadline and _is_passing(answer):
                continue
            found[at.partition] = int(_answer(topic, answer).offset)
        time.sleep(0 if len(found) == len(partitions) else ASK_AGAIN_S)
    return found


def _ask_offsets(
    admin: AdminClient, topic: str, partitions: list[int], spec: OffsetSpec
) -> "dict[TopicPartition, Future[Any]]":
    asked: dict[TopicPartition, Future[Any]] = admin.list_offsets(
        {TopicPartition(topic, partition): spec for partition in partitions},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=settings.CONSUMER_REQUEST_TIMEOUT_S,
    )
    return asked


def _is_passing(asked: "Future[Any]") -> bool:
    with suppress(TimeoutError):  # `_answer` waits as long, and says it
        error = asked.exception(timeout=settings.CONSUMER_REQUEST_TIMEOUT_S)
        return isinstance(error, KafkaException) and error.args[0].code() in PASSING
    return False


def _answer(topic: str, asked: "Future[Any]") -> Any:
    try:
        return asked.result(timeout=settings.CONSUMER_REQUEST_TIMEOUT_S)
    except (KafkaException, TimeoutError, ValueError) as error:
        raise TopicNotRead(f"{topic!r}: {_words(error)}") from error


def _words(error: Exception) -> str:
    if not isinstance(error, KafkaException):
        return f"the broker did not answer within {settings.CONSUMER_REQUEST_TIMEOUT_S} s"
    told = error.args[0]
    return "there is no such topic" if told.code() == KafkaError.UNKNOWN_TOPIC_OR_PART else str(told.str())
