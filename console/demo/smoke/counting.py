"""Hold what was published against what Kafka has and what was applied. Pure.

Sequences count from 1 within a key and were given under the key's lock, so ascending sequence is publish order.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """An event whose transaction committed."""

    event_id: UUID
    key: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as it lies in the topic."""

    event_id: UUID
    key: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One effect; `place` ascends in the order in which effects were applied."""

    event_id: UUID
    key: str
    sequence: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What the smoke run prints. `acked` and `applied` count events, not records or effects."""

    published: int
    acked: int
    applied: int
    duplicates_skipped: int
    lost: int
    double_effects: int
    order_inversions: int
    rolled_back_seen: int
    parked: int
    delivered_twice: int

    def faults(self, *, expected: int) -> list[str]:
        """Say in words what is wrong; empty = every promise was kept and the run proved something."""
        zeros = ("lost", "double_effects", "order_inversions", "rolled_back_seen")
        found = [f"{name} is {value}, must be 0" for name, value in asdict(self).items() if name in zeros and value]
        if self.published != expected:
            found.append(f"published {self.published} of {expected} events")
        if self.acked != self.published:
            found.append(f"acked is {self.acked}, published {self.published}")
        if self.applied + self.parked != self.acked:
            found.append(f"applied {self.applied} + parked {self.parked} is not acked {self.acked}")
        if not self.delivered_twice and not self.duplicates_skipped:
            found.append("no record was delivered twice, so the run did not try the dedupe: run it again")
        return found


def count_outcomes(
    *,
    published: Collection[Published],
    rolled_back: Collection[UUID],
    records: Sequence[Record],
    applied: Sequence[Applied],
    parked: Collection[UUID],
    duplicates_skipped: int,
) -> Count:
    """Count losses, doubles, inversions and ghosts.

    An event is lost when it is not in the topic, or neither applied nor parked. Applied and parked at once counts
    as a double effect, as does each effect after the first.
    """
    ids = {event.event_id for event in published}
    in_topic = {record.event_id for record in records}
    effects = Counter(effect.event_id for effect in applied)
    done = set(effects) | set(parked)
    ghosts = set(rolled_back) & (in_topic | done)
    return Count(
        published=len(ids),
        acked=len(ids & in_topic),
        applied=len(ids & set(effects)),
        duplicates_skipped=duplicates_skipped,
        lost=len(ids - (in_topic & done)),
        double_effects=sum(times - 1 for times in effects.values()) + len(set(effects) & set(parked)),
        order_inversions=_topic_inversions(published, records) + _effect_inversions(applied),
        rolled_back_seen=len(ghosts),
        parked=len(ids & set(parked)),
        delivered_twice=len(records) - len(in_topic),
    )


def _topic_inversions(published: Iterable[Published], records: Iterable[Record]) -> int:
    """First occurrences of a key that lie after a later one, or in another partition than the one before."""
    sequences = {event.event_id: event.sequence for event in published}
    seen: set[UUID] = set()
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for record in sorted(records, key=lambda r: (r.partition, r.offset)):
        if record.event_id in seen or record.event_id not in sequences:
            continue
        seen.add(record.event_id)
        by_key[record.key].append((record.partition, sequences[record.event_id]))
    return sum(
        later[0] != earlier[0] or later[1] < earlier[1]
        for firsts in by_key.values()
        for earlier, later in pairwise(firsts)
    )


def _effect_inversions(applied: Iterable[Applied]) -> int:
    by_key: dict[str, list[int]] = defaultdict(list)
    for effect in sorted(applied, key=lambda e: e.place):
        by_key[effect.key].append(effect.sequence)
    return sum(later < earlier for order in by_key.values() for earlier, later in pairwise(order))
