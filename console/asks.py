"""A question before an act: its scope and consequence in words, what it needs, and where the answer goes. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from console.permissions import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One thing that the person says. With `choices`, (value, words) each, it is one of them; with `rows` a text."""

    name: str
    label: str
    value: str = ""
    hint: str = ""
    choices: Sequence[tuple[str, str]] = ()
    options: Sequence[str] = ()
    is_number: bool = False
    is_required: bool = True
    most_chars: int = 249
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is asked. `hidden` names the object again, and what was seen of it; `kind` is the button's look."""

    title: str
    words: Sequence[str]
    action: Action
    button: str
    kind: str = "primary"
    post_to: str = ""
    hidden: Mapping[str, str] = field(default_factory=dict)
    facts: Sequence[tuple[str, str]] = ()
    fields: Sequence[Field] = ()
    needs_reason: bool = False
