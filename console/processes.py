"""Heartbeats of web, workers and beat: what the System page shows of them. One a process, started where it serves."""

import atexit
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from asgiref.sync import sync_to_async

from relay.facade import HeartbeatThread, process_name
from relay.types import Role

Description = tuple[str, Mapping[str, str]]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_lock = threading.Lock()
_running: dict[int, HeartbeatThread] = {}


def start_heartbeat(role: Role, describe: Callable[[], Description]) -> None:
    """Start this process's heartbeat; a second call in the same process does nothing. Ends with the process.

    A child that a server started (uvicorn with several workers or with reload) gets a name of its own.
    """
    with _lock:
        if os.getpid() in _running:
            return
        name = process_name(role)
        if multiprocessing.parent_process() is not None:
            name = f"{name}:{os.getpid()}"
        heartbeat = HeartbeatThread(role, name, describe)
        heartbeat.start()
        _running[os.getpid()] = heartbeat
    atexit.register(stop_heartbeat)


def stop_heartbeat() -> None:
    """Stop this process's heartbeat and record that the process ends on purpose; waits at most 5 s."""
    with _lock:
        heartbeat = _running.pop(os.getpid(), None)
    if heartbeat is not None:
        heartbeat.stop()


class WebProcess:
    """Wrap the ASGI application: it beats from the server's start-up to its shutdown, and counts what is open.

    The server's lifespan starts it, so importing the application (tests, checks) starts nothing.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: Counter[str] = Counter()
        self._served = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one scope."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        self._open[scope["type"]] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[scope["type"]] -= 1
            self._served += 1

    async def _live(self, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "lifespan.shutdown":
            if message["type"] == "lifespan.startup":
                start_heartbeat(Role.WEB, self._describe)
                await send({"type": "lifespan.startup.complete"})
        await sync_to_async(stop_heartbeat, thread_sensitive=False)()
        await send({"type": "lifespan.shutdown.complete"})

    def _describe(self) -> Description:
        pages, sockets = self._open["http"], self._open["websocket"]
        facts = {"open requests": str(pages), "live sockets": str(sockets), "served": str(self._served)}
        return ("serving" if pages or sockets else "waiting"), facts


class WorkerProcess:
    """A Celery worker as the System page shows it: its queues, what runs now, what it has done."""

    def __init__(self, queues: Iterable[str]) -> None:
        self.queues = sorted(queues)
        self._active: dict[str, str] = {}
        self._done = 0
        self._failed = 0

    @property
    def role(self) -> Role:
        """A worker that serves nothing but the relay's queue is a relay worker."""
        return Role.RELAY_WORKER if self.queues == ["relay"] else Role.WORKER

    def begin(self, task_id: str, task: str) -> None:
        """Note that a task began."""
        self._active[task_id] = task

    def end(self, task_id: str, *, failed: bool) -> None:
        """Note that a task ended."""
        self._active.pop(task_id, None)
        if failed:
            self._failed += 1
        else:
            self._done += 1

    def describe(self) -> Description:
        """Say what it does."""
        active = sorted(self._active.copy().values())
        facts = {
            "queues": ", ".join(self.queues),
            "active tasks": str(len(active)),
            "tasks done": str(self._done),
            "tasks failed": str(self._failed),
        }
        return ", ".join(active) or "waiting", facts


class BeatProcess:
    """Celery beat as the System page shows it: when it last sent what. A beat that hangs shows an old tick."""

    def __init__(self) -> None:
        self._sent = 0
        self._last: tuple[str, float] | None = None

    def note_sent(self, task: str) -> None:
        """Note that a task was sent to the broker."""
        self._sent += 1
        self._last = (task, time.monotonic())

    def describe(self) -> Description:
        """Say what it does."""
        if self._last is None:
            return "has sent nothing yet", {"sent": "0"}
        task, at = self._last
        return f"sent {task} {time.monotonic() - at:.0f} s ago", {"sent": str(self._sent)}
