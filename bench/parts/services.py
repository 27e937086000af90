"""The stack of one bench run: PostgreSQL, Valkey and Kafka on loopback, started and stopped by it.

PostgreSQL runs with the settings of `make up` (commits wait for the disk), not with those of the tests.
"""

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from console.stack import postgres
from console.stack.data_dir import make_scratch_folder
from console.stack.programs import BASE_DIR, manage
from tests.stack import ServiceStack, ended_with_parent

PARTITIONS = 6
SETUP_WITHIN_S = 120
READY_WITHIN_S = 60
STOP_WITHIN_S = 30
LOOK_EVERY_S = 0.02
QUIET_S = 0.7


class BenchError(Exception):
    """The bench could not measure; the text says what happened."""


class DurableStack(ServiceStack):
    """The services with PostgreSQL as `make up` runs it."""

    def start_postgres(self):
        self.password = postgres.prepare(self.data / "postgres")
        self._spawn(
            "postgres",
            postgres.command(self.data / "postgres", self.ports["postgres"]),
            user=postgres.system_user(),
        )
        postgres.wait_ready(self.ports["postgres"], self.password)


class World:
    """The services, one migrated database, and processes of the product on it. A context manager."""

    def __init__(self):
        self.folder = make_scratch_folder("bench-")
        self.stack = DurableStack(self.folder / "stack")
        self.env: dict[str, str] = {}
        self.rate_of_one: float | None = None  # rows per second of one relay process, once it was measured

    def __enter__(self):
        try:
            self.stack.start()
            self.env = {
                **os.environ,
                **self.stack.env,
                "DJANGO_SETTINGS_MODULE": "console.settings.base",
                "SIGNALBOX_DATA_DIR": str(self.folder),
                "SECRET_KEY": "only for the bench",
                "PYTHONPATH": str(BASE_DIR),
            }
            os.environ.update(self.env)
            self.manage("migrate", "--verbosity", "0")
        except BaseException:
            self.__exit__()
            raise
        self._conn = psycopg.connect(self.url, autocommit=True)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        return self

    def __exit__(self, *_):
        self.stack.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return self.stack.env["DATABASE_URL"]

    @property
    def bootstrap(self) -> str:
        return self.stack.env["KAFKA_BOOTSTRAP_SERVERS"]

    # -- Database ----------------------------------------------------------------------------------------------
    def sql(self, query, params=None):
        """Run one statement in autocommit; its rows, if it has any."""
        cursor = self._conn.execute(query, params)
        return cursor.fetchall() if cursor.description else []

    def one(self, query, params=None):
        """The only value of the only row."""
        return self.sql(query, params)[0][0]

    def connect(self, **options) -> psycopg.Connection:
        return psycopg.connect(self.url, **options)

    def make_database(self, name: str) -> str:
        """Another database on the same server; its URL."""
        self.sql(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    # -- Kafka -------------------------------------------------------------------------------------------------
    def make_topic(self, purpose: str) -> str:
        name = f"bench-{purpose}-{uuid.uuid4().hex[:6]}"
        for future in self.admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            future.result(READY_WITHIN_S)
        self.wait_until(lambda: self._has_leaders(name), f"every partition of {name} has a leader")
        return name

    def _has_leaders(self, topic: str) -> bool:
        try:
            return self.count_records(topic) == 0
        except KafkaException:
            return False

    def count_records(self, topic: str) -> int:
        """Records that the broker has: the sum of the end offsets."""
        wanted = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
        return sum(f.result(READY_WITHIN_S).offset for f in self.admin.list_offsets(wanted).values())

    def wait_for_records(self, topic: str, count: int, within_s: float) -> float:
        """The monotonic time when the topic had `count` records."""
        deadline = time.monotonic() + within_s
        while (have := self.count_records(topic)) < count:
            if time.monotonic() > deadline:
                raise BenchError(f"{topic} has {have:,} of {count:,} records after {within_s:g} s")
            time.sleep(LOOK_EVERY_S)
        return time.monotonic()

    def wait_for_quiet(self, topic: str) -> int:
        """Wait until no record came for `QUIET_S`; how many there are."""
        count, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET_S:
            if (now := self.count_records(topic)) != count:
                count, since = now, time.monotonic()
            time.sleep(LOOK_EVERY_S)
        return count

    # -- Processes ---------------------------------------------------------------------------------------------
    def manage(self, *args: str) -> str:
        done = subprocess.run(
            manage(*args),
            cwd=BASE_DIR,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SETUP_WITHIN_S,
            check=False,
        )
        if done.returncode:
            raise BenchError(f"manage.py {' '.join(args)}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    @contextmanager
    def process(self, name: str, command: Sequence[str], **env: str) -> Iterator[subprocess.Popen]:
        """A process that is stopped with SIGTERM at the end; its output goes to a log file."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=BASE_DIR,
                env={**self.env, "SIGNALBOX_PROCESS": name, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=ended_with_parent(15),  # noqa: PLW1509 - one prctl call, no lock
            )
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_WITHIN_S)
            if process.poll() is None:
                process.kill()
                process.wait()

    def log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    @contextmanager
    def relays(self, count: int, **env: str) -> Iterator[list[subprocess.Popen]]:
        """`count` processes of `manage.py relay`, warm: they hold all shards in equal parts and are idle."""
        with self._relays(count, env) as started:
            self.wait_until(lambda: self.are_sharing(count), f"{count} relays share the shards")
            yield started

    @contextmanager
    def _relays(self, count: int, env: dict[str, str]) -> Iterator[list[subprocess.Popen]]:
        if count == 0:
            yield []
            return
        with (
            self.process(f"relay-{count}", manage("relay", "--name", f"relay-{count}"), **env) as last,
            self._relays(count - 1, env) as others,
        ):
            yield [*others, last]

    def are_sharing(self, count: int, kind: str = "process") -> bool:
        """Tell whether so many live runners of a kind hold all shards in equal parts."""
        shares = self.sql(
            "SELECT count(*) FROM relay_checkpoint c JOIN relay_runner r ON r.id = c.holder"
            " WHERE r.kind = %s AND r.expires_at > clock_timestamp() GROUP BY r.id",
            [kind],
        )
        return len(shares) == count and sum(n for (n,) in shares) == 64 and max(shares) == min(shares)

    def wait_until(self, condition, what: str, within_s: float = READY_WITHIN_S) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise BenchError(f"not within {within_s:g} s: {what}")
            time.sleep(LOOK_EVERY_S)


def celery(*args: str) -> list[str]:
    """A Celery command line, as the stack starts it."""
    return [python(), "-m", "celery", "-A", "console", *args, "--loglevel", "WARNING"]


def python() -> str:
    """The interpreter of this run."""
    return sys.executable


def script(name: str) -> str:
    """The path of a script beside this module."""
    return str(Path(__file__).with_name(name))
