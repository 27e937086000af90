"""Process heartbeats: who is alive, since when, doing what. All ages are by the database clock."""

import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import structlog
from django.conf import settings
from django.db import Error, connection
from django.db.models.functions import Now

from relay.models.ops import ProcessHeartbeat
from relay.types import Aspect, ProcessView, Role, Verdict

log = structlog.get_logger(__name__)

_BEAT = """
INSERT INTO relay_process AS p (name, role, pid, host, version, doing, facts, crashes, started_at, seen_at)
VALUES (%s, %s, %s, %s, %s, %s, %s::jsonb, 0, clock_timestamp(), clock_timestamp())
ON CONFLICT (name) DO UPDATE
SET role = excluded.role, pid = excluded.pid, host = excluded.host, version = excluded.version,
    doing = excluded.doing, facts = excluded.facts, seen_at = clock_timestamp(), stopped_at = NULL,
    started_at = CASE WHEN (p.pid, p.host) = (excluded.pid, excluded.host) AND p.stopped_at IS NULL
                      THEN p.started_at ELSE clock_timestamp() END,
    crashes = p.crashes + ((p.pid, p.host) <> (excluded.pid, excluded.host) AND p.stopped_at IS NULL)::int,
    crashed_at = CASE WHEN (p.pid, p.host) <> (excluded.pid, excluded.host) AND p.stopped_at IS NULL
                      THEN clock_timestamp() ELSE p.crashed_at END
"""

_LIST = """
SELECT name, role, pid, host, version, doing, facts::text, started_at, seen_at, stopped_at, crashes, crashed_at,
       greatest(0, extract(epoch FROM clock_timestamp() - seen_at))::float,
       extract(epoch FROM clock_timestamp() - crashed_at)::float
FROM relay_process WHERE seen_at > clock_timestamp() - make_interval(secs => %s) ORDER BY role, name LIMIT 500
"""


def product_version() -> str:
    """The installed version of Signalbox, or the source tree's when it is not installed as a package."""
    try:
        return version("signalbox")
    except PackageNotFoundError:
        return "0.1.0"


def process_name(role: Role) -> str:
    """The name of this process: `SIGNALBOX_PROCESS` when the supervisor gave one, else role, host and pid."""
    return os.environ.get("SIGNALBOX_PROCESS") or f"{role}@{socket.gethostname()}:{os.getpid()}"


def record_heartbeat(role: Role, name: str, *, doing: str = "", facts: Mapping[str, str] | None = None) -> None:
    """Write this process's heartbeat row: one statement, idempotent."""
    with connection.cursor() as cursor:
        cursor.execute(
            _BEAT,
            [
                name[:120],
                role.value,
                os.getpid(),
                socket.gethostname()[:120],
                product_version(),
                doing[:200],
                json.dumps(list((facts or {}).items())),  # pairs: jsonb does not keep the order of an object's keys
            ],
        )


def record_stop(name: str) -> None:
    """Say that the process ended on purpose, so that it is not called lost."""
    ProcessHeartbeat.objects.filter(name=name).update(stopped_at=Now(), doing="stopped")


def list_processes() -> list[ProcessView]:
    """Every process that beat within `PROCESS_FORGET_AFTER`, by role and name."""
    with connection.cursor() as cursor:
        cursor.execute(_LIST, [settings.PROCESS_FORGET_AFTER.total_seconds()])
        rows = cursor.fetchall()
    return [_view(row) for row in rows]


def forget_old_processes() -> int:
    """Delete rows without a beat for `PROCESS_FORGET_AFTER`."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM relay_process WHERE seen_at <= clock_timestamp() - make_interval(secs => %s)",
            [settings.PROCESS_FORGET_AFTER.total_seconds()],
        )
        return int(cursor.rowcount)


def _view(row: tuple[Any, ...]) -> ProcessView:
    *own, stopped, crashes, crashed_at, age_s, crashed_s = row
    name, role, pid, host, running_version, doing, facts, started_at, seen_at = own
    return ProcessView(
        role=Role(role),
        name=name,
        pid=pid,
        host=host,
        version=running_version,
        started_at=started_at,
        seen_at=seen_at,
        age_s=age_s,
        doing=doing,
        facts=dict(json.loads(facts)),
        crashes=crashes,
        crashed_at=crashed_at,
        verdict=_judge(age_s, stopped=stopped is not None, crashed_s=crashed_s),
    )


def _judge(age_s: float, *, stopped: bool, crashed_s: float | None) -> Verdict:
    if stopped:
        return Verdict(aspect=Aspect.IDLE, word="stopped", reason="ended on purpose")
    if age_s > settings.PROCESS_LOST_AFTER_S:
        return Verdict(aspect=Aspect.BAD, word="lost", reason=f"no heartbeat for {age_s:.0f} s")
    if crashed_s is not None and crashed_s < settings.PROCESS_CRASH_SHOWN_S:
        return Verdict(aspect=Aspect.WARN, word="restarted", reason=f"it died {crashed_s:.0f} s ago")
    return Verdict(aspect=Aspect.OK, word="alive")


class HeartbeatThread(threading.Thread):
    """Beat once a second from a thread with a database connection of its own, until `stop()`.

    A beat that fails (database away) is logged once and tried again: the page will show its age.
    """

    def __init__(self, role: Role, name: str, describe: Callable[[], tuple[str, Mapping[str, str]]]) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._role = role
        self._process = name
        self._describe = describe
        self._ended = threading.Event()

    def run(self) -> None:
        """Beat until stopped, then say so."""
        failing = False
        while not self._ended.wait(settings.PROCESS_HEARTBEAT_EVERY_S):
            failing = self._beat(failing)
        try:
            record_stop(self._process)
        except Error:
            log.warning("heartbeat.stop_not_recorded", process=self._process)
        finally:
            connection.close()

    def stop(self) -> None:
        """End the thread and record the stop; waits at most 5 s."""
        self._ended.set()
        self.join(timeout=5)

    def _beat(self, was_failing: bool) -> bool:
        try:
            doing, facts = self._describe()
            record_heartbeat(self._role, self._process, doing=doing, facts=facts)
        except Error:
            connection.close()
            if not was_failing:
                log.warning("heartbeat.failed", process=self._process, exc_info=True)
            return True
        return False
