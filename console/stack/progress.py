"""What `up` prints while it works: what became ready, after how many seconds."""

import time
from datetime import datetime
from typing import TextIO


class Progress:
    """Lines for a person, with seconds since it was made. A terminal that went away is no reason to fail."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def ready(self, name: str) -> None:
        """Say that something is ready."""
        self.note(f"{name + ' ready':<36}{self.seconds:6.1f} s")

    def done(self, text: str) -> None:
        """Say that something was done."""
        self.note(text)

    def event(self, text: str) -> None:
        """Say that something happened now."""
        self.note(f"{datetime.now().astimezone():%H:%M:%S}  {text}")

    def note(self, text: str) -> None:
        """Print a line."""
        try:
            self._out.write(f"  {text}\n")
            self._out.flush()
        except (OSError, ValueError):
            return
