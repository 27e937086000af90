"""System checks of the relay: what it needs from the apps above it is there."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, register

from relay.ports import may_park


@register("signalbox")
def check_ports(*_: Any, **__: Any) -> Sequence[CheckMessage]:
    """Somebody parks the rows that a topic's policy gives up."""
    if may_park():
        return []
    return [
        Error(
            "Nobody parks rows that the relay gives up, so topics with the policy 'park' block their keys instead.",
            hint="Install the app 'dlq', or call relay.ports.register_park() in the ready() of an app of yours.",
            id="relay.E001",
        )
    ]
