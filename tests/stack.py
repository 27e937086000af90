"""The test run's own stack: started once by the pytest controller, stopped at its end.

`python -m tests.stack keep` starts one that stays (Ctrl-C or `kill` ends it); test runs find it by
`.signalbox/test-stack.json` and leave it alone. For people who run the tests often.
"""

import json
import os
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
KEPT = ROOT / ".signalbox" / "test-stack.json"


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
            args, stdout=log, stderr=log, stdin=subprocess.DEVNULL, user=user, cwd="/", start_new_session=True
        )

    def stop_one(self, name, how=None):
        process = self.running.pop(name)
        process.send_signal(how or (signal.SIGINT if name == "postgres" else signal.SIGTERM))
        process.wait(timeout=60)

    def stop(self):
        for name in list(self.running):
            self.stop_one(name, signal.SIGKILL if name == "kafka" else None)


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
    # Beside the checkout's data, not in /tmp: PostgreSQL's other user must reach it.
    base = ROOT / ".signalbox"
    base.mkdir(exist_ok=True)
    _started = ServiceStack(Path(tempfile.mkdtemp(prefix="test-", dir=base)))
    _started.data.chmod(0o755)
    return {**_started.start().env, "SIGNALBOX_TEST_STACK": "started"}


def stop_services():
    if _started is not None:
        _started.stop()
        shutil.rmtree(_started.data, ignore_errors=True)


def _keep():
    stack = ServiceStack(ROOT / ".signalbox" / "test-kept")
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
