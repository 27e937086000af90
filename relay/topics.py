"""The topics that this installation declares in code. Filled at start, read by everybody."""

from relay.errors import TopicConflict, UnknownTopic
from relay.types import TopicSpec

_declared: dict[str, TopicSpec] = {}


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


def get_topic(name: str) -> TopicSpec:
    """Return the declared topic.

    Raises:
        UnknownTopic: nobody declared it.
    """
    spec = _declared.get(name)
    if spec is None:
        raise UnknownTopic(
            f"The topic {name!r} is not declared. Call relay.facade.declare_topic(TopicSpec(name={name!r})) in the "
            f"ready() of your app. Declared now: {', '.join(sorted(_declared)) or 'none'}."
        )
    return spec


def list_topics() -> list[TopicSpec]:
    """Every declared topic by name."""
    return [_declared[name] for name in sorted(_declared)]
