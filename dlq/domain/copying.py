"""What a dead letter's copy for the dead-letter topic is: its name, its rule, and a record that fits. Pure.

A copy never fails for what it holds. What does not fit is left out in this order: the stack, the message, the class of
the error, the record's own headers, its value, its key; never where it comes from.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlq.domain.export import EXPORT_FAMILIES, ExportFacts, Header, export_headers, keep_own
from dlq.domain.foreign import OWN
from dlq.types import CopiedPayload, Family

SUFFIX = ".dlq"
TOPIC_CHARS = 249
RESERVED = frozenset({"event-id", "event-type", "published-at", "content-type"})
"""Headers that the relay writes anew: those of the record travel as `x-signalbox-event-id` and so on."""
_RESERVED_VALUE_BYTES = 200
_RESERVED_HEADERS = 8  # a broken record may have one of them many times
_ODD = re.compile(r"[^a-zA-Z0-9._-]")
_DIGEST_CHARS = 8
_RULE_FIELDS: Mapping[str, type] = {"on": bool, "to": str, "family": str, "payload": bool}


class BadCopyRule(ValueError):
    """A rule of `DLQ_COPY_RULES` cannot be; the text says which and what may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRule:
    """How the dead letters of one topic and group are copied; `with_payload` = key, value and own headers too."""

    topic: str
    group: str
    is_on: bool
    to: str
    family: Family
    with_payload: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLimits:
    """`record_bytes` bounds key, value and headers, `added_bytes` the headers that are added, `headers` counts them."""

    record_bytes: int
    added_bytes: int
    headers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The record to publish, and what was left out of it (words, such as `stack`)."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    payload: CopiedPayload
    shed: Sequence[str]


# -- Names and rules ---------------------------------------------------------------------------------------
def name_copy_topic(topic: str, group: str) -> str:
    """Return `<topic>.<group>.dlq`; a name that Kafka refuses is made legal and told apart by a digest."""
    plain = f"{topic}.{group}{SUFFIX}"
    legal = _ODD.sub("_", plain)
    if legal == plain and len(plain) <= TOPIC_CHARS:
        return plain
    digest = hashlib.sha256(f"{topic}\0{group}".encode()).hexdigest()[:_DIGEST_CHARS]
    end = f"-{digest}{SUFFIX}"
    return legal.removesuffix(SUFFIX)[: TOPIC_CHARS - len(end)] + end


def find_rule(rules: Mapping[str, Mapping[str, object]], topic: str, group: str) -> CopyRule:
    """Return the rule of a topic and group: `topic/group` goes before `topic`, that before `*`, field by field.

    Raises:
        BadCopyRule: what is written there cannot be.
    """
    found: dict[str, object] = {"on": True, "to": "", "family": Family.SPRING.value, "payload": False}
    for subject in ("*", topic, f"{topic}/{group}"):
        found |= check_rule(subject, rules.get(subject, {}))
    return CopyRule(
        topic=topic,
        group=group,
        is_on=bool(found["on"]),
        to=str(found["to"]) or name_copy_topic(topic, group),
        family=Family(str(found["family"])),
        with_payload=bool(found["payload"]),
    )


def check_rule(subject: str, rule: object) -> Mapping[str, object]:
    """Return the rule when it can be.

    Raises:
        BadCopyRule: it cannot.
    """
    if not isinstance(rule, Mapping):
        raise BadCopyRule(f'the rule of "{subject}" must be an object with {", ".join(_RULE_FIELDS)}')
    for name, value in rule.items():
        wanted = _RULE_FIELDS.get(name)
        if wanted is None:
            raise BadCopyRule(f'the rule of "{subject}" has "{name}"; there are {", ".join(_RULE_FIELDS)}')
        if not isinstance(value, wanted):
            raise BadCopyRule(f'"{name}" of "{subject}" must be {"true or false" if wanted is bool else "a text"}')
    _check_family(subject, rule)
    _check_name(subject, rule)
    return rule


def _check_family(subject: str, rule: Mapping[str, object]) -> None:
    names = [family.value for family in EXPORT_FAMILIES]
    if rule.get("family", names[0]) not in names:
        raise BadCopyRule(f'"family" of "{subject}" must be {" or ".join(names)}')


def _check_name(subject: str, rule: Mapping[str, object]) -> None:
    to = str(rule.get("to", ""))
    if _ODD.search(to) or len(to) > TOPIC_CHARS or to in (".", ".."):
        raise BadCopyRule(f'"to" of "{subject}" must be a topic name of Kafka: 1 to {TOPIC_CHARS} of a-z A-Z 0-9 . _ -')


# -- The record --------------------------------------------------------------------------------------------
def build_copy(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header] | None,
    *,
    facts: ExportFacts,
    rule: CopyRule,
    limits: CopyLimits,
) -> Copy:
    """Build the copy of a record; `headers` None = they could not be read. Never raises on content."""
    own, told = _own_headers(headers or (), rule)
    whole = Copy(
        key=key if rule.with_payload else None,
        value=value if rule.with_payload else None,
        headers=own,
        payload=_payload_word(value, rule),
        shed=() if headers is not None else ("headers",),
    )
    for tried in _ever_smaller(whole):
        copy = _complete(tried, told, facts, rule, limits)
        if copy is not None:
            return copy
    return replace(_bare(facts, rule, limits), shed=("everything but its place",))


def _own_headers(headers: Sequence[Header], rule: CopyRule) -> tuple[list[Header], list[Header]]:
    """Return (own headers that may travel, the relay's four as the record had them)."""
    kept = keep_own(headers, rule.family)
    told = [
        (OWN + name.lower(), value)
        for name, value in kept
        if name.lower() in RESERVED and len(value or b"") <= _RESERVED_VALUE_BYTES
    ][:_RESERVED_HEADERS]
    if not rule.with_payload:
        return [], told
    return [(name, value) for name, value in kept if name.lower() not in RESERVED], told


def _payload_word(value: bytes | None, rule: CopyRule) -> CopiedPayload:
    if not rule.with_payload:
        return CopiedPayload.WITHHELD
    return CopiedPayload.NONE if value is None else CopiedPayload.COPIED


def _ever_smaller(whole: Copy) -> list[Copy]:
    """The copy with ever less of the record itself."""
    usable = [(name, value) for name, value in whole.headers if name and "\0" not in name]
    if len(usable) < len(whole.headers):
        whole = replace(whole, headers=usable, shed=(*whole.shed, "headers without a name"))
    if whole.key == b"":
        whole = replace(whole, key=None, shed=(*whole.shed, "empty key"))
    bare = replace(whole, headers=(), shed=(*whole.shed, "own headers")) if whole.headers else whole
    empty = bare
    if bare.value is not None:
        empty = replace(bare, value=None, payload=CopiedPayload.SHED, shed=(*bare.shed, "payload"))
    keyless = replace(empty, key=None, shed=(*empty.shed, "key")) if empty.key is not None else empty
    return [whole, bare, empty, keyless]


def _complete(
    tried: Copy, told: Sequence[Header], facts: ExportFacts, rule: CopyRule, limits: CopyLimits
) -> Copy | None:
    """Add the headers; None = it does not fit even without the stack, the message and the class."""
    room = limits.record_bytes - _size(tried, told) - _NOTE_BYTES
    _, added = export_headers((), facts, rule.family, limit_bytes=min(limits.added_bytes, room))
    shed = (*_left_out(facts, added), *tried.shed)
    headers = [*tried.headers, *told, *added, *_notes(tried.payload, shed)]
    if sum(_header_size(header) for header in added) > room or len(headers) > limits.headers:
        return None
    return replace(tried, headers=headers, shed=shed)


def _bare(facts: ExportFacts, rule: CopyRule, limits: CopyLimits) -> Copy:
    _, added = export_headers((), facts, rule.family, limit_bytes=0)
    payload = CopiedPayload.SHED if rule.with_payload else CopiedPayload.WITHHELD
    return Copy(key=None, value=None, headers=added[: limits.headers], payload=payload, shed=())


_NOTE_BYTES = 300


def _notes(payload: CopiedPayload, shed: Sequence[str]) -> list[Header]:
    notes: list[Header] = [(f"{OWN}payload", payload.value.encode())]
    if shed:
        notes.append((f"{OWN}shed", ", ".join(shed).encode()))
    return notes


def _left_out(facts: ExportFacts, added: Sequence[Header]) -> list[str]:
    names = {name for name, _ in added}
    told = (("stack", facts.stack), ("error-message", facts.message), ("error-class", facts.error_class))
    return [name for name, text in told if text and OWN + name not in names]


def _size(copy: Copy, told: Sequence[Header]) -> int:
    return len(copy.key or b"") + len(copy.value or b"") + sum(_header_size(h) for h in (*copy.headers, *told))


def _header_size(header: Header) -> int:
    name, value = header
    return len(name.encode()) + len(value or b"")
