"""What every peer shares: the rows of the bench, and a Kafka client that awaits acknowledgements.

Each script runs as `python NAME.py SOURCE_URL DATABASE_URL BOOTSTRAP TOPIC ROWS`, puts the rows into its own table,
prints `loaded`, and then relays until it is killed.
"""

import asyncio
import sys
import threading
from dataclasses import dataclass

import psycopg
from confluent_kafka import Producer

CONFIG = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
    "batch.size": 1_000_000,
    "log_level": 2,
}


@dataclass
class Task:
    source: str
    database: str
    bootstrap: str
    topic: str
    rows: int

    @classmethod
    def from_arguments(cls):
        source, database, bootstrap, topic, rows = sys.argv[1:]
        return cls(source, database, bootstrap, topic, int(rows))

    def read_source(self):
        """The rows of the bench: (n, key as text, payload)."""
        with psycopg.connect(self.source) as conn:
            return conn.execute(
                "SELECT n, convert_from(key, 'UTF8'), payload FROM bench_source WHERE n <= %s ORDER BY n", [self.rows]
            ).fetchall()


def tell_loaded():
    print("loaded", flush=True)


class AwaitedKafka:
    """`await send()` returns when the broker has the record; reports are served by a thread of its own."""

    def __init__(self, bootstrap):
        self._producer = Producer({"bootstrap.servers": bootstrap, **CONFIG, "linger.ms": 2})
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            self._producer.poll(0.05)

    async def send(self, topic, key, value, headers=None):
        acked = self._loop.create_future()
        self._producer.produce(
            topic,
            value=value,
            key=key,
            headers=headers,
            on_delivery=lambda error, _message: self._loop.call_soon_threadsafe(_settle, acked, error),
        )
        await acked


def _settle(acked, error):
    if acked.done():
        return
    if error is None:
        acked.set_result(None)
    else:
        acked.set_exception(RuntimeError(str(error)))


class BlockingKafka:
    """`send()` returns when the broker has the record."""

    def __init__(self, bootstrap):
        self._producer = Producer({"bootstrap.servers": bootstrap, **CONFIG, "linger.ms": 0})

    def send(self, topic, key, value, headers=None):
        errors = []
        self._producer.produce(
            topic, value=value, key=key, headers=headers, on_delivery=lambda error, _message: errors.append(error)
        )
        self._producer.flush()
        if errors != [None]:
            raise RuntimeError(str(errors))
