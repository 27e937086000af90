"""A consumer that kills itself at a step: `python -m tests.parking_child TOPIC GROUP STEP NTH`.

Its handler refuses every fifth number for good; every other one has an effect. STEP "never" = it goes on.
"""

import itertools
import os
import signal
import sys
import threading

import django

_calls = itertools.count(1)


def die(nth):
    """Kill this process the nth time it comes here."""
    if next(_calls) == nth:
        os.kill(os.getpid(), signal.SIGKILL)


def wrap(owner, name, *, before, nth, only_workers=False):
    """Let `owner.name` be the step, and go on as ever."""
    real = getattr(owner, name)

    def step(*args, **kwargs):
        counts = not only_workers or threading.current_thread().name.startswith("worker")
        if before and counts:
            die(nth)
        result = real(*args, **kwargs)
        if not before and counts:
            die(nth)
        return result

    setattr(owner, name, step)


def arm(step, nth):
    from django.db.backends.base.base import BaseDatabaseWrapper

    from dlq import services
    from dlq.work import Shelf
    from relay.kafka.consumer import KafkaConsumer

    places = {
        "after-claim": (services, "claim_event", False),
        "before-dead-letter": (services, "_write_dead_letter", True),
        "before-copy": (services, "publish_copy", True),
        "after-copy": (services, "publish_copy", False),
        "after-quarantine": (services, "hold_key", False),
        "after-dead-letter": (services, "_write_dead_letter", False),
        "before-commit": (BaseDatabaseWrapper, "_commit", True),
        "after-commit": (BaseDatabaseWrapper, "_commit", False),
        "before-finish": (Shelf, "finish", True),
        "before-offset": (KafkaConsumer, "commit_soon", True),
        "after-offset": (KafkaConsumer, "commit_soon", False),
    }
    if step in places:
        owner, name, before = places[step]
        wrap(owner, name, before=before, nth=nth, only_workers=owner is BaseDatabaseWrapper)


def main(topic, group, step, nth):
    from django.core.management import call_command

    from dlq.facade import handler
    from dlq.types import Permanent
    from tests.consumers import write_effect

    arm(step, int(nth))

    @handler(topic=topic, group=group)
    def work(event, tx):
        write_effect(event, tx)
        if step == "in-handler":
            die(int(nth))
        if event.payload["n"] % 5 == 4:
            raise Permanent("refused for good")

    call_command("consume", group, concurrency=3)


if __name__ == "__main__":
    django.setup()
    main(*sys.argv[1:5])
