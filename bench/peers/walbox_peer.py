"""walbox: change data capture from a slot; the rows of a transaction are sent at once, then its place is stored."""

import asyncio

import psycopg
from common import AwaitedKafka, Task, tell_loaded
from psycopg_pool import AsyncConnectionPool
from walbox import ChangeKind, Walbox, WalboxOptions

ROWS_A_TRANSACTION = 100
SLOT = "bench_walbox"
TABLE = """
CREATE TABLE outbox_walbox (
    id bigserial PRIMARY KEY, topic text NOT NULL, key text, payload text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now());
CREATE PUBLICATION bench_walbox FOR TABLE outbox_walbox;
"""


def load(task):
    with psycopg.connect(task.database, autocommit=True) as conn:
        conn.execute(TABLE)
        conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])
        rows = task.read_source()
        for start in range(0, len(rows), ROWS_A_TRANSACTION):
            with conn.transaction(), conn.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO outbox_walbox (topic, key, payload) VALUES (%s, %s, %s)",
                    [
                        (task.topic, key, payload.decode())
                        for _, key, payload in rows[start : start + ROWS_A_TRANSACTION]
                    ],
                )


async def relay(task):
    kafka = AwaitedKafka(task.bootstrap)

    async def handle(transaction, checkpoint):
        await asyncio.gather(
            *(
                kafka.send(change.new["topic"], change.new["key"], change.new["payload"])
                for change in transaction.changes
                if change.kind == ChangeKind.INSERT
            )
        )
        await checkpoint.save(transaction.commit_lsn)

    options = WalboxOptions(consumer_name="bench", dsn=task.database, slot_name=SLOT, publication_name="bench_walbox")
    async with AsyncConnectionPool(task.database, min_size=1, max_size=2, open=False) as pool:
        tell_loaded()
        await Walbox.build_with_pool(options, pool).run(handle)


if __name__ == "__main__":
    task = Task.from_arguments()
    load(task)
    asyncio.run(relay(task))
