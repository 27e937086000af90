"""Tools of the replay tests: a group whose dead letters are made without Kafka, and its executor in this process."""

import itertools
import json
import threading
from contextlib import contextmanager
from uuid import uuid4

from django.db import connection, transaction

from dlq import services
from dlq.attempts import Attempts, Delivery
from dlq.breaker import BreakerBook
from dlq.domain.failure import Failure
from dlq.facade import handler
from dlq.handlers import Routes, unregister_group
from dlq.models import DeadLetter
from dlq.policies import PolicyBook
from dlq.pool import Permits
from dlq.replay.executor import Executor
from dlq.replay.reading import get_replay
from dlq.types import FailureClass
from relay.types import ConsumerRecord, PartitionRef
from tests.consumers import headers_of, make_effect_table, until, write_effect


def failure_of(cause="first"):
    return Failure(
        failure_class=FailureClass.PERMANENT, error_class=f"tests.{cause}", message=cause, stack="",
        fingerprint=cause[:16], attempts=1,
    )  # fmt: skip


class Shop:
    """A topic and a group of their own; `work` is what the handler does, and may be exchanged at any time."""

    def __init__(self):
        make_effect_table()
        self.topic, self.group = f"replayed-{uuid4().hex[:12]}", f"group-{uuid4().hex[:12]}"
        self.work = write_effect
        self._offsets = itertools.count()
        handler(topic=self.topic, group=self.group)(self._handle)

    def _handle(self, event, tx):
        return self.work(event, tx)

    def record(self, number, *, key="k", event_id=None, value=None, partition=0):
        return ConsumerRecord(
            place=PartitionRef(self.topic, partition), offset=next(self._offsets), leader_epoch=None,
            timestamp_ms=1_700_000_000_000, key=None if key is None else key.encode(),
            value=value if value is not None else json.dumps({"n": number, "key": key}).encode(),
            headers=tuple(headers_of(event_id)),
        )  # fmt: skip

    def attempts(self):
        return Attempts(
            self.group, Routes(self.group), lambda _: "topic-id", policies=PolicyBook(self.group),
            breakers=BreakerBook(self.group),
        )  # fmt: skip

    def consume(self, record):
        """Do with a record what a consumer does."""
        return self.attempts().work(Delivery(record=record, slot=0))

    def park(self, number, *, cause="first", quarantines=True, **of_record):
        """Make a dead letter; returns its id."""
        record = self.record(number, **of_record)
        with transaction.atomic():
            services.park_record(
                self.group, "h", record, failure_of(cause), topic_id="topic-id", slot=0, quarantines=quarantines
            )
        return self.letter(record.offset).pk

    def park_many(self, numbers):
        return [self.park(n, key=f"k{n}") for n in numbers]

    def letter(self, offset):
        return DeadLetter.objects.get(group=self.group, offset=offset)

    def letters(self, **narrowed):
        return list(DeadLetter.objects.filter(group=self.group, **narrowed).order_by("offset"))

    @contextmanager
    def executor(self, threads=4, name="consumer-1"):
        made = Executor(
            self.group,
            name,
            self.attempts(),
            permits=Permits(threads),
            threads=threads,
            may_run=lambda: True,
            announce=lambda: None,
        )
        made.start()
        try:
            yield made
        finally:
            made.end(30)
            assert not made.is_alive()

    def run(self, job, *, until_state=("finished", "paused", "cancelled"), threads=4):
        """Let an executor work until the job is in one of these states; returns the job."""
        with self.executor(threads):
            return self.wait(job, until_state)

    def wait(self, job, states):
        return until(lambda: found if (found := get_replay(job.id)).state in states else None, what=f"{states}")

    def drop(self):
        unregister_group(self.group)


def in_thread(function, *args):
    """Run it in a thread of its own database connection; `.result()` waits."""

    class Thread(threading.Thread):
        def run(self):
            try:
                self.value = function(*args)
            except BaseException as error:
                self.error = error
            finally:
                connection.close()

        def result(self, within_s=40):
            self.join(within_s)
            assert not self.is_alive(), "it still runs"
            if hasattr(self, "error"):
                raise self.error
            return self.value

    thread = Thread(daemon=True)
    thread.start()
    return thread
