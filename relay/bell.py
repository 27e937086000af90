"""The doorbell: a runner that sleeps is woken by the commit that writes to the outbox.

A sleeper holds shared advisory locks; the trigger on `relay_outbox` tries one of them exclusively and sends NOTIFY
only when that fails: nobody pays for NOTIFY while nobody sleeps (docs/adr/0105). The connection must reach the server
itself, not a transaction pooler. A sleeper that hangs, or whose machine is gone, is put out by `idle_session_timeout`.
"""

import psycopg
import structlog
from django.conf import settings

log = structlog.get_logger(__name__)

CHANNEL = "relay_outbox"
LOCK_CLASS = 7203001
"""First key of the advisory locks; the same number is in the trigger of migration 0013."""
SLOTS = 16
"""Writers spread over the slots by their backend's id, so that two of them seldom meet; a sleeper holds all."""

_SET_UP = "SELECT set_config('idle_session_timeout', %s, false), set_config('lock_timeout', %s, false)"
_WHERE = "SELECT system_identifier, current_database() FROM pg_control_system()"
_ARM = "SELECT count(*) FROM (SELECT pg_advisory_lock_shared(%s, slot) FROM generate_series(0, %s) slot) armed"
_DISARM = "SELECT pg_advisory_unlock_all()"


class BellUnavailableError(Exception):
    """There is no direct connection to this database: the relay polls. The text says why."""


class Bell:
    """One runner's ear. Every method raises psycopg.Error when the connection is gone."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self._conn = conn
        self.is_armed = False

    def arm(self) -> bool:
        """Let commits ring from now on; read once more before `wait()`. False = a writer was in the way, try again."""
        try:
            self._conn.execute(_ARM, [LOCK_CLASS, SLOTS - 1])
        except psycopg.errors.LockNotAvailable:
            self._conn.execute(_DISARM)
            return False
        self.is_armed = True
        return True

    def disarm(self) -> None:
        """Let commits pass silently: the runner is awake."""
        if self.is_armed:
            self._conn.execute(_DISARM)
            self.is_armed = False

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a commit rings; False = the time is over."""
        return any(True for _ in self._conn.notifies(timeout=timeout_s, stop_after=1))

    def keep(self) -> None:
        """Show the server that this session is alive."""
        self._conn.execute("SELECT 1")

    def close(self) -> None:
        """Close the connection; the locks go with it."""
        self._conn.close()


def open_bell(name: str, same_as: psycopg.Connection) -> Bell:
    """Connect by `DATABASE_DIRECT_URL` and listen.

    Raises:
        BellUnavailableError: there is no such connection, or it leads to another database than `same_as`.
    """
    url = settings.DATABASE_DIRECT_URL
    if not url:
        raise BellUnavailableError("DATABASE_DIRECT_URL is not set")
    try:
        conn = psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=settings.RELAY_BELL_CONNECT_S,
            application_name=f"relay bell {name}"[:60],
        )
    except psycopg.Error as error:
        raise BellUnavailableError(f"DATABASE_DIRECT_URL does not connect ({type(error).__name__})") from error
    try:
        _require_same_database(conn, same_as)
        conn.execute(_SET_UP, [f"{settings.RELAY_BELL_IDLE_S}s", f"{settings.RELAY_BELL_LOCK_MS}ms"])
        conn.execute(f"LISTEN {CHANNEL}")
    except BaseException:
        conn.close()
        raise
    return Bell(conn)


def _require_same_database(conn: psycopg.Connection, other: psycopg.Connection) -> None:
    if conn.execute(_WHERE).fetchone() != other.execute(_WHERE).fetchone():
        raise BellUnavailableError("DATABASE_DIRECT_URL leads to another database than DATABASE_URL")
