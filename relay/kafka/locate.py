"""Find the offset of one event in the ranges where the relay noted that it must lie."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from django.conf import settings

from relay.kafka.consumer import read_record
from relay.kafka.reader import open_reader

EVENT_ID = "event-id"


class Stretch(NamedTuple):
    """Offsets of one partition, both ends included."""

    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where the event lies; `why_not` says in words why the reading ended without it, or before its end."""

    places: Sequence[tuple[int, int]]
    why_not: str = ""


def find_event_offsets(topic: str, event_id: UUID, stretches: Sequence[Stretch]) -> Found:
    """Read the stretches one after another and return each (partition, offset) whose record has this event id.

    At most `RELAY_TRACE_RECORDS` records and `RELAY_TRACE_WITHIN_S` seconds. Joins no group, commits nothing, and
    looks at headers only. Never raises for what Kafka answers.
    """
    consumer = open_reader("event-finder", reset="error")
    reader = _Reader(consumer, topic, str(event_id).encode())
    try:
        for stretch in stretches:
            reader.read(stretch)
    except KafkaException as error:
        return Found(places=reader.places, why_not=f"Kafka was not read to the end: {error.args[0].str()}")
    except _Ended as ended:
        return Found(places=reader.places, why_not=str(ended))
    finally:
        consumer.close()
    return Found(places=reader.places, why_not=reader.gone)


class _Ended(Exception):
    """A bound was met; the text says which."""


class _Reader:
    """Reads stretches with one consumer, within the bounds of all of them together."""

    def __init__(self, consumer: Consumer, topic: str, wanted: bytes) -> None:
        self._consumer = consumer
        self._topic = topic
        self._wanted = wanted
        self._left = settings.RELAY_TRACE_RECORDS
        self._deadline = time.monotonic() + settings.RELAY_TRACE_WITHIN_S
        self.places: list[tuple[int, int]] = []
        self.gone = ""

    def read(self, stretch: Stretch) -> None:
        """Read to the end of a stretch; one whose records are deleted is noted in `gone`."""
        self._consumer.assign([TopicPartition(self._topic, stretch.partition, stretch.first)])
        offset = stretch.first - 1
        while offset < stretch.last:
            message = self._next()
            if message is None:
                return
            offset = int(message.offset() or 0)
            if offset <= stretch.last and self._is_wanted(message):
                self.places.append((stretch.partition, offset))

    def _next(self) -> Message | None:
        """The next record; None at the end of the log, or where the stretch is deleted."""
        while True:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise _Ended(f"Kafka was not read to the end within {settings.RELAY_TRACE_WITHIN_S} s.")
            if self._left <= 0:
                raise _Ended(f"It lies among more than {settings.RELAY_TRACE_RECORDS:,} records; not all were read.")
            message = self._consumer.poll(left_s)
            if message is not None and self._is_record(message):
                self._left -= 1
                return message
            if message is not None:
                return None

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - confluent_kafka's name
            self.gone = "Kafka has deleted the records of that time already (the topic's retention)."
            return False
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - confluent_kafka's name
            return False
        raise KafkaException(error)

    def _is_wanted(self, message: Message) -> bool:
        headers = read_record(message).headers or ()
        return any(name == EVENT_ID and value == self._wanted for name, value in headers)
