"""A whole Signalbox for one test: its own database, topics and groups on the run's services, real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

import psycopg
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from console.stack.ports import choose_ports
from console.stack.programs import BASE_DIR, manage, web_command
from tests.stack import ended_with_parent

COMMAND_WITHIN_S = 90
STOP_WITHIN_S = 30
PAGE_WITHIN_S = 120
NAMED_BY_OWNER = re.compile(r"t(\d+)x[0-9a-f]{8}-")


def wait_until(condition: Callable[[], object], *, within_s: float, what: str) -> float:
    """Look until `condition()` holds; return the seconds that it took, fail with `what` after `within_s`."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + within_s, f"not within {within_s} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


class App:
    """Use as a context manager: makes the database and the topics, and leaves nothing behind."""

    def __init__(self, folder, *, valkey_db=3):
        self.folder = folder
        self.prefix = f"t{os.getpid()}x{uuid.uuid4().hex[:8]}-"
        self.database = f"app_{self.prefix[:-1]}"
        self.running: dict[str, subprocess.Popen] = {}
        self.wanted: dict[str, tuple[str, ...]] = {}
        self.port = choose_ports(folder / "ports.json", prefer=False)["web"]
        self._admin_url = os.environ["DATABASE_URL"]
        url = urlunsplit(urlsplit(self._admin_url)._replace(path=f"/{self.database}"))
        self.env = {
            **os.environ,
            "STARTING_GRACE_S": "0",  # every process of a test is young
            "DJANGO_SETTINGS_MODULE": "console.settings.run",
            "DATABASE_URL": url,
            "DATABASE_DIRECT_URL": url,
            "VALKEY_URL": urlunsplit(urlsplit(os.environ["VALKEY_URL"])._replace(path=f"/{valkey_db}")),
            "SIGNALBOX_DATA_DIR": str(folder),
            "SIGNALBOX_DEMO": "1",
            "SIGNALBOX_DEMO_PREFIX": self.prefix,
            "SECRET_KEY": "only for tests",
            "PYTHONUNBUFFERED": "1",
        }

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self._remove_what_killed_runs_left()
        with psycopg.connect(self._admin_url, autocommit=True) as conn:
            conn.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(self.database)))
        try:
            self.manage("setup", "--demo-users")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in list(self.running):
            self.kill(name)
        self._remove(self.prefix)

    def manage(self, *args):
        done = subprocess.run(
            manage(*args),
            cwd=BASE_DIR,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=COMMAND_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"manage.py {' '.join(args)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def ask(self, code):
        """Run Python inside the app and return what it prints as JSON on its last line."""
        return json.loads(self.manage("shell", "-v", "0", "-c", f"import json\n{code}").splitlines()[-1])

    def sql(self, query, *params):
        with psycopg.connect(self.env["DATABASE_URL"]) as conn:
            cursor = conn.execute(query, params)
            return cursor.fetchall() if cursor.description else []

    def logins(self):
        return json.loads((self.folder / "logins.json").read_text())

    # -- processes ---------------------------------------------------------------------------------------
    def start(self, name, *args):
        """Start `manage.py ARGS` under a name."""
        self.wanted[name] = args
        self._spawn(name, manage(*args))

    def start_what_is_missing(self):
        """Start again each management command that was stopped or killed."""
        for name, args in self.wanted.items():
            if name not in self.running:
                self.start(name, *args)

    def start_web(self):
        self.manage("collectstatic", "--noinput", "--verbosity", "0")
        self._spawn("web", web_command(self.port))

    def start_celery(self, name, *args):
        self._spawn(name, [sys.executable, "-m", "celery", "-A", "console", *args, "--loglevel", "WARNING"])

    def wait_for_page(self):
        def answers():
            assert self.running["web"].poll() is None, self.log("web")[-4000:]
            with suppress(OSError):
                return urlopen(f"{self.url}/sign-in/", timeout=5).status == 200
            return False

        wait_until(answers, within_s=PAGE_WITHIN_S, what="the page answers")

    def stop(self, name):
        """SIGTERM; the process must end by itself within `STOP_WITHIN_S`. Returns its exit status."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout=STOP_WITHIN_S)

    def kill(self, name):
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _spawn(self, name, command):
        assert name not in self.running
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                cwd=BASE_DIR,
                env={**self.env, "SIGNALBOX_PROCESS": name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ended_with_parent(signal.SIGKILL),  # noqa: PLW1509 - one prctl call, no lock
            )

    def _remove(self, prefix):
        """Drop the database and the topics of one app."""
        name = psycopg.sql.Identifier(f"app_{prefix[:-1]}")
        with psycopg.connect(self._admin_url, autocommit=True) as conn:
            conn.execute(psycopg.sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
        admin = self._kafka()  # kept: what it was asked for ends with it
        topics = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
        for future in admin.delete_topics(topics).values() if topics else []:
            error = future.exception(timeout=30)
            # Another test process may clean up after the same killed run.
            if error is not None and error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise error

    def _remove_what_killed_runs_left(self):
        """A kept stack outlives its runs."""
        with psycopg.connect(self._admin_url) as conn:
            databases = conn.execute("SELECT datname FROM pg_database WHERE datname LIKE 'app\\_t%'").fetchall()
        names = [
            *self._kafka().list_topics(timeout=30).topics,
            *(f"{row[0].removeprefix('app_')}-" for row in databases),
        ]
        found = [NAMED_BY_OWNER.match(name) for name in names]
        for prefix in {match[0] for match in found if match and not Path(f"/proc/{match[1]}").exists()}:
            self._remove(prefix)

    def _kafka(self):
        return AdminClient({"bootstrap.servers": self.env["KAFKA_BOOTSTRAP_SERVERS"]})
