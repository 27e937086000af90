"""Free loopback ports, chosen once a data directory and kept, so that a second start finds the same addresses.

Between the choice and the moment when a service listens lie seconds, in which a stack that starts beside this one
would choose the same ports and talk to this one's services: `PortHolds` keeps them apart.
"""

import json
import socket
import sys
from pathlib import Path

import psutil

PREFERRED = {"web": 8000, "postgres": 54320, "valkey": 63790, "kafka": 9092, "controller": 9093}


class PortHolds:
    """Ports promised to this process and to no other stack on this machine, until it is dropped or the process ends.

    A hold is a name in Linux's abstract socket space: no file to clean up. Elsewhere every port is granted.
    """

    def __init__(self) -> None:
        self._held: dict[int, socket.socket | None] = {}

    def has(self, port: int) -> bool:
        """Tell whether this process holds it."""
        return port in self._held

    def take(self, port: int) -> bool:
        """Hold a port; False when another process holds it."""
        if port in self._held:
            return True
        if sys.platform != "linux":
            self._held[port] = None
            return True
        hold = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            hold.bind(f"\0signalbox-port-{port}")
        except OSError:
            hold.close()
            return False
        self._held[port] = hold
        return True

    def drop(self) -> None:
        """Let go of all of them."""
        while self._held:
            hold = self._held.popitem()[1]
            if hold is not None:
                hold.close()


def choose_ports(
    file: Path, *, prefer: bool = True, web: int | None = None, holds: PortHolds | None = None
) -> dict[str, int]:
    """Return service -> port; kept in `file`. A kept port that somebody else has taken is chosen anew.

    `web` is the port that the user wants for the page; it is kept like the others. The ports are held in `holds`;
    without one they are promised to nobody once this returns.
    """
    if holds is None:
        brief = PortHolds()
        try:
            return choose_ports(file, prefer=prefer, web=web, holds=brief)
        finally:
            brief.drop()
    kept: dict[str, int] = json.loads(file.read_text()) if file.is_file() else {}
    if web is not None:
        kept["web"] = web
    chosen: dict[str, int] = {}
    for name, preferred in PREFERRED.items():
        wanted = kept.get(name) or (preferred if prefer else 0)
        chosen[name] = wanted if wanted and holds.take(wanted) and is_free(wanted) else _any_free(holds)
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


def is_listening(pid: int, port: int) -> bool:
    """Tell whether this very process listens on the port; True when the system does not let us look."""
    try:
        found = psutil.Process(pid).net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in found)


def _any_free(holds: PortHolds) -> int:
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if not holds.has(port) and holds.take(port):
            return port
