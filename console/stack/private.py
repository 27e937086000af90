"""Files that only their owner may read, written whole or not at all."""

import os
import secrets
from pathlib import Path


def write_private(file: Path, text: str) -> None:
    """Replace `file` by `text` in one step, mode 600 from its first byte, on the disk when this returns."""
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)
