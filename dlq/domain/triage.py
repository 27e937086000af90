"""Failure groups as values, what state one is in, and where its windows of time begin. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from dlq.types import FailureClass

BUCKET = timedelta(minutes=10)
HOUR = timedelta(hours=1)
TEN_MINUTES_KEPT = timedelta(hours=4)
"""Younger buckets are of ten minutes, older ones of an hour: so the short windows begin within ten minutes."""
SPANS = (
    ("1 h", timedelta(hours=1)),
    ("3 h", timedelta(hours=3)),
    ("24 h", timedelta(hours=24)),
    ("3 d", timedelta(days=3)),
    ("7 d", timedelta(days=7)),
)
SPARK_HOURS = 24


class GroupState(StrEnum):
    """What a person should know of a group first; the earlier in this list, the sooner it is said."""

    CAME_BACK = "came back"
    DONE = "nothing open"
    FIXED = "fixed"
    SNOOZED = "snoozed"
    NEW = "new"
    GROWING = "growing"
    STEADY = "goes on"
    QUIET = "quiet"


class GroupShow(StrEnum):
    """Which groups a list has: what needs a look, snoozed ones, all with something open, or every one."""

    TODO = "todo"
    SNOOZED = "snoozed"
    OPEN = "open"
    ALL = "all"


class GroupSort(StrEnum):
    """The order of the list, the greatest or newest first."""

    OPEN = "open"
    LAST = "last"
    FIRST = "first"
    TOTAL = "total"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """What the list of groups may be narrowed by; empty text = any. `text` is looked for in what is said of a group."""

    text: str = ""
    topic: str = ""
    group: str = ""
    show: GroupShow = GroupShow.TODO
    sort: GroupSort = GroupSort.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How many dead letters of a group were parked since `since`, in whatever state they are now. Exact."""

    label: str
    since: datetime
    parked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One fingerprint of a group. `number` is what the group is called after it is split off."""

    number: int
    fingerprint: str
    handler: str
    failure_class: FailureClass
    error_class: str
    error_message: str
    first_seen_at: datetime
    open: int
    total: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Dead letters of one cause: the same handler, error and place in the code, or merged by a person.

    Counts are exact. `total`: ever parked and still kept. `hours`: parked in each of the last `SPARK_HOURS` hours,
    oldest first. `version` is what a change of the group must name.
    """

    number: int
    fingerprint: str
    name: str
    handler: str
    failure_class: FailureClass
    error_class: str
    error_message: str
    state: GroupState
    open: int
    applied: int
    sent: int
    discarded: int
    total: int
    first_seen_at: datetime
    last_seen_at: datetime | None
    windows: Sequence[Window]
    hours: Sequence[tuple[datetime, float]]
    owner: str
    note: str
    snoozed_until: datetime | None
    fixed_in: str
    fixed_at: datetime | None
    merged: int
    version: int
    changed_by: str
    changed_at: datetime | None

    @property
    def label(self) -> str:
        """What people call it: G-118."""
        return f"G-{self.number}"

    @property
    def title(self) -> str:
        """The name that a person gave it, or else its error."""
        return self.name or self.error_class


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroupPage:
    """One page of groups, with totals over every group that matches, and a cursor for the next page."""

    as_of: datetime
    groups: Sequence[FailureGroup]
    matching: int
    open: int
    snoozed: int
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroupDetail:
    """One group with its fingerprints and where its open ones are: (topic, group, open), the most first."""

    as_of: datetime
    group: FailureGroup
    members: Sequence[GroupMember]
    places: Sequence[tuple[str, str, int]]


def judge_group(
    *,
    now: datetime,
    open_now: int,
    first_seen_at: datetime,
    last_seen_at: datetime | None,
    fixed_at: datetime | None,
    snoozed_until: datetime | None,
    last_hour: int,
    last_three_hours: int,
) -> GroupState:
    """Say the state of a group. It came back when something failed after it was called fixed, whatever was open then.

    Growing: the last hour has more than the two before it together.
    """
    if fixed_at is not None and last_seen_at is not None and last_seen_at > fixed_at:
        return GroupState.CAME_BACK
    if not open_now:
        return GroupState.DONE
    if fixed_at is not None:
        return GroupState.FIXED
    if snoozed_until is not None and snoozed_until > now:
        return GroupState.SNOOZED
    return GroupState.NEW if first_seen_at > now - HOUR else _trend(last_hour, last_three_hours - last_hour)


def _trend(last_hour: int, two_before: int) -> GroupState:
    if last_hour > two_before:
        return GroupState.GROWING
    return GroupState.STEADY if last_hour or two_before else GroupState.QUIET


def window_starts(now: datetime) -> list[datetime]:
    """Where each of `SPANS` begins: at the beginning of a bucket, so that a sum of buckets is exact."""
    return [floor_time(now - span, BUCKET if span < TEN_MINUTES_KEPT else HOUR) for _, span in SPANS]


def spark_hours(now: datetime) -> list[datetime]:
    """The beginnings of the last `SPARK_HOURS` hours, oldest first; the last one is not over yet."""
    last = floor_time(now, HOUR)
    return [last - HOUR * ago for ago in reversed(range(SPARK_HOURS))]


def floor_time(at: datetime, step: timedelta) -> datetime:
    """The last multiple of `step`, counted from the year 2000, that is not after `at`."""
    origin = datetime(2000, 1, 1, tzinfo=UTC)
    return origin + (at - origin) // step * step
