"""One embedded stack from start to stop: services, set-up, programs, watch. `manage.py up` is its command line."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from console.stack import kafka, postgres, valkey
from console.stack.data_dir import DataDir
from console.stack.errors import StackError
from console.stack.leftovers import MARK, end_leftovers
from console.stack.page import is_page_ready
from console.stack.ports import PortHolds, choose_ports, is_free, is_listening
from console.stack.programs import (
    APP_GROUP,
    BASE_DIR,
    Program,
    app_programs,
    kafka_program,
    manage,
    postgres_program,
    valkey_program,
)
from console.stack.progress import Progress
from console.stack.supervisor import (
    ProgramState,
    SupervisorClient,
    start_supervisor,
    write_app,
    write_services,
)
from console.stack.watch import Watch

READY_WITHIN_S = 120
PAGE_WITHIN_S = 60
LOOK_EVERY_S = 0.1
WATCH_EVERY_S = 1.0
START_AGAIN_AFTER_S = 30
STOP_WITHIN_S = 100
LOG_TAIL_LINES = 12
# What replaces an embedded part, and what goes with it: kept for commands in other terminals.
OUTSIDE = (
    "DATABASE_URL",
    "DATABASE_DIRECT_URL",
    "VALKEY_URL",
    "KAFKA_BOOTSTRAP_SERVERS",
    "KAFKA_CLIENT_CONFIG",
    "KAFKA_REPLICATION_FACTOR",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run a stack. `outside` is the environment as the user set it; `web_port` None = kept or chosen."""

    outside: Mapping[str, str]
    demo: bool = True
    web_port: int | None = None
    prefer_ports: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """Something that becomes ready by itself; `ready()` raises `StackError` when it never will."""

    name: str
    ready: Callable[[], bool]


class Stack:
    """A stack on one data folder, whose lock the caller holds. Call `start()`, then `watch()`, always `stop()`."""

    def __init__(self, data: DataDir, options: Options, progress: Progress) -> None:
        self.data = data
        self._options = options
        self._progress = progress
        self._ports: dict[str, int] = {}
        self._holds = PortHolds()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._client = SupervisorClient(data.socket)
        self._env = {
            **options.outside,
            "DJANGO_SETTINGS_MODULE": "console.settings.run",
            "SIGNALBOX_DATA_DIR": str(data.root),
            "SIGNALBOX_DEMO": "1" if options.demo else "0",
            "PYTHONUNBUFFERED": "1",
            MARK: data.mark,
        }

    @property
    def url(self) -> str:
        """Where the console is."""
        return f"http://127.0.0.1:{self._ports['web']}/"

    def start(self) -> None:
        """Start everything; returns when the page answers.

        Raises:
            StackError: a part would not start; the text says which and why.
        """
        self._end_leftovers()
        self._choose_ports()
        config = write_services(self.data, self._services())
        self._supervisor = start_supervisor(config, self._env, self.data.logs / "supervisord.out")
        self._client.wait_until_up()
        static = self._spawn("static", "collectstatic", "--noinput", "--verbosity", "0")
        self._write_env(self._database_env())
        setup = self._spawn("setup", "setup", "--demo-users", "--groups-to", str(self._groups_file))
        self._wait(
            [
                Step("Static files", lambda: self._has_ended(static, "static")),
                *self._service_steps(),
                Step("Database, roles and topics", lambda: self._has_ended(setup, "setup")),
            ]
        )
        self._start_programs()

    def watch(self) -> None:
        """Say what dies and restarts, and start again what supervisor gave up, until interrupted.

        Raises:
            StackError: supervisor itself ended.
        """
        watch = Watch()
        given_up: dict[str, float] = {}
        while True:
            states = self._states()
            for name, words in watch.compare(states).items():
                self._progress.event(f"{name} {words}. Its log: {self.data.logs / name}.log")
            for state in states:
                self._start_again(state, given_up)
            time.sleep(WATCH_EVERY_S)

    def stop(self, hurry: Callable[[], bool]) -> None:
        """Stop everything, programs before services; `hurry()` turning true kills what has not ended yet."""
        if self._supervisor is not None and self._supervisor.poll() is None:
            self._supervisor.terminate()
            _wait_for(self._supervisor, STOP_WITHIN_S, hurry)
        end_leftovers(self.data.mark, hurry=hurry)
        if self._supervisor is not None:
            self._supervisor.wait(timeout=STOP_WITHIN_S)
        self._holds.drop()

    # -- start -------------------------------------------------------------------------------------------
    def _end_leftovers(self) -> None:
        if ended := end_leftovers(self.data.mark):
            self._progress.done(f"Ended {len(ended)} left over from a run that was killed: {', '.join(ended)}")

    def _choose_ports(self) -> None:
        wanted = self._options.web_port
        if wanted is not None and not (self._holds.take(wanted) and is_free(wanted)):
            raise StackError(f"Port {wanted} is taken. Choose another one: manage.py up --port NUMBER.")
        file = self.data.root / "ports.json"
        self._ports = choose_ports(file, prefer=self._options.prefer_ports, web=wanted, holds=self._holds)

    def _services(self) -> list[Program]:
        programs: list[Program] = []
        if not self._is_outside("DATABASE_URL"):
            postgres.prepare(self.data.root / "postgres")
            programs.append(postgres_program(self.data.root / "postgres", self._ports["postgres"]))
        if not self._is_outside("VALKEY_URL"):
            programs.append(valkey_program(self.data.root / "valkey", self._ports["valkey"]))
        if not self._is_outside("KAFKA_BOOTSTRAP_SERVERS"):
            if not kafka.jars_dir().exists():
                self._progress.note("Fetching Apache Kafka with Maven (once; about 120 MB)")
            config = kafka.prepare(self.data.root / "kafka", self._ports["kafka"], self._ports["controller"])
            programs.append(kafka_program(config))
        return programs

    def _service_steps(self) -> list[Step]:
        steps: list[Step] = []
        if not self._is_outside("VALKEY_URL"):
            steps.append(Step("Valkey", lambda: self._is_up("valkey", valkey.is_ready)))
        if not self._is_outside("KAFKA_BOOTSTRAP_SERVERS"):
            steps.append(Step(f"Kafka {kafka.kafka_version()}", lambda: self._is_up("kafka", kafka.is_ready)))
        return steps

    def _database_env(self) -> dict[str, str]:
        if self._is_outside("DATABASE_URL"):
            return {}
        password = postgres.prepare(self.data.root / "postgres")
        self._wait(
            [
                Step(
                    f"PostgreSQL {postgres.major_version()}",
                    lambda: self._is_up("postgres", lambda port: postgres.is_ready(port, password)),
                )
            ]
        )
        url = postgres.ensure_database(self._ports["postgres"], password)
        return {"DATABASE_URL": url, "DATABASE_DIRECT_URL": url}

    def _write_env(self, database: Mapping[str, str]) -> None:
        self.data.write_stack_env(
            {
                "SECRET_KEY": self.data.secret("SECRET_KEY"),
                "SIGNALBOX_KEY_LABEL_SECRET": self.data.secret("SIGNALBOX_KEY_LABEL_SECRET"),
                "SIGNALBOX_DEMO": self._env["SIGNALBOX_DEMO"],
                **database,
                "VALKEY_URL": valkey.url(self._ports["valkey"]),
                "KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{self._ports['kafka']}",
                **{name: self._env[name] for name in OUTSIDE if self._is_outside(name)},
            }
        )

    def _start_programs(self) -> None:
        groups = json.loads(self._groups_file.read_text())
        programs = app_programs(
            web_port=self._ports["web"],
            beat_file=self.data.root / "beat-schedule",
            groups=groups,
            demo=self._options.demo,
        )
        write_app(self.data, programs)
        self._client.start_app()
        self._wait([Step("Page", lambda: self._is_up("web", is_page_ready))], within_s=PAGE_WITHIN_S)
        self._client.start_rest()

    def _wait(self, steps: Sequence[Step], within_s: float = READY_WITHIN_S) -> None:
        deadline = time.monotonic() + within_s
        waiting = list(steps)
        while waiting:
            for step in [step for step in waiting if step.ready()]:
                self._progress.ready(step.name)
                waiting.remove(step)
            self._check_alive()
            if waiting and time.monotonic() > deadline:
                names = ", ".join(step.name for step in waiting)
                raise StackError(f"Not ready within {within_s:g} s: {names}. Look into {self.data.logs}.")
            time.sleep(LOOK_EVERY_S)

    def _is_up(self, name: str, answers: Callable[[int], bool]) -> bool:
        """Tell whether a program answers on its port, and that it is ours.

        Raises:
            StackError: somebody else's answers there; to go on would be to work on their data.
        """
        port = self._ports[name]
        if not answers(port):
            return False
        if any(is_listening(state.pid, port) for state in self._states() if state.name == name):
            return True
        raise StackError(
            f"Port {port}, which {name} was to listen on, was taken by another program in the meantime. "
            "Start again: another port is chosen."
        )

    def _check_alive(self) -> None:
        """A service or a page that cannot start ends the start; any other program may come up later."""
        for state in self._states():
            if state.state == "FATAL" and (state.group != APP_GROUP or state.name == "web"):
                raise StackError(f"{state.name} does not start. {self._tail(state.name)}")

    def _has_ended(self, process: subprocess.Popen[bytes], log: str) -> bool:
        if (code := process.poll()) is None:
            return False
        if code != 0:
            raise StackError(f"`manage.py {log}` failed. {self._tail(log)}")
        return True

    def _spawn(self, log: str, *args: str) -> subprocess.Popen[bytes]:
        with (self.data.logs / f"{log}.log").open("wb") as output:
            return subprocess.Popen(
                manage(*args),
                cwd=BASE_DIR,
                env={**self._env, "SIGNALBOX_PROCESS": log},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    # -- watch -------------------------------------------------------------------------------------------
    def _states(self) -> list[ProgramState]:
        try:
            return self._client.list_states()
        except ConnectionError as error:
            if self._supervisor is not None and self._supervisor.poll() is None:
                return []
            raise StackError(
                f"supervisord ended, so nothing restarts what dies. {self._tail('supervisord')}"
            ) from error

    def _start_again(self, state: ProgramState, given_up: dict[str, float]) -> None:
        """Supervisor gives up after a few quick deaths; the stack does not."""
        if state.state != "FATAL":
            given_up.pop(state.name, None)
            return
        since = given_up.setdefault(state.name, time.monotonic())
        if time.monotonic() - since >= START_AGAIN_AFTER_S:
            del given_up[state.name]
            self._client.start(state)

    # -- shared ------------------------------------------------------------------------------------------
    @property
    def _groups_file(self) -> Path:
        return self.data.root / "groups.json"

    def _is_outside(self, name: str) -> bool:
        return bool(self._options.outside.get(name))

    def _tail(self, log: str, lines: int = LOG_TAIL_LINES) -> str:
        file = self.data.logs / f"{log}.log"
        if not file.is_file():
            return f"It wrote no log {file}."
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - 4096))
            last = stream.read().decode("utf-8", "replace").splitlines()[-lines:]
        return f"The end of {file}:\n  " + "\n  ".join(last)


def _wait_for(process: subprocess.Popen[bytes], within_s: float, hurry: Callable[[], bool]) -> None:
    deadline = time.monotonic() + within_s
    while process.poll() is None and time.monotonic() < deadline and not hurry():
        time.sleep(LOOK_EVERY_S)
