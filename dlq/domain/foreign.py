"""Whose headers a foreign dead letter carries, and what they say. Pure; never raises on any content.

Programs append: the same header may be there once for every dead-letter topic that a record went through. The first
value tells the first stop, the last one the latest failure. Headers of several programs are all read; each copies
what it found and adds its own behind it, so their order is the order of events.

Sources: the documented encodings of each program; `tests/unit/test_foreign_headers.py` has them as exact bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from dlq.domain import header_codecs as codecs
from dlq.domain.failure import HIDDEN
from dlq.domain.foreign_frames import foreign_frames
from dlq.domain.header_codecs import INT32_MAX, Unreadable
from dlq.types import FAMILY_NAMES, FailureClass, Family, ForeignOrigin

Headers = Sequence[tuple[str, bytes | None]]
STOPS_LIMIT = 20
COMPLAINTS_LIMIT = 20
UNKNOWN_CLASS = "unknown"
OWN = "x-signalbox-"
PAYLOAD_LABEL = "payload"
# What Kafka itself says of a share group's record: fixed texts, so they may be kept.
_KNOWN_TEXTS = ("Offset rejected by client.", "Offset delivery count exceeded the threshold.")
_SCHEMA_CLASSES = ("DeserializationException", "SerializationException", "errors.DataException")


class Role(Enum):
    """What a header tells."""

    TOPIC = auto()
    PARTITION = auto()
    OFFSET = auto()
    TIMESTAMP = auto()
    GROUP = auto()
    HANDLER = auto()
    ATTEMPTS = auto()
    ERROR = auto()
    MESSAGE = auto()
    STACK = auto()
    KEY_ERROR = auto()
    DETAIL = auto()


_PLACE = (Role.TOPIC, Role.PARTITION, Role.OFFSET)


@dataclass(frozen=True, slots=True)
class Field:
    """One header of a family: how its bytes are to be read; `may_be_null` where the program writes null for none."""

    name: str
    role: Role
    read: Callable[[bytes], Any]
    may_be_null: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """A family's headers. It is there when one of `marks` is, or all of `needs`."""

    family: Family
    fields: Sequence[Field]
    shared: Sequence[str] = ()
    """Names that other families use too, so that they prove nothing."""
    needs: Sequence[str] = ()
    """Names that must all be there, where they are so common that one proves nothing."""

    def is_in(self, names: Mapping[str, Any]) -> bool:
        """Tell whether a record with headers of these names carries this family."""
        if self.needs:
            return all(name in names for name in self.needs)
        return any(f.name in names for f in self.fields if f.name not in self.shared)


def _place(names: Sequence[str], number: Callable[[bytes], int]) -> list[Field]:
    topic, partition, offset = names
    return [
        Field(topic, Role.TOPIC, codecs.topic),
        Field(partition, Role.PARTITION, lambda raw: codecs.to_count(number(raw), INT32_MAX)),
        Field(offset, Role.OFFSET, lambda raw: codecs.to_count(number(raw))),
    ]


def _time(name: str, number: Callable[[bytes], int]) -> Field:
    return Field(name, Role.TIMESTAMP, lambda raw: codecs.to_time(number(raw)))


def _count(name: str, number: Callable[[bytes], int]) -> Field:
    return Field(name, Role.ATTEMPTS, lambda raw: codecs.to_count(number(raw), INT32_MAX))


def _detail(name: str, label: str, read: Callable[[bytes], Any] = codecs.text) -> Field:
    return Field(name, Role.DETAIL, read, label=label)


def _spring(family: Family, origin: str, error: str, more: Sequence[Field], shared: Sequence[str] = ()) -> Layout:
    """Spring's three families: numbers are big-endian bytes; the cause says more than the wrapper around it."""
    return Layout(
        family,
        [
            *_place([f"{origin}topic", f"{origin}partition", f"{origin}offset"], codecs.big_endian),
            _time(f"{origin}timestamp", codecs.big_endian),
            _detail(f"{origin}timestamp-type", "kind of its time"),
            Field(f"{error}exception-cause-fqcn", Role.ERROR, codecs.class_name),
            Field(f"{error}exception-fqcn", Role.ERROR, codecs.class_name),
            Field(f"{error}exception-message", Role.MESSAGE, codecs.free_text, may_be_null=True),
            Field(f"{error}exception-stacktrace", Role.STACK, codecs.free_text),
            *more,
        ],
        shared,
    )


_SPRING_GROUP = Field("kafka_dlt-original-consumer-group", Role.GROUP, codecs.text)
_DELIVERY = _count("kafka_deliveryAttempt", codecs.big_endian)
_DELIVERY_NAME = _DELIVERY.name


def _key_error(prefix: str) -> list[Field]:
    return [
        Field(f"{prefix}key-exception-fqcn", Role.KEY_ERROR, codecs.class_name),
        Field(f"{prefix}key-exception-message", Role.MESSAGE, codecs.free_text, may_be_null=True),
        Field(f"{prefix}key-exception-stacktrace", Role.STACK, codecs.free_text),
    ]


LAYOUTS: Sequence[Layout] = (
    Layout(
        Family.SIGNALBOX,
        [
            *_place([f"{OWN}topic", f"{OWN}partition", f"{OWN}offset"], codecs.decimal),
            _time(f"{OWN}timestamp", codecs.decimal),
            Field(f"{OWN}group", Role.GROUP, codecs.text),
            Field(f"{OWN}handler", Role.HANDLER, codecs.text),
            _count(f"{OWN}attempts", codecs.decimal),
            Field(f"{OWN}error-class", Role.ERROR, codecs.class_name),
            Field(f"{OWN}error-message", Role.MESSAGE, codecs.free_text),
            Field(f"{OWN}stack", Role.STACK, codecs.free_text),
            _detail(f"{OWN}dead-letter", "dead letter there"),
            _detail(f"{OWN}event-id", "event id"),
            _detail(f"{OWN}payload", PAYLOAD_LABEL),
            _detail(f"{OWN}shed", "left out"),
        ],
    ),
    Layout(
        Family.SHARE_GROUP,
        [
            *_place([f"__dlq.errors.{name}" for name in ("topic", "partition", "offset")], codecs.decimal),
            Field("__dlq.errors.group", Role.GROUP, codecs.text),
            _count("__dlq.errors.delivery.count", codecs.decimal),
            Field("__dlq.errors.message", Role.MESSAGE, codecs.free_text, may_be_null=True),
        ],
    ),
    Layout(
        Family.CONNECT,
        [
            *_place([f"__connect.errors.{name}" for name in ("topic", "partition", "offset")], codecs.decimal),
            Field("__connect.errors.connector.name", Role.HANDLER, codecs.text),
            _detail("__connect.errors.task.id", "task", codecs.decimal),
            _detail("__connect.errors.stage", "stage"),
            _detail("__connect.errors.class.name", "class at work", codecs.class_name),
            Field("__connect.errors.exception.class.name", Role.ERROR, codecs.class_name),
            Field("__connect.errors.exception.message", Role.MESSAGE, codecs.free_text, may_be_null=True),
            Field("__connect.errors.exception.stacktrace", Role.STACK, codecs.free_text, may_be_null=True),
        ],
    ),
    Layout(
        Family.STREAMS,
        [
            *_place([f"__streams.errors.{name}" for name in ("topic", "partition", "offset")], codecs.decimal),
            Field("__streams.errors.exception", Role.ERROR, codecs.class_of_exception),
            Field("__streams.errors.message", Role.MESSAGE, codecs.free_text, may_be_null=True),
            Field("__streams.errors.stacktrace", Role.STACK, codecs.free_text),
        ],
    ),
    _spring(
        Family.SPRING,
        "kafka_dlt-original-",
        "kafka_dlt-",
        [_SPRING_GROUP, _DELIVERY, *_key_error("kafka_dlt-")],
        (_SPRING_GROUP.name, _DELIVERY_NAME),
    ),
    _spring(
        Family.SPRING_RETRY,
        "kafka_original-",
        "kafka_",
        [
            Field(
                "retry_topic-original-timestamp", Role.TIMESTAMP, lambda raw: codecs.to_time(codecs.big_integer(raw))
            ),
            _SPRING_GROUP,
            _count("retry_topic-attempts", codecs.big_endian),
            _DELIVERY,
            _detail("retry_topic-backoff-timestamp", "next try was due", lambda raw: _due(codecs.big_integer(raw))),
            *_key_error("kafka_"),
        ],
        (_SPRING_GROUP.name, _DELIVERY_NAME),
    ),
    _spring(Family.SPRING_CLOUD, "x-original-", "x-", [_DELIVERY], (_DELIVERY_NAME,)),
    Layout(
        Family.KARAFKA,
        [
            *_place(["source_topic", "source_partition", "source_offset"], codecs.decimal),
            Field("source_consumer_group", Role.GROUP, codecs.text),
            _count("source_attempts", codecs.decimal),
            _detail("source_trace_id", "trace"),
        ],
        needs=("source_topic", "source_offset"),
    ),
    Layout(
        Family.SMALLRYE,
        [
            *_place([f"dead-letter-{name}" for name in ("topic", "partition", "offset")], codecs.decimal),
            Field("dead-letter-cause-class-name", Role.ERROR, codecs.class_name, may_be_null=True),
            Field("dead-letter-exception-class-name", Role.ERROR, codecs.class_name),
            Field("dead-letter-reason", Role.MESSAGE, codecs.free_text, may_be_null=True),
            Field("dead-letter-cause", Role.MESSAGE, codecs.free_text, may_be_null=True),
            _count("delayed-retry-count", codecs.decimal),
            _time("delayed-retry-original-timestamp", codecs.decimal),
        ],
        needs=("dead-letter-topic",),
    ),
    Layout(
        Family.DJANGO_KAFKA,
        [
            *_place([f"DEAD_LETTER_MESSAGE_{name}" for name in ("TOPIC", "PARTITION", "OFFSET")], codecs.decimal),
            Field("DEAD_LETTER_SUMMARY", Role.MESSAGE, codecs.free_text),
            Field("DEAD_LETTER_DETAIL", Role.ERROR, codecs.class_of_traceback),
            Field("DEAD_LETTER_DETAIL", Role.STACK, codecs.free_text),
        ],
        needs=("DEAD_LETTER_MESSAGE_TOPIC",),
    ),
)
_ALL_NAMES = frozenset(f.name for layout in LAYOUTS for f in layout.fields)
_JAVA_OBJECTS = ("springDeserializerExceptionKey", "springDeserializerExceptionValue")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignLetter:
    """What a foreign dead letter's headers say; `text` is the program's own and must not be stored or shown."""

    origins: Sequence[ForeignOrigin]
    group: str
    handler: str
    failure_class: FailureClass
    error_class: str
    message: str
    text: str
    frames: Sequence[str]
    attempts: int


@dataclass(frozen=True, slots=True)
class _Value:
    position: int
    raw: bytes | None


Found = Mapping[str, Sequence[_Value]]


@dataclass(slots=True)
class _Family:
    """The reading of one family's headers."""

    layout: Layout
    found: Found
    complaints: list[str] = field(default_factory=list)

    def complain(self, words: str) -> None:
        if words not in self.complaints and len(self.complaints) < COMPLAINTS_LIMIT:
            self.complaints.append(words)

    def values(self, role: Role) -> list[tuple[Field, Sequence[_Value]]]:
        """The headers of that role that the record has, the most telling name first."""
        return [(f, self.found[f.name]) for f in self.layout.fields if f.role is role and f.name in self.found]

    def read(self, wanted: Field, value: _Value) -> Any:
        """Return what a header says; None and a complaint when it cannot be read."""
        if value.raw is None:
            if not wanted.may_be_null:
                self.complain(f"{wanted.name} is null")
            return None
        try:
            return wanted.read(value.raw)
        except Unreadable as why:
            self.complain(f"{wanted.name} {why}")
            return None

    def nth(self, role: Role, number: int) -> Any:
        """What the header of that role says of the stop with this number."""
        for wanted, values in self.values(role):
            if number < len(values) and (said := self.read(wanted, values[number])) is not None:
                return said
        return None

    def last(self, role: Role) -> Any:
        """What the header of that role says of the latest failure."""
        for wanted, values in self.values(role):
            if (said := self.read(wanted, values[-1])) is not None:
                return said
        return None


def read_foreign_letter(headers: Headers | None, *, topic: str, frames_limit: int) -> ForeignLetter:
    """Read the headers of a record of the dead-letter topic `topic`; None = the client could not read their names."""
    found = _index(headers or ())
    families = [_Family(layout, found) for layout in LAYOUTS if layout.is_in(found)]
    # Stops first: what was complained about is part of a stop, and reading the failure may complain too.
    failures = {family.layout.family: _read_failure(family, frames_limit) for family in families}
    stops = [stop for family in families for stop in _stops(family)]
    stops.sort(key=lambda stop: (stop[1].topic == topic, stop[0]))
    if not stops:
        return _unknown(headers)
    origins = [origin for _, origin in stops]
    last = origins[-1]
    latest = failures[last.family]
    # Signalbox writes a second family beside its own: both tell of one place, and one of them of the attempts.
    attempts = max(failures[o.family].attempts for o in origins if _place_of(o) == _place_of(last))
    return ForeignLetter(
        origins=origins,
        group=next((o.group for o in origins if o.group), ""),
        handler=_first(family.last(Role.HANDLER) for family in families) or "",
        failure_class=_failure_class(latest, headers or ()),
        error_class=latest.error_class or UNKNOWN_CLASS,
        message=latest.message,
        text=latest.text,
        frames=latest.frames,
        attempts=max(1, attempts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    error_class: str
    message: str
    text: str
    frames: Sequence[str]
    attempts: int
    is_schema: bool


def _place_of(origin: ForeignOrigin) -> tuple[str | None, int | None, int | None]:
    return origin.topic, origin.partition, origin.offset


def _index(headers: Headers) -> Found:
    found: dict[str, list[_Value]] = {}
    for position, (name, raw) in enumerate(headers):
        if name in _ALL_NAMES:
            found.setdefault(name, []).append(_Value(position, raw))
    return found


def _stops(family: _Family) -> list[tuple[int, ForeignOrigin]]:
    """Return (position of its first header, stop) for each place that the family's headers tell."""
    counts = {role: len(values) for role in _PLACE for _, values in family.values(role)}
    many = max(counts.values(), default=1)
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{f.name} {len(v)}" for role in _PLACE for f, v in family.values(role))
        family.complain(f"which belong together cannot be said, so the first of each was taken: {told} times")
        many = 1
    if many > STOPS_LIMIT:
        family.complain(f"{many} places are told; the first {STOPS_LIMIT} were read")
        many = STOPS_LIMIT
    absent = [f.name for f in family.layout.fields if f.role in _PLACE and f.name not in family.found]
    for name in absent:
        family.complain(f"{name} is missing")
    details = _details(family)
    read = [_read_stop(family, number) for number in range(many)]
    return [
        (
            _position(family, number),
            ForeignOrigin(**said, family=family.layout.family, details=details, complaints=tuple(family.complaints)),
        )
        for number, said in enumerate(read)
    ]


def _read_stop(family: _Family, number: int) -> dict[str, Any]:
    return {
        "topic": family.nth(Role.TOPIC, number),
        "partition": family.nth(Role.PARTITION, number),
        "offset": family.nth(Role.OFFSET, number),
        "timestamp": family.nth(Role.TIMESTAMP, number),
        "group": family.nth(Role.GROUP, number) or "",
    }


def _position(family: _Family, number: int) -> int:
    places = [values for role in _PLACE for _, values in family.values(role)]
    if places:
        return min(values[min(number, len(values) - 1)].position for values in places)
    return min(values[0].position for f in family.layout.fields if (values := family.found.get(f.name)))


def _details(family: _Family) -> tuple[tuple[str, str], ...]:
    said = [(f.label, family.read(f, values[-1])) for f, values in family.values(Role.DETAIL)]
    return tuple((label, str(what)) for label, what in said if what is not None)


def _read_failure(family: _Family, frames_limit: int) -> _Failure:
    key_error = family.last(Role.KEY_ERROR)
    message = family.last(Role.MESSAGE)
    stage = dict(_details(family)).get("stage", "")
    return _Failure(
        error_class=family.last(Role.ERROR) or key_error or "",
        message=_shown(family.layout.family, message),
        text=message or "",
        frames=foreign_frames(family.last(Role.STACK) or "", frames_limit),
        attempts=family.last(Role.ATTEMPTS) or 0,
        is_schema=key_error is not None or stage.endswith("_CONVERTER"),
    )


def _shown(family: Family, message: str | None) -> str:
    """The words that are kept: the program's own text may hold payload, so it stays in the hidden headers."""
    who = f"dead-lettered by {FAMILY_NAMES[family]}"
    if not message:
        return f"{who}, which gave no text"
    return f"{who}: {message}" if message in _KNOWN_TEXTS else f"{who}; {HIDDEN}"


def _failure_class(failure: _Failure, headers: Headers) -> FailureClass:
    has_java_object = any(name in _JAVA_OBJECTS for name, _ in headers)
    if failure.is_schema or has_java_object or failure.error_class.endswith(_SCHEMA_CLASSES):
        return FailureClass.SCHEMA
    return FailureClass.UNKNOWN


def _unknown(headers: Headers | None) -> ForeignLetter:
    why = (
        "a header name is not UTF-8, so the client gave no headers; they are in the dead-letter topic only"
        if headers is None
        else "no header of a known program says where it came from"
    )
    return ForeignLetter(
        origins=[ForeignOrigin(family=Family.UNKNOWN, complaints=(why,))],
        group="",
        handler="",
        failure_class=FailureClass.UNKNOWN,
        error_class=UNKNOWN_CLASS,
        message=why,
        text="",
        frames=(),
        attempts=1,
    )


def _first(values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _due(ms: int) -> str:
    at = codecs.to_time(ms)
    return at.isoformat(timespec="milliseconds") if at else "never"
