"""The data folder of an embedded stack: its paths, its lock, its mark, the secrets that it keeps (all mode 600)."""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from console.stack.errors import StackError
from console.stack.private import write_private

MIN_FREE_BYTES = 512 * 1024 * 1024
# A Unix socket's path may have 107 bytes on Linux (103 on macOS); supervisor first binds "<path>.<pid>".
MAX_SOCKET_PATH_BYTES = 90
# Lists in Kafka's configuration, Java's class path, comments and expansions in supervisor's configuration.
BAD_IN_PATH = ",:;%\n\r"
CHECKOUT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class DataDir:
    """One data folder, made and checked by `open_data_dir`."""

    root: Path

    @property
    def logs(self) -> Path:
        """Where each program's log is."""
        return self.root / "logs"

    @property
    def stack_env(self) -> Path:
        """What `manage.py` in another terminal reads to reach this stack."""
        return self.root / "stack.env"

    @property
    def logins(self) -> Path:
        """The demo users' passwords."""
        return self.root / "logins.json"

    @property
    def socket(self) -> Path:
        """Where supervisor listens: inside the folder, or under the temporary folder when that path is too long."""
        inside = self.root / "supervisor.sock"
        if len(os.fsencode(inside)) <= MAX_SOCKET_PATH_BYTES:
            return inside
        short = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"signalbox-{os.geteuid()}-{short}" / "supervisor.sock"

    @property
    def mark(self) -> str:
        """What the environment of each process of this stack carries: this folder's own id and its path."""
        file = self.root / "stack.id"
        if not file.is_file():
            write_private(file, uuid.uuid4().hex)
        return f"{file.read_text()}:{self.root}"

    def secret(self, name: str) -> str:
        """Return the secret kept under `name`; made at the first call."""
        file = self.root / "secrets.json"
        kept: dict[str, str] = json.loads(file.read_text()) if file.is_file() else {}
        if name not in kept:
            kept[name] = secrets.token_urlsafe(48)
            write_private(file, json.dumps(kept, indent=2))
        return kept[name]

    def write_stack_env(self, values: Mapping[str, str]) -> None:
        """Write `stack.env`; the environment of whoever reads it wins over it."""
        lines = ["# Written by `manage.py up`; what the environment says wins over this file."]
        lines += [f"{name}='{_quoted(value)}'" for name, value in values.items()]
        write_private(self.stack_env, "\n".join(lines) + "\n")

    def make_socket_folder(self) -> None:
        """Make the folder of `socket`, which nobody else may enter.

        Raises:
            StackError: somebody else owns it.
        """
        folder = self.socket.parent
        if folder == self.root:
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            raise StackError(f"{folder} belongs to somebody else. Set TMPDIR to a folder of your own and start again.")


def open_data_dir(path: Path) -> DataDir:
    """Make and check the folder.

    Raises:
        StackError: it cannot be written, its path cannot be used, or the disk is nearly full.
    """
    root = path.expanduser().resolve()
    for folder in (root, CHECKOUT):
        if bad := " ".join(sorted({c for c in str(folder) if c in BAD_IN_PATH})):
            raise StackError(f"The folder {folder} has {bad} in its path, which a program of the stack cannot take.")
    try:
        root.mkdir(parents=True, exist_ok=True)
        (root / "logs").mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise StackError(
            f"The data folder {root} cannot be written: {error.strerror}. "
            "Choose another one: make up DATA_DIR=/path (or manage.py up --data-dir /path)."
        ) from error
    if (free := shutil.disk_usage(root).free) < MIN_FREE_BYTES:
        raise StackError(
            f"The disk of {root} has {free // 2**20} MiB left; the stack needs {MIN_FREE_BYTES // 2**20} MiB. "
            "Free some space, or choose another folder with --data-dir."
        )
    return DataDir(root)


def make_scratch_folder(prefix: str) -> Path:
    """Make a new folder beside the checkout's own data (not in /tmp: PostgreSQL's other user must reach it)."""
    parent = CHECKOUT / ".signalbox"
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    folder.chmod(0o755)
    return folder


def take_lock(data: DataDir) -> TextIO:
    """Lock the folder for this process until it ends, however it ends; keep the returned file open.

    Raises:
        StackError: another `up` holds it; the text names its process.
    """
    file = (data.root / "up.lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise StackError(
            f"A stack already runs on {data.root} (process {holder}). Stop it with Ctrl-C or `kill {holder}`, or start "
            "a second one on a folder of its own with --data-dir."
        ) from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")
