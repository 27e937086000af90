"""The closed list of what a hint can name. Pure."""

from enum import StrEnum


class LiveGroup(StrEnum):
    """A part of the console that can have changed; the value is what the page's panels name in `data-live`."""

    NOW = "now"
    RELAY = "relay"
    LAG = "lag"
    DLQ = "dlq"
    SYSTEM = "system"


def channel_group(group: LiveGroup) -> str:
    """The name of the Channels group."""
    return f"live.{group.value}"


def parse_groups(text: str) -> list[LiveGroup]:
    """The known groups named in "relay,lag"; an unknown name is left out, no text means all."""
    if not text:
        return list(LiveGroup)
    wanted = set(text.split(",", len(LiveGroup))[: len(LiveGroup)])
    return [group for group in LiveGroup if group.value in wanted]
