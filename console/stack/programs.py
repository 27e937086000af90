"""The programs of a stack, as values: how each starts, and how it stops."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from console.stack import kafka, postgres, valkey

BASE_DIR = Path(__file__).resolve().parent.parent.parent
APP_GROUP = "app"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One supervised program. It must stop on `stop_signal` within `stop_within_s`; then it is killed.

    `user`: the operating-system user, None = the one who runs `up`. A program with `starts` false waits for
    `SupervisorClient.start_rest()`.
    """

    name: str
    command: Sequence[str]
    stop_signal: str = "TERM"
    stop_within_s: int = 20
    priority: int = 900
    user: str | None = None
    directory: Path = BASE_DIR
    starts: bool = True


def postgres_program(data: Path, port: int) -> Program:
    """PostgreSQL: starts first, stops last."""
    return Program(
        name="postgres",
        command=postgres.command(data, port),
        stop_signal="INT",
        stop_within_s=60,
        priority=10,
        user=postgres.system_user(),
        directory=Path("/"),
    )


def valkey_program(data: Path, port: int) -> Program:
    """Valkey."""
    return Program(name="valkey", command=valkey.command(data, port), priority=20, directory=Path("/"))


def kafka_program(config: Path) -> Program:
    """Kafka: the first service to stop, before what it does not need."""
    return Program(name="kafka", command=kafka.command(config), stop_within_s=40, priority=30, directory=Path("/"))


def app_programs(*, web_port: int, beat_file: Path, groups: Sequence[str], demo: bool) -> list[Program]:
    """Everything of the product itself: one group, stopped together before the services.

    The page starts alone: eight Python processes that start at once on two cores would hold it up.
    """
    programs = [
        Program(name="web", command=web_command(web_port), stop_within_s=15),
        Program(name="worker", command=_celery("worker", "-Q", "console", "-P", "threads", "-c", "4")),
        Program(
            name="relay-worker",
            command=_celery("worker", "-Q", "relay", "-P", "threads", "-c", "2", "--prefetch-multiplier", "1"),
        ),
        Program(name="beat", command=_celery("beat", "--schedule", str(beat_file), "--pidfile=")),
        *(Program(name=f"consumer-{group}", command=manage("consume", group), stop_within_s=25) for group in groups),
    ]
    if demo:
        programs.append(Program(name="demo", command=manage("demo", "--run")))
    return [replace(program, starts=program.name == "web") for program in programs]


def manage(*args: str) -> list[str]:
    """The command line of a management command of this checkout."""
    return [sys.executable, str(BASE_DIR / "manage.py"), *args]


def web_command(port: int) -> list[str]:
    """The ASGI server, on loopback."""
    return [
        *(sys.executable, "-m", "uvicorn", "console.asgi:application", "--host", "127.0.0.1", "--port", str(port)),
        *("--no-access-log", "--no-server-header", "--timeout-graceful-shutdown", "5"),
    ]


def _celery(*args: str) -> list[str]:
    command = [sys.executable, "-m", "celery", "-A", "console", *args, "--loglevel", "INFO"]
    return [*command, "--without-gossip", "--without-mingle"] if args[0] == "worker" else command
