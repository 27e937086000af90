"""Relay processes of the checker: started, killed with SIGKILL at random, started again."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from django.conf import settings
from django.db import connection

STOP_WITHIN_S = 30
SHOWN_CHARS = 800
LEASE_RUNS_OUT_EVERY = 10  # kills


class RelayDied(Exception):
    """A relay ended although nobody killed it; the text has its last words."""


class Relays:
    """`count` processes of `manage.py relay`; their output goes to files in `folder`."""

    def __init__(self, run: str, count: int, folder: Path) -> None:
        self.kills = 0
        self._run = run
        self._folder = folder
        self._started = 0
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = [self._start() for _ in range(count)]

    def look(self) -> None:
        """Look after the processes.

        Raises:
            RelayDied: one ended by itself.
        """
        for name, child in self._children:
            if child.poll() is not None:
                raise RelayDied(f"{name} ended with status {child.returncode}: {self._last_words(name)}")

    def kill_one(self, rng: random.Random) -> None:
        """Kill one with SIGKILL and start another in its place.

        Every tenth lease runs out by itself (`RELAY_LEASE_S`); the others are ended once the process is surely gone,
        so that many kills fit into a run.
        """
        index = rng.randrange(len(self._children))
        name, child = self._children[index]
        child.send_signal(signal.SIGKILL)
        child.wait()
        self.kills += 1
        self._children[index] = self._start()
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM relay_process WHERE name = %s", [name])  # nobody need look for it
            if self.kills % LEASE_RUNS_OUT_EVERY:
                cursor.execute("DELETE FROM relay_runner WHERE name = %s", [name])

    def stop(self) -> None:
        """Stop all of them; what does not stop in time is killed."""
        for _, child in self._children:
            child.terminate()
        for _, child in self._children:
            try:
                child.wait(timeout=STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _start(self) -> tuple[str, subprocess.Popen[bytes]]:
        self._started += 1
        name = f"check-{self._run}-{self._started}"
        with self._log(name).open("wb") as log_file:
            return name, _spawn(name, log_file)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _last_words(self, name: str) -> str:
        return self._log(name).read_text(errors="replace").strip()[-SHOWN_CHARS:]


def _spawn(name: str, log_file: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "django", "relay", "--name", name],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE, "SIGNALBOX_PROCESS": name},
        stdin=subprocess.DEVNULL,
        stdout=log_file,
        stderr=log_file,
        start_new_session=True,  # Ctrl-C stops the checker, which stops them
    )
