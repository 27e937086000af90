"""Free loopback ports, chosen once a data directory and kept, so that a second start finds the same addresses."""

import json
import socket
from pathlib import Path

PREFERRED = {"web": 8000, "postgres": 54320, "valkey": 63790, "kafka": 9092, "controller": 9093}


def choose_ports(file: Path, *, prefer: bool = True, web: int | None = None) -> dict[str, int]:
    """Return service -> port; kept in `file`. A kept port that somebody else has taken is chosen anew.

    `web` is the port that the user wants for the page; it is kept like the others.
    """
    kept: dict[str, int] = json.loads(file.read_text()) if file.is_file() else {}
    if web is not None:
        kept["web"] = web
    chosen: dict[str, int] = {}
    for name, preferred in PREFERRED.items():
        wanted = kept.get(name) or (preferred if prefer else 0)
        chosen[name] = wanted if wanted and is_free(wanted) else _any_free(set(chosen.values()))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(chosen, indent=2))
    return chosen


def is_free(port: int) -> bool:
    """Tell whether a listener could be bound to the loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _any_free(taken: set[int]) -> int:
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            return port
