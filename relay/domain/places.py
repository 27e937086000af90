"""Where a reader is in the outbox, and where it is after a round. Pure.

A place is (hw, snapshot): every row up to `hw` that `snapshot` could see was read. In the next round a row is
- *late*: at or below `hw`, and not visible in the stored snapshot (`xid = ANY(xip) OR xid >= xmax`);
- *fresh*: above `hw`.
Late rows are paged: while more than a page of them remain, the old snapshot stays, `late_cursor` says how far the
pages are, `late_snapshot` is what was visible at the first page (later pages show rows of that snapshot only), and no
fresh row is read. After the last page `late_snapshot` becomes the stored snapshot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """PostgreSQL's `pg_snapshot`: ids below `xmin` are over, from `xmax` on unseen, `xip` were running."""

    xmin: int
    xmax: int
    xip: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        """Read `xmin:xmax:xip,xip`."""
        xmin, xmax, running = text.split(":")
        return cls(xmin=int(xmin), xmax=int(xmax), xip=tuple(int(x) for x in running.split(",") if x))

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.xip))}"

    def is_visible(self, xid: int) -> bool:
        """Tell whether a transaction had committed or failed when the snapshot was taken."""
        return xid < self.xmax and xid not in self.xip


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a reader is; see the module."""

    hw: int
    snapshot: Snapshot
    late_floor: int = 0
    late_cursor: int = 0
    late_snapshot: Snapshot | None = None

    @property
    def is_paging(self) -> bool:
        """Tell whether late rows are being paged, so that no fresh row may be read."""
        return self.late_snapshot is not None

    @property
    def order(self) -> tuple[int, int, int]:
        """Sorts places of one reader by how far they are."""
        return self.hw, self.snapshot.xmax, self.late_cursor

    @property
    def late_after(self) -> int:
        """Late rows lie above this position."""
        return max(self.late_floor, self.late_cursor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Positions that one read returned for all its readers' late rows, and whether it was cut at its limit."""

    last: int | None
    is_cut: bool


def advance(place: Place, *, late: Page, last_fresh: int | None, snapshot: Snapshot, top: int = 0) -> Place:
    """Return the place after a round that read at `snapshot`. Fresh rows count only when `takes_fresh()`.

    `top` is a position that was given out before the round read; it may be passed when the round returned every fresh
    row of this reader. What lies at or below it and was not visible yet is found as late.
    """
    if late.is_cut and late.last is not None:
        return replace(
            place,
            late_cursor=max(place.late_cursor, late.last),
            late_snapshot=place.late_snapshot or snapshot,
        )
    if place.late_snapshot is not None:
        return replace(place, snapshot=place.late_snapshot, late_cursor=0, late_snapshot=None)
    return replace(place, hw=max(place.hw, last_fresh or 0, top), snapshot=snapshot)


def takes_fresh(place: Place, late: Page) -> bool:
    """Tell whether the fresh rows of this round may be published."""
    return not late.is_cut and not place.is_paging


def share_quota(places: Mapping[int, Place], hungry: frozenset[int], *, rows: int, least: int) -> dict[int, int]:
    """Split a round of `rows` fresh rows over shards.

    Shards whose last quota was used up (`hungry`) share the round; the others get `least`, so that a busy shard fills
    a round alone and a quiet one is never left out. A shard in late pages gets 0.
    """
    readers = [shard for shard, place in places.items() if not place.is_paging]
    eager = [shard for shard in readers if shard in hungry]
    if not eager:
        even = max(least, rows // max(1, len(readers)))
        return {shard: even if shard in readers else 0 for shard in places}
    large = max(least, rows // len(eager))
    return {shard: 0 if shard not in readers else (large if shard in hungry else least) for shard in places}
