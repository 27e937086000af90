"""Whether PostgreSQL, Valkey and Kafka answer, in bounded time: for the System page and /readyz."""

import platform
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import django
import redis
from django.conf import settings
from django.db import Error, connection

from relay.types import Aspect, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """One service: what it is for, the version it says (empty = not asked), and whether it answers."""

    name: str
    purpose: str
    version: str
    verdict: Verdict
    took_ms: float


def check_dependencies() -> list[Dependency]:
    """Ask each service once; at most `DEPENDENCY_TIMEOUT_S` each."""
    return [
        _ask("PostgreSQL", "rows, incidents, audit: nothing works without it", _postgres),
        _ask("Valkey", "beat, workers, live hints: without it pages poll, and manage.py relay goes on", _valkey),
        _ask("Kafka", "topics: without it rows wait in the outbox", _kafka),
    ]


def list_versions() -> list[tuple[str, str]]:
    """What this web process runs on."""
    return [("Python", platform.python_version()), ("Django", django.get_version())]


def _ask(name: str, purpose: str, ask: Callable[[], str]) -> Dependency:
    began = time.monotonic()
    try:
        version, verdict = ask(), Verdict(aspect=Aspect.OK, word="answers")
    except (Error, redis.RedisError, OSError, ValueError) as error:
        # The error's class only: its text can hold an address with a password.
        version, verdict = "", Verdict(aspect=Aspect.BAD, word="does not answer", reason=type(error).__name__)
    return Dependency(
        name=name, purpose=purpose, version=version, verdict=verdict, took_ms=(time.monotonic() - began) * 1000
    )


def _postgres() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version')")
        return str(cursor.fetchone()[0])


def _valkey() -> str:
    limit_s = settings.DEPENDENCY_TIMEOUT_S
    client = redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=limit_s, socket_connect_timeout=limit_s)
    try:
        facts: dict[str, str] = client.info("server")
    finally:
        client.close()
    return str(facts.get("valkey_version") or facts.get("redis_version", ""))


def _kafka() -> str:
    """Reach one of the bootstrap servers; whether the cluster works is what the lag collector says."""
    servers = [server.strip() for server in settings.KAFKA_BOOTSTRAP_SERVERS.split(",")]
    for place, server in enumerate(servers):
        host, _, port = server.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=settings.DEPENDENCY_TIMEOUT_S):
                return ""
        except OSError:
            if place + 1 == len(servers):
                raise
    return ""
