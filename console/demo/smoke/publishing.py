"""The smoke run's publishers: threads that publish under a key's row lock, and sometimes roll back."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from uuid import UUID

from django.db import connection, transaction

from console.demo.models import SmokeEvent, SmokeKey
from console.demo.smoke.names import COUNTED, POISON, TOPIC
from relay.facade import publish

WRITERS = 6
ROLLBACK_SHARE = 0.05
POISON_SHARE = 0.004


class Publishers:
    """Publish `total` committed events over `keys` keys from `WRITERS` threads; some more are rolled back.

    They stop at the gate that `allow()` sets, so that what is done to the relays happens while events flow.
    """

    def __init__(self, *, total: int, keys: int, seed: int) -> None:
        self.rolled_back: list[UUID] = []
        self.committed = 0
        self._total = total
        self._claimed = 0
        self._allowed = 0
        self._names = [f"key-{index:04d}" for index in range(keys)]
        self._seed = seed
        self._lock = threading.Condition()
        self._pool = ThreadPoolExecutor(WRITERS, thread_name_prefix="publisher")
        self._futures: list[Future[None]] = []

    def start(self) -> None:
        """Create the keys and start the threads."""
        SmokeKey.objects.bulk_create([SmokeKey(name=name) for name in self._names])
        self._futures = [self._pool.submit(self._publish_share, index) for index in range(WRITERS)]

    def allow(self, share: float) -> None:
        """Let them go on until `share` of the events is claimed."""
        with self._lock:
            self._allowed = round(self._total * share)
            self._lock.notify_all()

    def stop(self) -> None:
        """Let the threads end after the transaction that each is in."""
        with self._lock:
            self._claimed = self._total
            self._lock.notify_all()

    def has_published(self, share: float) -> bool:
        """Whether `share` of the events is committed; raises what a thread raised."""
        self.is_done()
        return self.committed >= round(self._total * share)

    def is_done(self) -> bool:
        """Whether every thread has ended; raises what one of them raised."""
        for future in self._futures:
            if future.done():
                future.result()
        return all(future.done() for future in self._futures)

    def _publish_share(self, index: int) -> None:
        random = Random(f"{self._seed}/{index}")  # noqa: S311 - a schedule, no secret
        try:
            while self._claim_one():
                while not self._publish_one(random):
                    pass
        finally:
            connection.close()

    def _claim_one(self) -> bool:
        with self._lock:
            self._lock.wait_for(lambda: self._claimed < self._allowed or self._claimed >= self._total)
            self._claimed += 1
            return self._claimed <= self._total

    def _publish_one(self, random: Random) -> bool:
        """Publish one event in a transaction; False when it was rolled back."""
        name = random.choice(self._names)
        event_type = POISON if random.random() < POISON_SHARE else COUNTED
        is_undone = random.random() < ROLLBACK_SHARE
        with transaction.atomic():
            event_id = _publish(name, event_type)
            transaction.set_rollback(is_undone)
        with self._lock:
            self.committed += not is_undone
            if is_undone:
                self.rolled_back.append(event_id)
        return not is_undone


def _publish(name: str, event_type: str) -> UUID:
    """Raise the key's sequence under its row lock and publish it: the lock is held until the transaction ends."""
    key = SmokeKey.objects.select_for_update().get(pk=name)
    key.sequence += 1
    key.save(update_fields=["sequence"])
    event = publish(TOPIC, key=name, type=event_type, payload={"sequence": key.sequence})
    SmokeEvent.objects.create(event_id=event.id, key=key, sequence=key.sequence)
    return event.id
