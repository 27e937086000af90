"""Stop and start a group of Signalbox from outside: a row that its consumers obey.

A stopped group's processes stay alive, finish what runs, commit, leave the group and wait; so its offsets can be moved.

Errors: SwitchError <- AlreadyStopped | NotStopped; UnknownGroup is of `dlq.handlers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction

from dlq.handlers import UnknownGroup, list_groups
from relay.signals import lag_changed

_STOP = """
INSERT INTO dlq_group_switch (group_name, stopped, reason, set_by, set_at) VALUES (%s, true, %s, %s, clock_timestamp())
ON CONFLICT (group_name) DO UPDATE
SET stopped = true, reason = excluded.reason, set_by = excluded.set_by, set_at = excluded.set_at
WHERE NOT dlq_group_switch.stopped
"""
_START = """
UPDATE dlq_group_switch SET stopped = false, reason = %s, set_by = %s, set_at = clock_timestamp()
WHERE group_name = %s AND stopped
"""
_READ = "SELECT group_name, stopped, reason, set_by, set_at FROM dlq_group_switch"


class SwitchError(Exception):
    """A group cannot be stopped or started as things are; nothing was changed."""


class AlreadyStopped(SwitchError):
    """Somebody stopped it before."""


class NotStopped(SwitchError):
    """Nobody has stopped it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSwitch:
    """What people want of a group's consumers, who set it and why."""

    group: str
    stopped: bool
    reason: str
    set_by: str
    set_at: datetime


def stop_group(group: str, *, actor: str, reason: str) -> None:
    """Let the group's consumers leave it and wait until it is started.

    Raises:
        UnknownGroup: no handler is registered for it.
        AlreadyStopped: with who did it.
    """
    _require_known(group)
    with connection.cursor() as cursor:
        cursor.execute(_STOP, [group, reason, actor[:150]])
        if not cursor.rowcount:
            raise AlreadyStopped(f"{group} is stopped already, {_by(group)}.")
    _announce()


def start_group(group: str, *, actor: str, reason: str = "") -> None:
    """Let the group's consumers join it again.

    Raises:
        UnknownGroup, NotStopped.
    """
    _require_known(group)
    with connection.cursor() as cursor:
        cursor.execute(_START, [reason, actor[:150], group])
        if not cursor.rowcount:
            raise NotStopped(f"{group} is not stopped: somebody has started it already.")
    _announce()


def get_switch(group: str) -> GroupSwitch | None:
    """What is wanted of one group; None = nobody has ever stopped it."""
    return get_switches().get(group)


def get_switches() -> Mapping[str, GroupSwitch]:
    """What is wanted of each group that somebody has stopped once: a handful of rows."""
    with connection.cursor() as cursor:
        cursor.execute(_READ)
        return {
            group: GroupSwitch(group=group, stopped=stopped, reason=reason, set_by=set_by, set_at=set_at)
            for group, stopped, reason, set_by, set_at in cursor.fetchall()
        }


def _require_known(group: str) -> None:
    if all(spec.name != group for spec in list_groups()):
        raise UnknownGroup(f"{group} is no group of Signalbox: no handler is registered for it.")


def _by(group: str) -> str:
    switch = get_switch(group)
    return f"by {switch.set_by}: {switch.reason}" if switch else "by somebody"


def _announce() -> None:
    transaction.on_commit(lambda: lag_changed.send(sender=GroupSwitch), robust=True)
