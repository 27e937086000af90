"""faststream-outbox: one subscriber with 100 workers, 500 rows a fetch, deletes flushed 100 at a time."""

import asyncio

from common import AwaitedKafka, Task, tell_loaded
from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox.annotations import OutboxMessage
from sqlalchemy import MetaData, insert
from sqlalchemy.ext.asyncio import create_async_engine

QUEUE = "bench"
WORKERS = 100
CHUNK = 1_000


async def main():
    task = Task.from_arguments()
    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="outbox_faststream")
    engine = create_async_engine(
        task.database.replace("postgresql://", "postgresql+asyncpg://"), pool_size=20, max_overflow=WORKERS
    )
    async with engine.begin() as conn:
        await conn.run_sync(metadata.create_all)
        rows = [{"queue": QUEUE, "payload": payload, "headers": {"key": key}} for _, key, payload in task.read_source()]
        for start in range(0, len(rows), CHUNK):
            await conn.execute(insert(table), rows[start : start + CHUNK])
    broker = OutboxBroker(engine, outbox_table=table, logger=None)
    kafka = AwaitedKafka(task.bootstrap)

    @broker.subscriber(
        QUEUE,
        max_workers=WORKERS,
        fetch_batch_size=500,
        min_fetch_interval=0.01,
        max_fetch_interval=0.1,
        terminal_flush_batch_size=100,
        decoder=_keep_bytes,
    )
    async def relay(payload: bytes, message: OutboxMessage) -> None:
        await kafka.send(task.topic, message.headers["key"], payload)

    tell_loaded()
    await broker.start()
    await asyncio.Event().wait()


async def _keep_bytes(message):
    return message.body


if __name__ == "__main__":
    asyncio.run(main())
