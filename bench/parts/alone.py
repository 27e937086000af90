"""Produce the bench's records alone, with delivery callbacks: what every rate is a ratio of.

python alone.py DATABASE_URL BOOTSTRAP TOPIC ROWS HEADERS(yes|no); prints the seconds from the first produce() to the
last acknowledgement. The client is set up like the relay's.
"""

import sys
import time

import psycopg
from confluent_kafka import Producer

CONFIG = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "log_level": 2,
}
POLL_EVERY = 500


def read_rows(url, count, *, with_headers):
    with psycopg.connect(url) as conn:
        cursor = conn.cursor(binary=True)
        cursor.execute(
            "SELECT key, payload, gen_random_uuid()::text FROM bench_source WHERE n <= %s ORDER BY n", [count]
        )
        rows = cursor.fetchall()
    now = str(int(time.time() * 1000)).encode()
    return [
        (
            key,
            payload,
            [
                ("event-id", event_id.encode()),
                ("event-type", b"bench.row"),
                ("published-at", now),
                ("content-type", b"application/json"),
            ]
            if with_headers
            else None,
        )
        for key, payload, event_id in rows
    ]


def produce_all(bootstrap, topic, rows):
    producer = Producer({"bootstrap.servers": bootstrap, **CONFIG})
    producer.list_topics(topic, timeout=10)  # connected before the clock starts
    acked = failed = 0

    def on_delivery(error, _message):
        nonlocal acked, failed
        if error is None:
            acked += 1
        else:
            failed += 1

    began = time.perf_counter()
    for n, row in enumerate(rows):
        _produce(producer, topic, row, on_delivery)
        if n % POLL_EVERY == 0:
            producer.poll(0)
    producer.flush()
    seconds = time.perf_counter() - began
    if failed or acked != len(rows):
        raise SystemExit(f"{failed} records failed, {acked} of {len(rows)} were acknowledged")
    return seconds


def _produce(producer, topic, row, on_delivery):
    key, payload, headers = row
    while True:
        try:
            if headers is None:
                return producer.produce(topic, value=payload, key=key, on_delivery=on_delivery)
            return producer.produce(topic, value=payload, key=key, on_delivery=on_delivery, headers=headers)
        except BufferError:
            producer.poll(0.01)


if __name__ == "__main__":
    url, bootstrap, topic, count, headers = sys.argv[1:]
    print(produce_all(bootstrap, topic, read_rows(url, int(count), with_headers=headers == "yes")))
