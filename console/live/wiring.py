"""Turn what the domain apps announce into hints. Connected once, in `ConsoleConfig.ready`."""

from typing import Any

from django.dispatch import Signal

from console.live.groups import LiveGroup
from console.live.hints import hint
from dlq.signals import applied_changed, dead_letters_changed
from relay.signals import incidents_changed, lag_changed, processes_changed, relay_changed

_GROUPS: tuple[tuple[Signal, tuple[LiveGroup, ...]], ...] = (
    (relay_changed, (LiveGroup.RELAY, LiveGroup.NOW)),
    (lag_changed, (LiveGroup.LAG, LiveGroup.NOW)),
    (incidents_changed, (LiveGroup.NOW, LiveGroup.SYSTEM)),
    (processes_changed, (LiveGroup.SYSTEM,)),
    (dead_letters_changed, (LiveGroup.DLQ, LiveGroup.NOW)),
    (applied_changed, (LiveGroup.LAG, LiveGroup.NOW)),
)


def connect_signals() -> None:
    """Connect every signal; a second call changes nothing."""
    for number, (signal, groups) in enumerate(_GROUPS):
        signal.connect(_marker(groups), weak=False, dispatch_uid=f"console.live.{number}")


def _marker(groups: tuple[LiveGroup, ...]) -> Any:
    def mark(**_kwargs: Any) -> None:
        hint(*groups)

    return mark
