"""Rewind a consumer group: preview what would move, then move it, only while nobody consumes.

Nothing of it is remembered here: what was ordered stands in the audit of who ordered it, what is true stands in Kafka.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from relay.domain.rewind import describe_wish, plan_rewind
from relay.errors import AsideDied, BadRewind, GroupActive, RewindUnavailable
from relay.kafka.aside import run_aside
from relay.kafka.groups import alter_offsets, list_partitions, read_facts, read_members, read_times
from relay.signals import lag_changed
from relay.types import GroupMembers, RewindOutcome, RewindPlan, RewindStep, RewindStrategy, RewindWish

P = ParamSpec("P")
R = TypeVar("R")
OFFSET_MAX = 2**63 - 1


def preview_rewind(wish: RewindWish) -> RewindPlan:
    """What the wish would do, partition by partition, with the times of the records. Changes nothing.

    Some seconds at most: the broker's answers, and `REWIND_TIMES_WITHIN_S` for the times.

    Raises:
        BadRewind: the topic or a partition does not exist, a value is missing or out of bounds.
        RewindUnavailable: the broker did not answer.
    """
    _check_values(wish)
    partitions = _chosen_partitions(wish)
    who = read_group_members(wish.group)
    steps = plan_rewind(wish, _ask(read_facts, wish.group, wish.topic, partitions, wish.at))
    return RewindPlan(
        wish=wish, words=describe_wish(wish), who=who, steps=_with_times(wish.topic, steps), as_of=timezone.now()
    )


def read_group_members(group: str) -> GroupMembers:
    """Who is in a group now, asked of its coordinator.

    Raises:
        RewindUnavailable: it did not answer.
    """
    return _ask(read_members, group)


def read_committed(group: str, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    """Partition -> (committed offset, first offset that Kafka keeps), now.

    Raises:
        RewindUnavailable: the broker did not answer.
    """
    return {one.partition: (one.committed, one.begin) for one in _ask(read_facts, group, topic, partitions, None)}


def apply_rewind(
    group: str, topic: str, wanted: Mapping[int, int], before: Mapping[int, int | None]
) -> list[RewindOutcome]:
    """Move the offsets, read them back, and say what became of each partition.

    The caller has recorded who orders it: a crash in here leaves what Kafka took, which the next pass shows.

    Raises:
        GroupActive: the group has members; nothing was moved.
        RewindUnavailable: it cannot be told what is committed now.
    """
    who = read_group_members(group)
    if who.members:
        raise GroupActive(f"{group} has {len(who.members)} members again, so nothing was moved.")
    now = _ask(alter_offsets, group, topic, wanted)
    transaction.on_commit(lambda: lag_changed.send(sender=RewindOutcome), robust=True)
    return [
        RewindOutcome(
            partition=partition,
            before=before.get(partition),
            wanted=offset,
            now=now[partition][0],
            error=now[partition][1] or ("" if now[partition][0] == offset else "the broker kept another offset"),
        )
        for partition, offset in sorted(wanted.items())
    ]


def _ask(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    try:
        return run_aside(function, *args, **kwargs)
    except AsideDied as error:
        raise RewindUnavailable(str(error)) from error


def _check_values(wish: RewindWish) -> None:
    needed = {RewindStrategy.OFFSET: wish.offset, RewindStrategy.TIME: wish.at, RewindStrategy.SHIFT: wish.shift}
    if wish.strategy in needed and needed[wish.strategy] is None:
        raise BadRewind(f"The strategy {wish.strategy.value} needs a value.")
    if wish.offset is not None and not 0 <= wish.offset <= OFFSET_MAX:
        raise BadRewind(f"An offset is a whole number from 0 to {OFFSET_MAX:,}.")
    if wish.shift is not None and not -OFFSET_MAX <= wish.shift <= OFFSET_MAX:
        raise BadRewind(f"A shift is a whole number from -{OFFSET_MAX:,} to {OFFSET_MAX:,}.")


def _chosen_partitions(wish: RewindWish) -> list[int]:
    there = list_partitions(wish.topic)
    if not there:
        raise BadRewind(f"Kafka has no topic called {wish.topic}.")
    absent = sorted(set(wish.partitions) - set(there))
    if absent:
        raise BadRewind(f"{wish.topic} has no partition {absent[0]}; it has {there[0]} to {there[-1]}.")
    chosen = sorted(set(wish.partitions)) or there
    if len(chosen) > settings.REWIND_PARTITIONS_MAX:
        raise BadRewind(
            f"{wish.topic} has {len(chosen):,} partitions; choose at most {settings.REWIND_PARTITIONS_MAX} at a time."
        )
    return chosen


def _with_times(topic: str, steps: Sequence[RewindStep]) -> list[RewindStep]:
    """Add the records' times where the log still has the record: not at its end, not before its start."""
    wanted = {
        (step.partition, offset)
        for step in steps
        for offset in (step.before, step.after)
        if offset is not None and step.begin is not None and step.end is not None and step.begin <= offset < step.end
    }
    times = read_times(topic, wanted)
    return [
        replace(
            step,
            before_at=times.get((step.partition, -1 if step.before is None else step.before)),
            after_at=times.get((step.partition, -1 if step.after is None else step.after)),
        )
        for step in steps
    ]
