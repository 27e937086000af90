"""A consumer in a process of its own: `python -m tests.consumer_child TOPIC GROUP MODE CONCURRENCY`.

MODE says where it kills itself, the first time it sees number `KILL_AT`: `before-commit`, `after-commit`, or never.
With `fail` its dependency is away for number `FAIL_AT`.
"""

import os
import signal
import sys
import time

import django


def main(topic, group, mode, concurrency):
    from django.core.management import call_command
    from django.db import transaction

    from dlq.facade import handler
    from tests.consumers import write_effect

    kill_at = int(os.environ.get("KILL_AT", "-1"))
    fail_at = int(os.environ.get("FAIL_AT", "-1"))
    work_ms = int(os.environ.get("WORK_MS", "0"))

    @handler(topic=topic, group=group)
    def work(event, tx):
        time.sleep(work_ms / 1000)
        if event.payload["n"] == fail_at:
            raise ConnectionError("away")
        write_effect(event, tx)
        if event.payload["n"] == kill_at and mode == "before-commit":
            die()
        if event.payload["n"] == kill_at and mode == "after-commit":
            transaction.on_commit(die)

    call_command("consume", group, concurrency=int(concurrency))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    django.setup()
    main(*sys.argv[1:5])
