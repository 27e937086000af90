"""The Celery application. Two workers: `-Q relay` runs relay runners, `-Q console` runs everything else.

Workers and beat tell the System page that they live; what they tell is in `console.processes`, which is imported
when a process starts: Django's apps are not loaded yet here.
"""

import os
from typing import Any

from celery import Celery
from celery.signals import (
    after_task_publish,
    beat_init,
    setup_logging,
    task_postrun,
    task_prerun,
    worker_ready,
    worker_shutdown,
)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings.run")

app = Celery("signalbox")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect  # connected: Celery leaves Django's logging alone
def keep_djangos_logging(**_rest: Any) -> None:
    """Do nothing: `console.logs` has set it up."""


@worker_ready.connect
def start_worker_heartbeat(sender: Any, **_rest: Any) -> None:
    """Beat while the worker serves, from inside its one process (`-P threads`)."""
    from console.processes import WorkerProcess, start_heartbeat

    worker = WorkerProcess(sender.app.amqp.queues.consume_from)
    task_prerun.connect(lambda task_id, task, **_: worker.begin(task_id, task.name), weak=False)
    task_postrun.connect(lambda task_id, state, **_: worker.end(task_id, failed=state == "FAILURE"), weak=False)
    start_heartbeat(worker.role, worker.describe)


@worker_shutdown.connect
def stop_worker_heartbeat(**_rest: Any) -> None:
    """Say that the worker ends on purpose."""
    from console.processes import stop_heartbeat

    stop_heartbeat()


@beat_init.connect
def start_beat_heartbeat(**_rest: Any) -> None:
    """Beat while beat runs; it ends at exit."""
    from console.processes import BeatProcess, start_heartbeat
    from relay.types import Role

    beat = BeatProcess()
    after_task_publish.connect(lambda sender, **_: beat.note_sent(str(sender)), weak=False)
    start_heartbeat(Role.BEAT, beat.describe)
