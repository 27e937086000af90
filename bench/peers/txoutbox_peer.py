"""txoutbox: its relay on PostgreSQL, 500 messages a round, 500 keys at once, rows deleted when acknowledged."""

import asyncio
from datetime import timedelta

import asyncpg
from common import AwaitedKafka, Task, tell_loaded
from txoutbox import Relay, RelayConfig
from txoutbox.adapters.postgres import PostgresStorage

BATCH = 500


async def main():
    task = Task.from_arguments()
    async with asyncpg.create_pool(task.database, min_size=2, max_size=4) as pool:
        storage = PostgresStorage(pool, delete_on_ack=True)
        await storage.create_schema()
        await pool.copy_records_to_table(
            "outbox",
            records=[(task.topic, key, payload) for _, key, payload in task.read_source()],
            columns=["topic", "key", "payload"],
        )
        await pool.execute("ANALYZE outbox")
        kafka = AwaitedKafka(task.bootstrap)

        async def publish(message):
            await kafka.send(message.topic, message.key, message.payload)

        config = RelayConfig(batch_size=BATCH, concurrency=BATCH, lease=timedelta(seconds=60), poll_min=0.01)
        tell_loaded()
        await Relay(storage, publish, config=config).run()


if __name__ == "__main__":
    asyncio.run(main())
