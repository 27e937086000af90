"""Which relay runner this worker process runs now: one at a time, with an overlap for the hand-over."""

import os
import socket
import threading

import structlog
from celery.signals import worker_shutting_down
from django.conf import settings

from relay.runner import Runner, calm_collector

log = structlog.get_logger(__name__)

_lock = threading.Lock()
_running: list[Runner] = []
_shutting_down = threading.Event()


def run_if_needed() -> bool:
    """Run a runner in this thread unless this process has one that is not near its end. True = it ran here.

    A successor starts `RELAY_TASK_OVERLAP_S` before the budget of the running one ends, so that shards are handed
    over without a gap. It returns within `RELAY_TASK_LIMIT_S` + `RELAY_STOP_WITHIN_S`.
    """
    runner = _start()
    if runner is None:
        return False
    try:
        runner.run()
    finally:
        with _lock:
            _running.remove(runner)
    return True


def _start() -> Runner | None:
    with _lock:
        if _shutting_down.is_set() or any(not _is_near_its_end(r) for r in _running):
            return None
        runner = Runner(
            name=f"celery@{socket.gethostname()}:{os.getpid()}",
            kind="celery",
            budget_s=settings.RELAY_TASK_BUDGET_S,
            limit_s=settings.RELAY_TASK_LIMIT_S - settings.RELAY_STOP_WITHIN_S,
        )
        if not _running:
            calm_collector()
        _running.append(runner)
        return runner


def _is_near_its_end(runner: Runner) -> bool:
    return runner.age_s() >= settings.RELAY_TASK_BUDGET_S - settings.RELAY_TASK_OVERLAP_S


def stop_all() -> None:
    """Stop every runner of this process and start no other: the worker shuts down."""
    _shutting_down.set()
    with _lock:
        for runner in _running:
            runner.stop()


@worker_shutting_down.connect(weak=False)
def _on_shutdown(**_: object) -> None:
    log.info("relay.worker_shutting_down")
    stop_all()
