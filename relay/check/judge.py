"""Hold what was written against what Kafka has. Pure.

Within a key, rows are numbered from 1 under the key's lock, so ascending numbers are the order of publishing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A row that was committed: the `number`-th of its key."""

    key: int
    number: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record of this run as it lies in the topic; `row` is what its key and value say, None = not readable."""

    partition: int
    offset: int
    event_id: str
    row: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was counted. Repeats are allowed: a crash makes them, and they carry the same event id."""

    committed: int
    records: int
    lost: int
    inversions: int
    unknown: int
    repeats: int

    def faults(self) -> list[str]:
        """Say in words which promises were broken; empty = none."""
        found = []
        if self.lost:
            found.append(f"{self.lost:,} committed rows are not in the topic")
        if self.inversions:
            found.append(f"{self.inversions:,} first occurrences lie behind a later row of their key")
        if self.unknown:
            found.append(f"{self.unknown:,} records are of no committed row")
        if not self.committed:
            found.append("nothing was committed, so nothing was tried")
        return found


def judge(written: Mapping[int, int], rows: Mapping[str, Row], records: Iterable[Record]) -> Verdict:
    """Count losses, inversions, unknown records and repeats.

    Args:
        written: How many rows each key committed, as its writers counted them.
        rows: The committed rows by event id, as they are in the outbox.
        records: In offset order within each partition.

    A key that goes on in another partition counts as an inversion: nothing keeps its order there.
    """
    seen: set[str] = set()
    last: dict[int, int] = {}
    homes: dict[int, int] = {}
    count = inversions = unknown = repeats = 0
    for record in records:
        count += 1
        row = rows.get(record.event_id)
        if row is None or row != record.row:
            unknown += 1
        elif record.event_id in seen:
            repeats += 1
        else:
            seen.add(record.event_id)
            home = homes.setdefault(row.key, record.partition)
            inversions += row.number < last.get(row.key, 0) or home != record.partition
            last[row.key] = max(row.number, last.get(row.key, 0))
    committed = sum(written.values())
    return Verdict(
        committed=committed,
        records=count,
        lost=committed - len(seen),
        inversions=inversions,
        unknown=unknown,
        repeats=repeats,
    )
