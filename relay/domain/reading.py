"""Whether a record is the one that a partition's reading should go on with. Pure.

A client that was paused, or lost a partition and got it back, may go on at a place of its own memory, past records
that were never handed over. A gap in the log (compaction, a transaction's marker) looks the same, so a record that is
too far is read again from where it should begin, and believed when the same one comes twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from relay.types import ConsumerRecord, PartitionRef


class From(Enum):
    """Where reading begins when that is no offset that we know."""

    BEGINNING = "the first record that there is"
    CLIENT = "wherever the client says"


class Verdict(Enum):
    """What to do with a record."""

    TAKE = "it is the next one"
    DROP = "it was handed over before"
    REFUSE = "nobody said where this partition begins"


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Drop the record and fetch from `start`."""

    start: int | From


class Reading:
    """Where each partition's next record should be; not thread-safe."""

    def __init__(self) -> None:
        self._next: dict[PartitionRef, int | From] = {}
        self._doubted: dict[PartitionRef, int | None] = {}

    def begin(self, place: PartitionRef, start: int | From) -> None:
        """Read `place` from here; the first record is checked."""
        self._next[place] = start
        self.doubt([place])

    def close(self, places: Iterable[PartitionRef]) -> None:
        """Take nothing of these until `begin`."""
        for place in places:
            self._next.pop(place, None)
            self._doubted.pop(place, None)

    def doubt(self, places: Iterable[PartitionRef]) -> None:
        """The client may have moved: check the next record of each."""
        self._doubted.update(dict.fromkeys(places))

    def next_of(self, place: PartitionRef) -> int | From | None:
        """Where the next record of `place` should be; None when that is not decided."""
        return self._next.get(place)

    def check(self, record: ConsumerRecord) -> Verdict | ReadAgain:
        """Judge a record that the client hands over."""
        place, offset = record.place, record.offset
        wanted = self._next.get(place)
        if wanted is None:
            return Verdict.REFUSE
        if place in self._doubted and wanted is not From.CLIENT and wanted != offset:
            if isinstance(wanted, int) and offset < wanted:
                return Verdict.DROP
            if self._doubted[place] != offset:
                self._doubted[place] = offset
                return ReadAgain(wanted)
        self._doubted.pop(place, None)
        self._next[place] = offset + 1
        return Verdict.TAKE
