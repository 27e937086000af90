"""What asks group coordinators dies beside the process that asked, and not with it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.conf import settings

from relay.errors import AsideDied
from relay.kafka.aside import run_aside

ASK_AND_WAIT = """
import os, time, django
django.setup()
from relay.kafka.aside import run_aside
if __name__ == "__main__":
    print(run_aside(os.getpid), flush=True)
    time.sleep(600)
"""


def read_setting(name):
    return getattr(settings, name)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_runs_in_another_process_and_in_the_same_one_each_time():
    first = run_aside(os.getpid)
    assert first != os.getpid()
    assert run_aside(os.getpid) == first


def test_an_abort_there_is_an_error_here_and_the_next_question_is_answered():
    before = run_aside(os.getpid)
    with pytest.raises(AsideDied, match="ask again"):
        run_aside(os.abort)
    assert run_aside(os.getpid) != before


def test_silence_ends_with_the_bound(settings):
    settings.KAFKA_ASIDE_WITHIN_S = 0.2
    with pytest.raises(AsideDied, match="within"):
        run_aside(time.sleep, 5)
    settings.KAFKA_ASIDE_WITHIN_S = 60
    assert run_aside(int, "7") == 7


def test_an_error_there_is_the_same_error_here():
    with pytest.raises(ValueError, match="invalid literal"):
        run_aside(int, "seven")


def test_it_has_the_settings_of_this_process(settings):
    settings.LAG_REQUEST_TIMEOUT_S = 1.25
    assert run_aside(read_setting, "LAG_REQUEST_TIMEOUT_S") == 1.25


def test_it_ends_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(ASK_AND_WAIT)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=env, text=True) as parent:
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
    deadline = time.monotonic() + 30
    while is_alive(child):
        assert time.monotonic() < deadline, "the process outlived its parent"
        time.sleep(0.05)
