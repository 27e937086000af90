"""Events in Kafka as the relay publishes them, for consumers to be measured with."""

import time
import uuid

from confluent_kafka import Producer

from bench.parts.alone import CONFIG
from bench.parts.services import BenchError, World

FLUSH_WITHIN_S = 120
TEXT = "x" * 400


def produce_events(world: World, topic: str, count: int, keys: int) -> float:
    """Produce `count` events over `keys` keys, numbered; the seconds until the last was acknowledged."""
    producer = Producer({"bootstrap.servers": world.bootstrap, **CONFIG})
    producer.list_topics(topic, timeout=10)
    failed = []
    now = str(int(time.time() * 1000)).encode()
    began = time.perf_counter()
    for n in range(count):
        _produce(producer, topic, (n, f"key-{n % keys}".encode(), now), failed)
        if n % 500 == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_WITHIN_S)
    if failed or left:
        why = failed[0].str() if failed else f"no answer within {FLUSH_WITHIN_S} s"
        raise BenchError(f"{len(failed) + left} of {count:,} events were not acknowledged: {why}")
    return time.perf_counter() - began


def _produce(producer: Producer, topic: str, event: tuple[int, bytes, bytes], failed: list) -> None:
    n, key, now = event
    headers = [
        ("event-id", str(uuid.uuid4()).encode()),
        ("event-type", b"bench.done"),
        ("published-at", now),
        ("content-type", b"application/json"),
    ]
    value = f'{{"n":{n},"text":"{TEXT}"}}'.encode()
    while True:
        try:
            return producer.produce(
                topic,
                value=value,
                key=key,
                headers=headers,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        except BufferError:
            producer.poll(0.01)
