import json
import os
import socket
import stat
import subprocess
import sys
import time

import psutil
import pytest

from console.stack import kafka
from console.stack.data_dir import MAX_SOCKET_PATH_BYTES, open_data_dir, take_lock
from console.stack.errors import StackError
from console.stack.leftovers import MARK, end_leftovers, find_processes
from console.stack.ports import PortHolds, choose_ports, is_listening
from console.stack.private import write_private
from console.stack.programs import Program
from console.stack.supervisor import ProgramState, write_app
from console.stack.watch import Watch


@pytest.fixture
def no_programs(monkeypatch, tmp_path):
    """A machine without Java, Maven and apt, whose jars were never fetched."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SIGNALBOX_TOOLS_DIR", str(tmp_path / "tools"))
    return tmp_path


def test_without_java_and_maven_the_text_says_what_to_install_and_the_way_round(no_programs, monkeypatch):
    monkeypatch.setattr(kafka, "geteuid", lambda: 1000)
    with pytest.raises(StackError, match=r"sudo apt-get install default-jre-headless maven.*KAFKA_BOOTSTRAP_SERVERS"):
        kafka.ensure_programs()


def test_as_root_on_debian_what_is_missing_is_installed(no_programs, monkeypatch):
    monkeypatch.setattr(kafka, "geteuid", lambda: 0)
    installs = (
        f'echo "$@" >> {no_programs}/said',
        f"echo '#!/bin/sh' | /usr/bin/tee {no_programs}/java {no_programs}/mvn",
        f"echo 'echo version \\\"17.0.1\\\" >&2' >> {no_programs}/java",
        f"/bin/chmod +x {no_programs}/java {no_programs}/mvn",
    )
    script(no_programs / "apt-get", "\n".join(installs))
    kafka.ensure_programs()
    assert "install -y -qq --no-install-recommends default-jre-headless maven" in (no_programs / "said").read_text()


def test_an_install_that_fails_says_so(no_programs, monkeypatch):
    monkeypatch.setattr(kafka, "geteuid", lambda: 0)
    script(no_programs / "apt-get", "echo no network >&2; exit 100")
    with pytest.raises(StackError, match="no network"):
        kafka.ensure_programs()


def test_java_11_is_too_old(no_programs, monkeypatch):
    monkeypatch.setattr(kafka, "geteuid", lambda: 1000)
    script(no_programs / "java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    with pytest.raises(StackError, match="version 17 or later"):
        kafka.ensure_programs()


def test_a_maven_that_fails_leaves_no_half_fetched_jars(no_programs):
    script(no_programs / "mvn", "echo cannot resolve; exit 1")
    with pytest.raises(StackError, match="cannot resolve"):
        kafka.ensure_jars()
    assert list((no_programs / "tools").iterdir()) == []


def test_kafkas_properties_keep_any_path(tmp_path):
    assert kafka._property("/a b/ü\\c") == "/a b/\\u00fc\\u005cc"


def test_a_data_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StackError, match=r"cannot be written.*--data-dir"):
        open_data_dir(tmp_path / "file" / "data")


@pytest.mark.parametrize("bad", [",", ":", ";", "%"])
def test_a_path_that_a_program_of_the_stack_cannot_take_is_refused(tmp_path, bad):
    with pytest.raises(StackError, match=f"has {bad} in its path"):
        open_data_dir(tmp_path / f"a{bad}b")


def test_a_full_disk_is_told_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("console.stack.data_dir.MIN_FREE_BYTES", 2**60)
    with pytest.raises(StackError, match="MiB left"):
        open_data_dir(tmp_path)


def test_a_second_up_on_a_folder_is_refused_and_told_whose_it_is(tmp_path):
    data = open_data_dir(tmp_path)
    with take_lock(data), pytest.raises(StackError, match=f"already runs on .*process {os.getpid()}"):
        take_lock(data)
    take_lock(data).close()


def test_the_socket_of_a_long_path_is_short_and_nobody_elses(tmp_path):
    data = open_data_dir(tmp_path / ("long name " * 12))
    assert len(os.fsencode(data.socket)) <= MAX_SOCKET_PATH_BYTES
    data.make_socket_folder()
    assert stat.S_IMODE(data.socket.parent.stat().st_mode) == 0o700
    data.socket.parent.rmdir()


def test_secrets_are_made_once_and_readable_by_their_owner_only(tmp_path):
    data = open_data_dir(tmp_path)
    first = data.secret("SECRET_KEY")
    assert open_data_dir(tmp_path).secret("SECRET_KEY") == first != data.secret("OTHER")
    assert stat.S_IMODE((tmp_path / "secrets.json").stat().st_mode) == 0o600


def test_a_stack_env_gives_back_what_was_written(tmp_path):
    import environs

    data = open_data_dir(tmp_path)
    value = 'it\'s "50%" of a\\b #c $d'
    data.write_stack_env({"STACK_TEST_VALUE": value})
    env = environs.Env()
    env.read_env(str(data.stack_env), recurse=False)
    assert env.str("STACK_TEST_VALUE") == value


def test_a_private_file_is_replaced_in_one_step(tmp_path):
    file = tmp_path / "f"
    write_private(file, "one")
    write_private(file, "two")
    assert file.read_text() == "two"
    assert list(tmp_path.iterdir()) == [file]


def test_ports_are_kept_and_a_taken_one_is_chosen_anew(tmp_path):
    file = tmp_path / "ports.json"
    first = choose_ports(file, prefer=False)
    assert choose_ports(file, prefer=False) == first
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first["kafka"]))
        second = choose_ports(file, prefer=False)
    assert second["kafka"] != first["kafka"]
    assert second["web"] == first["web"]
    assert json.loads(file.read_text()) == second


def test_two_stacks_that_start_at_the_same_time_choose_different_ports(tmp_path):
    holds, again = PortHolds(), PortHolds()
    first = choose_ports(tmp_path / "one.json", holds=holds)
    second = choose_ports(tmp_path / "two.json", holds=again)
    assert set(first.values()).isdisjoint(second.values())
    assert len(set(second.values())) == len(second)
    again.drop()
    holds.drop()
    assert choose_ports(tmp_path / "one.json", holds=holds) == first
    holds.drop()


def test_a_port_that_somebody_else_answers_is_not_ours():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_listening(os.getpid(), port)
        child = sleeper("x", "child")
        assert not is_listening(child.pid, port)
        child.kill()
        child.wait()
        assert not is_listening(2**22 + 1, port)


def test_supervisor_reads_back_commands_with_spaces_quotes_and_percent_signs(tmp_path):
    from supervisor.options import ServerOptions

    data = open_data_dir(tmp_path / "half of it's mine")
    command = [sys.executable, "-c", "print('a %s b')", str(data.root)]
    write_app(data, [Program(name="one", command=command)])
    file = data.root / "supervisor.conf"
    file.write_text("[supervisord]\n[include]\nfiles=supervisor-app.con[f]\n")
    options = ServerOptions()
    options.realize(["-c", str(file)])
    (group,) = options.process_group_configs
    (program,) = group.process_configs
    import shlex

    assert shlex.split(program.command) == command
    assert program.stdout_logfile == str(data.logs / "one.log")


def test_what_a_killed_up_left_is_ended_and_nobody_else(tmp_path):
    data, other = open_data_dir(tmp_path / "a"), open_data_dir(tmp_path / "b")
    ours = sleeper(data.mark, "web")
    stubborn = sleeper(data.mark, "worker", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    theirs = sleeper(other.mark, "web")
    try:
        wait_for(lambda: len(find_processes(data.mark)) == 2)
        assert end_leftovers(data.mark, hurry=lambda: True) == ["web", "worker"]
        ours.wait(5)
        stubborn.wait(5)
        assert theirs.poll() is None
    finally:
        for process in (ours, stubborn, theirs):
            process.kill()
            process.wait()


def test_a_restart_is_told_once_whatever_states_lie_between():
    watch = Watch()
    looks = [("RUNNING", 1), ("EXITED", 0), ("STARTING", 2), ("RUNNING", 2), ("RUNNING", 2)]
    told = [watch.compare([state(word, pid)]) for word, pid in looks]
    assert told == [{}, {}, {}, {"web": "died and was started again; its process is now 2"}, {}]


def test_a_program_that_does_not_stay_up_is_told_once():
    watch = Watch()
    looks = [("STARTING", 1), ("BACKOFF", 0), ("STARTING", 2), ("BACKOFF", 0), ("FATAL", 0)]
    assert sum(bool(watch.compare([state(word, pid)])) for word, pid in looks) == 1


def test_the_supervisor_goes_down_with_its_parent(tmp_path):
    data = open_data_dir(tmp_path)
    config = tmp_path / "s.conf"
    config.write_text(f"[supervisord]\nnodaemon=true\nlogfile={tmp_path}/s.log\npidfile={tmp_path}/s.pid\n")
    code = (
        "import subprocess, sys, time;"
        f"subprocess.Popen([sys.executable, '-m', 'console.stack.supervise', {str(config)!r}]); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, MARK: data.mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    wait_for((tmp_path / "s.pid").is_file)
    child = psutil.Process(int((tmp_path / "s.pid").read_text()))
    parent.kill()
    parent.wait()
    child.wait(timeout=15)


def state(word, pid):
    return ProgramState(name="web", group="app", state=word, pid=pid)


def script(file, body):
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


def sleeper(mark, name, first="pass"):
    code = f"{first}\nimport time\ntime.sleep(60)"
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, MARK: mark, "SIGNALBOX_PROCESS": name})


def wait_for(condition, within_s=15):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
