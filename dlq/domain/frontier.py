"""Up to where a partition is finished. Pure.

The frontier is the lowest *delivered* offset that is not finished; offsets that were never delivered (compaction,
aborted transactions, control markers) are gaps, not work.
"""

from collections import deque

from relay.types import CommitPoint


class Frontier:
    """What was delivered from one assignment of one partition, and what of it is finished."""

    def __init__(self) -> None:
        self._open: deque[tuple[int, int | None]] = deque()
        self._finished: set[int] = set()
        self._delivered = -1
        self._point: CommitPoint | None = None

    def deliver(self, offset: int, leader_epoch: int | None = None) -> bool:
        """Note a delivered record; False when it was delivered before (it is open or finished already)."""
        if offset <= self._delivered:
            return False
        self._delivered = offset
        self._open.append((offset, leader_epoch))
        return True

    def finish(self, offset: int) -> None:
        """Note that a delivered record is applied, skipped or parked, and committed as such."""
        self._finished.add(offset)
        while self._open and self._open[0][0] in self._finished:
            done, epoch = self._open.popleft()
            self._finished.discard(done)
            self._point = CommitPoint(offset=self._open[0][0] if self._open else done + 1, leader_epoch=epoch)

    @property
    def point(self) -> CommitPoint | None:
        """What may be committed: the lowest unfinished delivered offset; None until something finished there."""
        return self._point

    @property
    def spread(self) -> int:
        """How many delivered records are at or above the lowest unfinished one: they come again after a restart."""
        return len(self._open)

    @property
    def lowest_open(self) -> int | None:
        """The offset that holds the frontier, if any."""
        return self._open[0][0] if self._open else None
