"""The test run's own stack: started once by the pytest controller, stopped at its end.

`python -m tests.stack keep` starts one that stays (Ctrl-C or `kill` ends it); test runs find it by
`.signalbox/test-stack.json` and leave it alone. For people who run the tests often.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from console.stack import kafka, postgres, valkey
from console.stack.ports import choose_ports

ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / ".signalbox"
KEPT = BASE / "test-stack.json"
PR_SET_PDEATHSIG = 1
# Kafka's own shutdown takes long, and nobody wants its data again; PostgreSQL's is the fast one.
STOP_SIGNALS = {"postgres": signal.SIGINT, "valkey": signal.SIGTERM, "kafka": signal.SIGKILL}


def ended_with_parent(how):
    """A `preexec_fn`: the child gets the signal `how` when its parent ends in any way, even by kill -9 (on Linux)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, how)


def make_folder(purpose):
    """A folder beside the checkout's data, not in /tmp: PostgreSQL's other user must reach it."""
    BASE.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"test-{os.getpid()}-{purpose}-", dir=BASE))
    folder.chmod(0o755)
    return folder


def remove_old_folders():
    """Delete what killed runs left."""
    for folder in BASE.glob("test-*-*"):
        owner = re.match(r"test-(\d+)-", folder.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class ServiceStack:
    """PostgreSQL, Valkey and Kafka as child processes under one data folder; `start()` and `stop()` each of them."""

    data: Path
    env: dict[str, str] = field(default_factory=dict)
    running: dict[str, subprocess.Popen] = field(default_factory=dict)

    def __post_init__(self):
        self.data.mkdir(parents=True, exist_ok=True)
        self.ports = choose_ports(self.data / "ports.json", prefer=False)

    def start(self):
        self.start_postgres()
        self.start_valkey()
        self.start_kafka()
        self.env["DATABASE_URL"] = self.env["DATABASE_DIRECT_URL"] = postgres.ensure_database(
            self.ports["postgres"], self.password
        )
        self.env["VALKEY_URL"] = valkey.url(self.ports["valkey"])
        self.env["KAFKA_BOOTSTRAP_SERVERS"] = f"127.0.0.1:{self.ports['kafka']}"
        return self

    def start_postgres(self):
        self.password = postgres.prepare(self.data / "postgres")
        self._spawn(
            "postgres",
            postgres.command(self.data / "postgres", self.ports["postgres"], postgres.TEST_SETTINGS),
            user=postgres.system_user(),
        )
        postgres.wait_ready(self.ports["postgres"], self.password)

    def start_valkey(self):
        self._spawn("valkey", valkey.command(self.data / "valkey", self.ports["valkey"]))
        valkey.wait_ready(self.ports["valkey"])

    def start_kafka(self):
        config = kafka.prepare(self.data / "kafka", self.ports["kafka"], self.ports["controller"])
        self._spawn("kafka", kafka.command(config))
        kafka.wait_ready(self.ports["kafka"])

    def _spawn(self, name, args, user=None):
        log = (self.data / f"{name}.log").open("ab")
        self.running[name] = subprocess.Popen(
            args,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            user=user,
            cwd="/",
            start_new_session=True,
            preexec_fn=ended_with_parent(STOP_SIGNALS[name]),  # noqa: PLW1509 - one prctl call, no lock
        )
        log.close()

    def stop_one(self, name, how=None):
        process = self.running.pop(name)
        process.send_signal(how or STOP_SIGNALS[name])
        process.wait(timeout=60)

    def stop(self):
        for name in list(self.running):
            self.stop_one(name)


_started = None


def ensure_services():
    """Return the environment of the run's stack; start one when there is none (once: workers inherit the answer)."""
    global _started  # noqa: PLW0603 - one run, one stack
    if "SIGNALBOX_TEST_STACK" in os.environ:
        return {}
    if KEPT.is_file():
        kept = json.loads(KEPT.read_text())
        if Path(f"/proc/{kept['pid']}").exists():
            return {**kept["env"], "SIGNALBOX_TEST_STACK": "kept"}
        KEPT.unlink()
    remove_old_folders()
    _started = ServiceStack(make_folder("run"))
    return {**_started.start().env, "SIGNALBOX_TEST_STACK": "started"}


def stop_services():
    if _started is not None:
        _started.stop()
        shutil.rmtree(_started.data, ignore_errors=True)


def _keep():
    stack = ServiceStack(BASE / "test-kept")
    stack.start()
    KEPT.write_text(json.dumps({"pid": os.getpid(), "env": stack.env}))
    print(f"the stack stays until this process ({os.getpid()}) ends")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        KEPT.unlink(missing_ok=True)
        stack.stop()


if __name__ == "__main__":
    _keep()
