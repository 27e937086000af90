"""supervisor: its configuration, its process, and the few calls that `up` makes to it over a Unix socket."""

import os
import shlex
import subprocess
import sys
import xmlrpc.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from supervisor.xmlrpc import SupervisorTransport

from console.stack.data_dir import DataDir
from console.stack.leftovers import SUPERVISOR
from console.stack.programs import APP_GROUP, BASE_DIR, Program
from console.stack.waiting import wait_until

LOG_MAX = "10MB"
LOG_BACKUPS = 2
START_WITHIN_S = 15
START_RETRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramState:
    """A program as supervisor sees it. `state` is supervisor's word."""

    name: str
    group: str
    state: str
    pid: int


def write_services(data: DataDir, programs: Sequence[Program]) -> Path:
    """Write the configuration with the services; the product's programs come later, by `write_app`."""
    data.make_socket_folder()
    app_file(data).unlink(missing_ok=True)
    main = [
        "[supervisord]",
        "nodaemon=true",
        f"logfile={_text(data.logs / 'supervisord.log')}",
        f"logfile_maxbytes={LOG_MAX}",
        f"logfile_backups={LOG_BACKUPS}",
        f"pidfile={_text(data.root / 'supervisord.pid')}",
        f"childlogdir={_text(data.logs)}",
        *(["user=root"] if os.geteuid() == 0 else []),
        "[unix_http_server]",
        f"file={_text(data.socket)}",
        "chmod=0600",
        "[rpcinterface:supervisor]",
        "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface",
        "[include]",
        "files=supervisor-app.con[f]",  # a pattern: none yet is fine
    ]
    file = data.root / "supervisor.conf"
    file.write_text("\n".join([*main, *(line for p in programs for line in _program(data, p))]) + "\n")
    return file


def write_app(data: DataDir, programs: Sequence[Program]) -> None:
    """Write the configuration of the product's programs, one group."""
    group = [f"[group:{APP_GROUP}]", f"programs={','.join(p.name for p in programs)}", "priority=900"]
    lines = [*(line for p in programs for line in _program(data, p)), *group]
    app_file(data).write_text("\n".join(lines) + "\n")


def app_file(data: DataDir) -> Path:
    """The part of the configuration that has the product's programs."""
    return data.root / "supervisor-app.conf"


def start_supervisor(config: Path, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start supervisor in a session of its own: a Ctrl-C in the terminal reaches `up` only."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "console.stack.supervise", str(config)],
            cwd=BASE_DIR,
            env={**env, "SIGNALBOX_PROCESS": SUPERVISOR},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


class SupervisorClient:
    """supervisor's calls. Each raises `ConnectionError` while it does not answer."""

    def __init__(self, socket: Path) -> None:
        self._url = f"unix://{socket}"

    def wait_until_up(self) -> None:
        """Wait until it answers; raises `StackError` after `START_WITHIN_S`."""
        wait_until(self._answers, within_s=START_WITHIN_S, what="supervisord")

    def list_states(self) -> list[ProgramState]:
        """Return every program's state."""
        return [_state(info) for info in self._call("getAllProcessInfo")]

    def start_app(self) -> None:
        """Read the configuration again and start those of the product's programs that do not wait."""
        self._call("reloadConfig")
        self._call("addProcessGroup", APP_GROUP)

    def start_rest(self) -> None:
        """Start the programs that waited."""
        self._call("startProcessGroup", APP_GROUP, False)

    def start(self, program: ProgramState) -> None:
        """Start one program that was given up."""
        self._call("startProcess", f"{program.group}:{program.name}", False)

    def _answers(self) -> bool:
        try:
            self._call("getState")
        except ConnectionError:
            return False
        return True

    def _call(self, method: str, *args: object) -> Any:
        transport = SupervisorTransport(None, None, self._url)
        try:
            with xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport) as proxy:
                return getattr(proxy.supervisor, method)(*args)
        except (OSError, HTTPException) as error:
            raise ConnectionError(f"supervisord does not answer: {error}") from error


def _state(info: Mapping[str, Any]) -> ProgramState:
    return ProgramState(
        name=info["name"],
        group=info["group"],
        state=info["statename"],
        pid=info["pid"],
    )


def _program(data: DataDir, program: Program) -> list[str]:
    return [
        f"[program:{program.name}]",
        f"command={_text(shlex.join(program.command))}",
        f"directory={_text(program.directory)}",
        f"priority={program.priority}",
        *([f"user={program.user}"] if program.user else []),
        f'environment=SIGNALBOX_PROCESS="{program.name}"',
        f"autostart={str(program.starts).lower()}",
        "autorestart=true",
        "startsecs=1",
        f"startretries={START_RETRIES}",
        f"stopsignal={program.stop_signal}",
        f"stopwaitsecs={program.stop_within_s}",
        "killasgroup=true",
        f"stdout_logfile={_text(data.logs / f'{program.name}.log')}",
        f"stdout_logfile_maxbytes={LOG_MAX}",
        f"stdout_logfile_backups={LOG_BACKUPS}",
        "redirect_stderr=true",
    ]


def _text(value: object) -> str:
    """Keep a value's percent signs: supervisor expands `%(name)s`."""
    return str(value).replace("%", "%%")
