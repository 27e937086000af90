"""A run of the tests leaves neither processes nor folders, however it ends."""

import os
import subprocess
import sys

import psutil

from tests import stack
from tests.app import wait_until

STARTS_A_SERVICE = """
import signal, subprocess, time
from tests.stack import ended_with_parent
service = subprocess.Popen(["sleep", "600"], start_new_session=True, preexec_fn=ended_with_parent(signal.SIGKILL))
print(service.pid, flush=True)
time.sleep(600)
"""


def test_what_a_run_started_ends_when_the_run_is_killed():
    run = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_SERVICE], cwd=stack.ROOT, stdout=subprocess.PIPE, env={**os.environ}
    )
    with run:
        service = psutil.Process(int(run.stdout.readline()))
        run.kill()
    wait_until(
        lambda: not service.is_running() or service.status() == psutil.STATUS_ZOMBIE, within_s=30, what="it ends"
    )


def test_folders_of_killed_runs_are_deleted_and_those_of_living_ones_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "BASE", tmp_path)
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / f"test-{ended.pid}-run-abc" / "postgres").mkdir(parents=True)
    (tmp_path / "test-kept").mkdir()
    mine = stack.make_folder("run")
    stack.remove_old_folders()
    assert {path.name for path in tmp_path.iterdir()} == {mine.name, "test-kept"}
