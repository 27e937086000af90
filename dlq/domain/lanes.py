"""Who works next: records of one key one after the other, records of different keys side by side. Pure.

A lane is the queue of one key. Each lane with work is in exactly one state: ready, busy (its head is being worked)
or waiting (its head is tried again at a time). Times are passed in.
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Queues by key; not thread-safe."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[T]] = {}
        self._ready: deque[Hashable] = deque()
        self._busy: set[Hashable] = set()
        self._due: dict[Hashable, float] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._pushed = 0

    def put(self, lane: Hashable, item: T) -> None:
        """Append `item` to its lane."""
        queue = self._queues.get(lane)
        if queue is not None:
            queue.append(item)
            return
        self._queues[lane] = deque([item])
        if lane not in self._busy:
            self._ready.append(lane)

    def put_before(self, lane: Hashable, item: T, yields: Callable[[T], bool]) -> None:
        """Insert `item` before the first item of its lane that yields to it; a waiting lane runs at once then."""
        queue = self._queues.get(lane)
        if queue is None:
            self.put(lane, item)
            return
        place = next((number for number, other in enumerate(queue) if yields(other)), len(queue))
        queue.insert(place, item)
        if place == 0:
            self.wake(lane)

    def take(self, now: float) -> tuple[Hashable, T] | None:
        """Return the head of a ready lane, which is busy until `done` or `put_back`; None when nothing may run."""
        self._wake(now)
        if not self._ready:
            return None
        lane = self._ready.popleft()
        queue = self._queues[lane]
        item = queue.popleft()
        if not queue:
            del self._queues[lane]
        self._busy.add(lane)
        return lane, item

    def done(self, lane: Hashable) -> None:
        """Free a busy lane: its next record may run."""
        self._busy.discard(lane)
        if lane in self._queues:
            self._ready.append(lane)

    def put_back(self, lane: Hashable, item: T, due: float, goes_before: Callable[[T], bool] = lambda _: False) -> None:
        """Return the head of a busy lane to its place; the whole lane waits until `due`.

        What was put before it meanwhile stays before it (`goes_before`), and then the lane runs at once.
        """
        self._busy.discard(lane)
        queue = self._queues.setdefault(lane, deque())
        place = next((number for number, other in enumerate(queue) if not goes_before(other)), len(queue))
        queue.insert(place, item)
        if place:
            self._ready.append(lane)
            return
        self._due[lane] = due
        self._pushed += 1
        heapq.heappush(self._heap, (due, self._pushed, lane))

    def wake(self, lane: Hashable) -> None:
        """Let a waiting lane run at once; nothing when it does not wait."""
        if self._due.pop(lane, None) is not None:
            self._ready.append(lane)

    def items(self, lane: Hashable) -> Iterator[T]:
        """Yield what is queued in a lane, its head first."""
        yield from self._queues.get(lane, ())

    def drop(self, keep: Callable[[T], bool]) -> None:
        """Forget queued items that are not to be kept; what is being worked is left alone."""
        for lane, queue in list(self._queues.items()):
            kept = deque(item for item in queue if keep(item))
            if kept:
                self._queues[lane] = kept
            else:
                self._forget(lane)

    def next_due(self) -> float | None:
        """When the next waiting lane may run; None when none waits."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    @property
    def waiting(self) -> int:
        """How many lanes wait for another try."""
        return len(self._due)

    def _wake(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            lane = heapq.heappop(self._heap)[2]
            del self._due[lane]
            self._ready.append(lane)

    def _forget(self, lane: Hashable) -> None:
        del self._queues[lane]
        if self._due.pop(lane, None) is None and lane not in self._busy:
            self._ready.remove(lane)
