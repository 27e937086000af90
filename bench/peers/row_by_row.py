"""A poller as many write it: one row at a time, locked, sent, marked, committed."""

import psycopg
from common import BlockingKafka, Task, tell_loaded

TABLE = """
CREATE TABLE outbox_row_by_row (
    id bigserial PRIMARY KEY, topic text NOT NULL, key text, payload bytea NOT NULL, sent_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON outbox_row_by_row (id) WHERE sent_at IS NULL;
"""
NEXT = (
    "SELECT id, topic, key, payload FROM outbox_row_by_row WHERE sent_at IS NULL ORDER BY id LIMIT 1"
    " FOR UPDATE SKIP LOCKED"
)


def load(task):
    with psycopg.connect(task.database) as conn:
        conn.execute(TABLE)
        with conn.cursor().copy("COPY outbox_row_by_row (topic, key, payload) FROM STDIN") as copy:
            for _, key, payload in task.read_source():
                copy.write_row((task.topic, key, payload))
        conn.commit()
        conn.autocommit = True
        conn.execute("ANALYZE outbox_row_by_row")


def relay(task):
    kafka = BlockingKafka(task.bootstrap)
    with psycopg.connect(task.database) as conn:
        while True:
            with conn.transaction():
                row = conn.execute(NEXT).fetchone()
                if row is None:
                    return
                number, topic, key, payload = row
                kafka.send(topic, key, payload)
                conn.execute("UPDATE outbox_row_by_row SET sent_at = now() WHERE id = %s", [number])


if __name__ == "__main__":
    task = Task.from_arguments()
    load(task)
    tell_loaded()
    relay(task)
