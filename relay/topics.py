"""The topics that this installation declares in code. Filled at start, read by everybody.

Derived topics follow from other things that are declared (a dead-letter topic from a handler), so they are worked out
when they are asked for; one that is declared under the same name goes before.
"""

from collections.abc import Callable, Iterable

from relay.errors import TopicConflict, UnknownTopic
from relay.types import TopicSpec

_declared: dict[str, TopicSpec] = {}
_derive: list[Callable[[], Iterable[TopicSpec]]] = []


def declare_topic(spec: TopicSpec) -> TopicSpec:
    """Declare a topic; saying the same twice is fine.

    Raises:
        TopicConflict: it was declared before with other values.
    """
    known = _declared.setdefault(spec.name, spec)
    if known != spec:
        raise TopicConflict(
            f"The topic {spec.name!r} is declared twice with different values. Declare it in one place, for example "
            "in the ready() of the app that owns it."
        )
    return known


def derive_topics(derive: Callable[[], Iterable[TopicSpec]]) -> None:
    """Let further topics follow from what is declared; `derive` must not list topics itself."""
    _derive.append(derive)


def get_declared_topic(name: str) -> TopicSpec | None:
    """Return the topic if it was declared itself."""
    return _declared.get(name)


def get_topic(name: str) -> TopicSpec:
    """Return the declared topic.

    Raises:
        UnknownTopic: nobody declared it.
    """
    spec = _declared.get(name) or _derived().get(name)
    if spec is None:
        raise UnknownTopic(
            f"The topic {name!r} is not declared. Call relay.facade.declare_topic(TopicSpec(name={name!r})) in the "
            f"ready() of your app. Declared now: {', '.join(sorted(_declared)) or 'none'}."
        )
    return spec


def list_topics() -> list[TopicSpec]:
    """Every declared or derived topic by name."""
    known = {**_derived(), **_declared}
    return [known[name] for name in sorted(known)]


def _derived() -> dict[str, TopicSpec]:
    return {spec.name: spec for derive in _derive for spec in derive()}
