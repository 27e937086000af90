"""Who holds which shard, as a map of cells and as a table. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from string import ascii_uppercase

from relay.types import Aspect, RunnerView, ShardView

NOBODY = "\N{EN DASH}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCell:
    """One shard: `mark` is the letter of its holder, or a dash."""

    shard: int
    mark: str
    state: str
    holder: str | None
    epoch: int
    hw: int
    moved_at: datetime | None

    @property
    def words(self) -> str:
        """What the cell says to those who do not see it."""
        return f"shard {self.shard}: {self.holder or 'nobody'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedRunner:
    """A runner with its letter and the shards that it holds, as short ranges."""

    mark: str
    runner: RunnerView
    state: str
    shards: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMap:
    """All cells, all runners, and the map in words; `live` runners have a lease."""

    cells: Sequence[ShardCell]
    runners: Sequence[MarkedRunner]
    words: str
    without_holder: int
    live: int


def shard_map(shards: Sequence[ShardView], runners: Sequence[RunnerView]) -> ShardMap:
    """Give each holder a letter, in the order of names, and draw every shard with it."""
    holders = sorted({shard.holder for shard in shards if shard.holder} | {runner.name for runner in runners})
    marks = dict(zip(holders, _letters(), strict=False))
    lapsed = {runner.name for runner in runners if runner.lease_left_s <= 0}
    cells = [_cell(shard, marks, lapsed) for shard in sorted(shards, key=lambda s: s.shard)]
    return ShardMap(
        cells=cells,
        runners=[
            MarkedRunner(
                mark=marks[runner.name],
                runner=runner,
                state=_runner_state(runner),
                shards=say_ranges(runner.shards),
            )
            for runner in sorted(runners, key=lambda r: r.name)
        ],
        words=_words(cells, marks),
        without_holder=sum(cell.holder is None for cell in cells),
        live=len(runners) - len(lapsed),
    )


def say_ranges(numbers: Iterable[int]) -> str:
    """Say numbers as short ranges: 0, 1, 2, 5 -> "0-2, 5"."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)


def _letters() -> Iterable[str]:
    """A to Z, then A2 to Z2, and so on."""
    return (letter if turn == 1 else f"{letter}{turn}" for turn in count(1) for letter in ascii_uppercase)


def _cell(shard: ShardView, marks: Mapping[str, str], lapsed: set[str]) -> ShardCell:
    return ShardCell(
        shard=shard.shard,
        mark=marks[shard.holder] if shard.holder else NOBODY,
        state=_cell_state(shard.holder, lapsed),
        holder=shard.holder,
        epoch=shard.epoch,
        hw=shard.hw,
        moved_at=shard.moved_at,
    )


def _cell_state(holder: str | None, lapsed: set[str]) -> str:
    if holder is None:
        return Aspect.BAD.value
    return Aspect.WARN.value if holder in lapsed else Aspect.OK.value


def _runner_state(runner: RunnerView) -> str:
    return Aspect.OK.value if runner.lease_left_s > 0 else Aspect.BAD.value


def _words(cells: Sequence[ShardCell], marks: Mapping[str, str]) -> str:
    held = Counter(cell.holder for cell in cells)
    named = [f"{held[holder]} held by {mark}, {holder}" for holder, mark in marks.items() if held[holder]]
    nobody = [f"{held[None]} held by nobody"] if held[None] else []
    return f"{len(cells)} shards: {'; '.join([*named, *nobody])}." if cells else "No shard is known yet."
