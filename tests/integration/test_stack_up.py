"""`manage.py up` as a person runs it, on a folder and ports of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg
import pytest

from console.stack.data_dir import open_data_dir
from console.stack.leftovers import find_processes
from console.stack.page import is_page_ready
from console.stack.ports import choose_ports, is_free
from tests.stack import ended_with_parent, make_folder

pytestmark = [pytest.mark.own_stack, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
START_WITHIN_S = 240
STOP_WITHIN_S = 110
PATIENCE_S = 180  # eight Python processes start on two cores that other tests use too
SERVICES = {"postgres", "valkey", "kafka"}
PROGRAMS = {"web", "worker", "relay-worker", "beat", "demo"}


class Up:
    """A running `manage.py up`; its output is in a file, so that nothing blocks on a pipe."""

    def __init__(self, folder, log):
        self.data = open_data_dir(folder)
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--data-dir", str(folder)],
                cwd=ROOT,
                env=outside_env(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ended_with_parent(signal.SIGINT),  # noqa: PLW1509 - one prctl call, no lock
            )

    def output(self):
        return self._log.read_text(errors="replace")

    def wait_for_page(self):
        wait_for(lambda: "Ctrl-C stops everything" in self.output() or self.process.poll() is not None, START_WITHIN_S)
        assert self.process.poll() is None, self.output()
        return int(re.search(r"http://127\.0\.0\.1:(\d+)/", self.output())[1])

    def named(self):
        return {name: process for process, name in find_processes(self.data.mark).items()}

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_WITHIN_S)


@pytest.fixture
def folder():
    """A folder with a space in its name, on ports that are free now; whatever is left in it is killed at the end."""
    base = make_folder("up test")
    choose_ports(base / "ports.json", prefer=False)
    yield base
    for process in find_processes(open_data_dir(base).mark):
        process.kill()
    shutil.rmtree(base, ignore_errors=True)


def test_up_starts_restarts_resumes_and_leaves_nothing_behind(folder, tmp_path):
    up = Up(folder, tmp_path / "first.log")
    port = up.wait_for_page()
    assert is_page_ready(port)
    wait_for(lambda: set(up.named()) >= (SERVICES | PROGRAMS), PATIENCE_S)
    assert any(name.startswith("consumer-") for name in up.named())
    only_loopback_listens(up)

    a_second_up_is_refused(folder, tmp_path, up)
    a_killed_program_is_restarted_and_the_crash_is_recorded(up)

    logins = json.loads((folder / "logins.json").read_text())
    assert set(logins) == {"viewer", "oncall", "support", "admin"}
    assert all(password in up.output() for password in logins.values())
    assert up.interrupt() == 0
    nothing_is_left(up)

    # -- again: the same page, the same data; then `up` is killed, and what it left goes down by itself or is ended
    again = Up(folder, tmp_path / "second.log")
    assert again.wait_for_page() == port
    assert json.loads((folder / "logins.json").read_text()) == logins
    assert crashes_of(folder, "worker") == 1
    wait_for(lambda: set(again.named()) >= PROGRAMS, PATIENCE_S)
    again.process.kill()
    again.process.wait()
    wait_for(lambda: not find_processes(again.data.mark), STOP_WITHIN_S)
    nothing_is_left(again)


def a_second_up_is_refused(folder, tmp_path, up):
    second = Up(folder, tmp_path / "refused.log")
    assert second.process.wait(PATIENCE_S) == 1
    assert f"already runs on {folder}" in second.output()
    assert str(up.process.pid) in second.output()


def a_killed_program_is_restarted_and_the_crash_is_recorded(up):
    folder = up.data.root
    wait_for(lambda: heartbeat_pid(folder, "worker") == up.named()["worker"].pid, PATIENCE_S)
    killed = up.named()["worker"]
    killed.kill()
    wait_for(lambda: crashes_of(folder, "worker") == 1, PATIENCE_S)
    assert heartbeat_pid(folder, "worker") != killed.pid
    wait_for(lambda: "worker died and was started again" in up.output(), PATIENCE_S)


def only_loopback_listens(up):
    listening = set()
    for process in (*up.named().values(), *find_processes(up.data.mark)):
        listening |= {c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


def nothing_is_left(up):
    assert find_processes(up.data.mark) == {}
    ports = json.loads((up.data.root / "ports.json").read_text())
    assert [name for name, port in ports.items() if not is_free(port)] == []
    assert not up.data.socket.exists()


def heartbeat_pid(folder, name):
    rows = query(folder, "SELECT pid FROM relay_process WHERE name = %s", name)
    return rows[0][0] if rows else None


def crashes_of(folder, name):
    rows = query(folder, "SELECT crashes FROM relay_process WHERE name = %s", name)
    return rows[0][0] if rows else None


def query(folder, sql, *values):
    url = re.search(r"^DATABASE_URL='([^']+)'", (folder / "stack.env").read_text(), re.MULTILINE)[1]
    with psycopg.connect(url) as connection:
        return connection.execute(sql, values).fetchall()


def outside_env():
    """The environment of a person who set nothing: none of what the test run itself set."""
    own = ("DATABASE", "VALKEY", "KAFKA", "SIGNALBOX", "SECRET_KEY", "DJANGO", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    tools = os.environ.get("SIGNALBOX_TOOLS_DIR")
    return {**kept, **({"SIGNALBOX_TOOLS_DIR": tools} if tools else {})}


def wait_for(condition, within_s):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.5)
