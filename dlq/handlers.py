"""Which function handles which event of which group: the registry behind `@handler`.

    @handler(topic="claim-events", group="claim-workers", event_types=["claim.opened"])
    def triage(event: Event, tx: Tx) -> Result | None: ...

A handler runs inside one open database transaction together with the dedupe row of its event: what it writes through
Django's default connection and what it publishes is committed once, or not at all. It may be run again when the
attempt failed; it must not commit, nor start threads that outlive it.

A group ignores event types that none of its handlers names: their offsets move, they are counted in the process's
heartbeat, nothing is written. A handler without `event_types` takes every type of its topic that no other handler of
the group names. A `handlers` module of an installed app is imported at start.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from dlq.domain.envelope import Decode
from dlq.types import Event, GroupSpec, Result
from relay import facade as relay
from relay.types import PublishedEvent

_NAME_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Tx:
    """The attempt that a handler runs in: its transaction is open on Django's default connection.

    `attempt` counts from 1, over restarts. `ends_at` is the deadline on `time.monotonic()`.
    """

    group: str
    handler: str
    attempt: int
    ends_at: float

    def left_s(self) -> float:
        """Return the seconds left to the deadline, for time-outs of calls that the handler makes; at least 0."""
        return max(0.0, self.ends_at - time.monotonic())

    def publish(
        self,
        topic: str,
        *,
        key: str | bytes | UUID | int | None,
        type: str,  # noqa: A002 - the event's type, as everywhere
        payload: object,
        headers: Mapping[str, str | bytes | None] | None = None,
    ) -> PublishedEvent:
        """Publish in this transaction; see `relay.facade.publish`."""
        return relay.publish(topic, key=key, type=type, payload=payload, headers=headers)


HandlerFunction = Callable[[Event, Tx], Result | None]
F = TypeVar("F", bound=HandlerFunction)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec:
    """A registered handler; `event_types` None = every type that no other handler of the group names."""

    name: str
    group: str
    topic: str
    event_types: frozenset[str] | None
    decode: Decode
    run: HandlerFunction


class UnknownGroup(LookupError):
    """No handler is registered for the group; the text lists those that are known."""


_registry: dict[tuple[str, str, str], HandlerSpec] = {}


def handler(
    *, topic: str, group: str, event_types: Collection[str] | None = None, decode: Decode = "json"
) -> Callable[[F], F]:
    """Register a function as the handler of these event types of `topic` in `group`.

    Raises:
        ValueError: a name is empty or too long, or `event_types` is an empty list.
        TypeError: `event_types` is one string.
    """
    _check_names(topic, group, event_types)

    def register(function: F) -> F:
        name = f"{function.__module__}.{function.__qualname__}"[-_NAME_LIMIT:]
        _registry[group, topic, name] = HandlerSpec(
            name=name,
            group=group,
            topic=topic,
            event_types=None if event_types is None else frozenset(event_types),
            decode=decode,
            run=function,
        )
        return function

    return register


def unregister_group(group: str) -> None:
    """Forget a group's handlers; for tests that register their own."""
    for place in [place for place in _registry if place[0] == group]:
        del _registry[place]


def list_groups() -> list[GroupSpec]:
    """Every group that has a handler, by name."""
    groups: dict[str, list[HandlerSpec]] = {}
    for spec in _registry.values():
        groups.setdefault(spec.group, []).append(spec)
    return [
        GroupSpec(
            name=name,
            topics=sorted({spec.topic for spec in groups[name]}),
            handlers=sorted({spec.name for spec in groups[name]}),
        )
        for name in sorted(groups)
    ]


def list_routes() -> list[HandlerSpec]:
    """Every registered handler."""
    return list(_registry.values())


def find_clashes() -> list[str]:
    """Say in words which handlers are registered for the same thing."""
    taken: dict[tuple[str, str, str | None], list[str]] = {}
    for spec in _registry.values():
        for event_type in spec.event_types or [None]:
            taken.setdefault((spec.group, spec.topic, event_type), []).append(spec.name)
    return [
        f"{' and '.join(sorted(names))} both handle {event_type or 'every other event type'} of {topic} in {group}"
        for (group, topic, event_type), names in taken.items()
        if len(names) > 1
    ]


class Routes:
    """The handlers of one group, ready to look up."""

    def __init__(self, group: str) -> None:
        """Read the registry.

        Raises:
            UnknownGroup: nothing is registered for `group`.
        """
        specs = [spec for spec in _registry.values() if spec.group == group]
        if not specs:
            known = ", ".join(g.name for g in list_groups()) or "none; no app has registered a handler"
            raise UnknownGroup(f'no handler is registered for the group "{group}". Known groups: {known}.')
        self.topics = sorted({spec.topic for spec in specs})
        self._named = {(spec.topic, t): spec for spec in specs for t in spec.event_types or ()}
        self._others = {spec.topic: spec for spec in specs if spec.event_types is None}
        self._handlers = Counter(spec.topic for spec in specs)

    def find(self, topic: str, event_type: str) -> HandlerSpec | None:
        """Return the handler of an event type, or None when the group ignores it."""
        return self._named.get((topic, event_type)) or self._others.get(topic)

    def count_handlers(self, topic: str) -> int:
        """Return how many handlers of the group read a topic."""
        return self._handlers[topic]


def _check_names(topic: str, group: str, event_types: Collection[str] | None) -> None:
    for what, name in (("topic", topic), ("group", group)):
        if not name or len(name) > _NAME_LIMIT:
            raise ValueError(f"{what} must be 1 to {_NAME_LIMIT} characters")
    if isinstance(event_types, str):
        raise TypeError(f'event_types must be a list of types, not the text "{event_types}"')
    if event_types is not None and not event_types:
        raise ValueError("event_types is empty: leave it out to handle every type")
