"""The relay beside outbox relays of others: same server, same broker, same payloads, same run.

The peers live in a virtual environment of their own under `.signalbox/`, made once per requirements file. One that
cannot be installed or run is reported with its error.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from bench.parts.plan import Plan
from bench.parts.rates import rate_of_one
from bench.parts.report import Report
from bench.parts.services import BenchError, World
from console.stack.programs import BASE_DIR

FOLDER = Path(__file__).resolve().parent.parent / "peers"
REQUIREMENTS = FOLDER / "requirements.txt"
INSTALL_WITHIN_S = 300
LOAD_WITHIN_S = 60
FIRST_WITHIN_S = 20
LOOK_EVERY_S = 0.02
PEERS = (
    ("row_by_row", "a row-by-row poller of our own", 10),
    ("django_outbox_peer", "django-outbox-pattern 3.2.1 (its loop, Kafka in place of STOMP)", 10),
    ("txoutbox_peer", "txoutbox 0.2.2", 10),
    ("faststream_peer", "faststream-outbox 0.19.0", 10),
    ("walbox_peer", "walbox 1.0.0 (CDC, 100 rows a transaction)", 4),
)


def measure_peers(world: World, plan: Plan, report: Report) -> None:
    """How many times faster one relay process is than each peer."""
    try:
        interpreter = ensure_environment(report)
    except BenchError as error:
        for _, words, bar in PEERS:
            report.missing(f"one relay process : {words}", f">= {bar}", str(error))
        return
    database = world.make_database("peers")
    ours = rate_of_one(world, plan)
    for name, words, bar in PEERS:
        what = f"one relay process : {words}"
        try:
            rate, count = _rate_of(world, plan, interpreter, database, name)
        except BenchError as error:
            report.missing(what, f">= {bar}", str(error))
            continue
        report.at_least(
            what, ours / rate, bar, unit="times", detail=f"{ours:,.0f} and {rate:,.0f} rows/s ({count:,} rows)"
        )


def _rate_of(world: World, plan: Plan, interpreter: str, database: str, name: str) -> tuple[float, int]:
    topic = world.make_topic(name.replace("_", "-"))
    command = [interpreter, str(FOLDER / f"{name}.py"), world.url, database, world.bootstrap, topic]
    log = world.folder / f"{name}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, str(plan.peer_rows)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "PYTHON"))},
        )
    kill = threading.Timer(LOAD_WITHIN_S, process.kill)
    kill.start()
    try:
        if process.stdout.readline() != b"loaded\n":
            raise BenchError(f"it did not start: {log.read_text(errors='replace')[-600:].strip()}")
        kill.cancel()
        return _count(world, plan, topic, log)
    finally:
        kill.cancel()
        process.kill()
        process.wait()


def _count(world: World, plan: Plan, topic: str, log: Path) -> tuple[float, int]:
    """From its first record on, so that its start does not count against it."""
    deadline = time.monotonic() + FIRST_WITHIN_S
    while not world.count_records(topic):
        if time.monotonic() > deadline:
            raise BenchError(f"no record in {FIRST_WITHIN_S} s: {log.read_text(errors='replace')[-600:].strip()}")
        time.sleep(LOOK_EVERY_S)
    began, first = time.monotonic(), world.count_records(topic)
    count, now = first, began
    while count < plan.peer_rows and now - began < plan.peer_s:
        time.sleep(LOOK_EVERY_S)
        count, now = world.count_records(topic), time.monotonic()
    if count <= first:
        raise BenchError(f"it stopped after {first:,} records: {log.read_text(errors='replace')[-600:].strip()}")
    return (count - first) / (now - began), count


def ensure_environment(report: Report) -> str:
    """The interpreter of the peers' environment; made when it is not there.

    Raises:
        BenchError: the packages could not be installed; the text has the installer's words.
    """
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:8]
    folder = BASE_DIR / ".signalbox" / f"bench-peers-{digest}"
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return str(python)
    report.note("Installing the peers into an environment of their own (once)")
    shutil.rmtree(folder, ignore_errors=True)
    uv = Path(sys.executable).with_name("uv")
    _run([_newest_python(), "-m", "venv", str(folder)])
    install = [str(uv), "pip", "install", "-q", "--python", str(python)] if uv.exists() else [
        str(python), "-m", "pip", "install", "-q"
    ]  # fmt: skip
    _run([*install, "-r", str(REQUIREMENTS)])
    (folder / "ready").touch()
    return str(python)


def _newest_python() -> str:
    """A Python 3.13 or later when the machine has one (walbox needs it), else this one."""
    found = [shutil.which(f"python3.{minor}") for minor in (14, 13)]
    found += sorted((str(p) for p in Path.home().glob(".pyenv/versions/3.1[34]*/bin/python3")), reverse=True)
    for python in filter(None, [os.environ.get("BENCH_PEERS_PYTHON"), *found]):
        with suppress(OSError):
            if subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
                return python
    return sys.executable


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_WITHIN_S)
    if done.returncode:
        raise BenchError(f"the peers could not be installed: {(done.stdout + done.stderr)[-800:].strip()}")
