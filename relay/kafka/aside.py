"""Ask group coordinators in a process beside this one.

librdkafka aborts its whole process when a coordinator's connection drops at the wrong moment of an admin call (its
issue 4605). In a process of its own that costs one answer, and not the web server or the worker. It is started at the
first question, serves one at a time, and ends with its parent however that ends.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process
from typing import ParamSpec, TypeVar

import structlog
from django.conf import settings

from relay.errors import AsideDied

log = structlog.get_logger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
_SETTINGS = ("KAFKA_", "LAG_", "REWIND_")

_pools: dict[int, ProcessPoolExecutor] = {}
_pools_lock = threading.Lock()


def run_aside(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what the function returns there; it, its arguments and its answer must be picklable.

    Raises:
        AsideDied: the process ended, or was silent for `KAFKA_ASIDE_WITHIN_S`; the next question starts another one.
        Exception: what the function raises.
    """
    pool = _pool()
    try:
        asked = pool.submit(_obey, _values(), partial(function, *args, **kwargs))
        return asked.result(settings.KAFKA_ASIDE_WITHIN_S)
    except BrokenProcessPool as error:
        _drop(pool)
        raise AsideDied("the process that asks the brokers ended in mid-question; ask again") from error
    except TimeoutError as error:
        if asked.done():
            raise  # the function's own
        _drop(pool)
        raise AsideDied(f"no answer within {settings.KAFKA_ASIDE_WITHIN_S} s; ask again") from error


def _pool() -> ProcessPoolExecutor:
    with _pools_lock:
        here = os.getpid()  # a fork has its parent's dictionary, and none of its processes
        if here not in _pools:
            _pools[here] = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin)
        return _pools[here]


def _drop(pool: ProcessPoolExecutor) -> None:
    log.warning("kafka.aside_dropped")
    with _pools_lock:
        if _pools.get(os.getpid()) is pool:
            del _pools[os.getpid()]
    pool.shutdown(wait=False, cancel_futures=True)


def _values() -> Mapping[str, object]:
    """This process's settings, which a test or a command may have changed."""
    return {name: getattr(settings, name) for name in dir(settings) if name.startswith(_SETTINGS)}


# -- Over there --------------------------------------------------------------------------------------------
def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is its parent's to answer
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _obey(values: Mapping[str, object], call: Callable[[], R]) -> R:
    for name, value in values.items():
        setattr(settings, name, value)
    return call()
