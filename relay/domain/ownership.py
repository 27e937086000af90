"""Who should hold how many shards. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A runner whose lease is running; a leaving one gives its shards up as soon as somebody can take them."""

    id: UUID
    leaving: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What this runner should do now: take up to `take` free shards, give `give` up."""

    take: int
    give: tuple[int, ...]


def fair_target(me: UUID, peers: Collection[Peer], shards: int) -> int:
    """How many shards `me` should hold: an even split over those that stay, the first ones one more.

    While everybody is leaving, the leaving ones go on sharing: no shard may lie idle for want of a successor.
    """
    staying = sorted(p.id for p in peers if not p.leaving) or sorted(p.id for p in peers)
    if me not in staying:
        return 0
    base, rest = divmod(shards, len(staying))
    return base + (staying.index(me) < rest)


def plan_share(me: UUID, peers: Collection[Peer], held: Sequence[int], shards: int) -> Share:
    """Decide what to take and what to give up.

    The highest shards are given up first, so that two runners that look at the same table decide the same.
    """
    target = fair_target(me, peers, shards)
    give = tuple(sorted(held)[target:])
    return Share(take=max(0, target - len(held)), give=give)
