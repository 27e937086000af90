"""Find and end the processes of one data folder that outlived their `up` (kill -9, power cut of a terminal).

Each process of a stack carries the folder's mark in its environment, so there is no moment between its start and a
pid file in which it could be missed, and nobody else's process is ever taken for one. psutil compares a process's
start time before each signal: a pid that was given to another process is left alone.
"""

import signal
from collections.abc import Callable, Sequence

import psutil

MARK = "SIGNALBOX_STACK_MARK"
SUPERVISOR = "supervisord"
STOP_WITHIN_S = 25.0
SERVICES = ("kafka", "valkey", "postgres")  # in the order in which they stop


def find_processes(mark: str) -> dict[psutil.Process, str]:
    """Return the live processes that carry `mark`, each with its `SIGNALBOX_PROCESS` name."""
    found: dict[psutil.Process, str] = {}
    for process in psutil.process_iter():
        environment = _environment(process)
        if environment.get(MARK) == mark:
            found[process] = environment.get("SIGNALBOX_PROCESS", "")
    return found


def end_leftovers(mark: str, *, hurry: Callable[[], bool] = lambda: False) -> list[str]:
    """End every process that carries `mark`: supervisor first, then programs, then the services in their order.

    Each stage has `STOP_WITHIN_S`, none when `hurry()` holds; then it is killed.

    Returns:
        The names of the processes that were ended.
    """
    found = find_processes(mark)
    names = sorted(name or f"process {process.pid}" for process, name in found.items())
    _kill([process for process, name in found.items() if name == SUPERVISOR])  # or it would restart what is ended
    _end([p for p, name in find_processes(mark).items() if name not in SERVICES], signal.SIGTERM, hurry)
    for service in SERVICES:
        how = signal.SIGINT if service == "postgres" else signal.SIGTERM
        _end([p for p, name in find_processes(mark).items() if name == service], how, hurry)
    return names


def _end(processes: Sequence[psutil.Process], how: signal.Signals, hurry: Callable[[], bool]) -> None:
    if not processes:
        return
    # PostgreSQL's own children overwrite their environment: they are known by their parent only.
    family = {member for process in processes for member in (process, *_children(process))}
    for process in processes:
        _signal(process, how)
    waited = 0.0
    while family and waited < STOP_WITHIN_S and not hurry():
        _gone, alive = psutil.wait_procs(family, timeout=0.2)
        family = set(alive)
        waited += 0.2
    _kill(list(family))


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(processes, timeout=5)


def _signal(process: psutil.Process, how: signal.Signals) -> None:
    try:
        process.send_signal(how)
    except psutil.NoSuchProcess:
        return


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):  # another user's, or just gone
        return {}
