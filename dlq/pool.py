"""How many handlers run at once in a process, whoever calls them."""

import threading
from collections import deque
from types import TracebackType


class Permits:
    """So many may be inside at a time; who waits longest is next, so that neither of two kinds of workers starves."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        """Wait for a permit."""
        with self._lock:
            if self._free and not self._waiting:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()  # whoever leaves hands its permit over

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Hand the permit to who waits longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
