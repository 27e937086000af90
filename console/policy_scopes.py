"""The scopes of policies behind one editor: what is in force, how a form is read, how a document reads in words.

A scope is a class here; saga steps get theirs when there are sagas. Nothing here writes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse

from console.actions.base import BadInput
from console.asks import Field
from console.permissions import Action
from console.words import count_words, duration_words, number_words
from dlq import facade as dlq
from dlq.facade import BadRetryPolicy, PolicyTarget
from dlq.types import FailureClass, Ordering
from relay import facade as relay
from relay.types import OnFailed, PolicyScope, PolicyVersion

Document = Mapping[str, object]
Words = Sequence[tuple[str, str]]

ORDERING_WORDS: Mapping[Ordering, str] = {
    Ordering.QUARANTINE: "quarantine: later records of its key park behind it, in order",
    Ordering.BLOCK: "block: its key waits and it is tried for ever, nothing of it is parked",
    Ordering.PARK_AND_MOVE_ON: "park and move on: later records of its key go on without it",
}
TREATMENT_WORDS: Mapping[FailureClass, str] = {
    FailureClass.TRANSIENT: "transient: tried again",
    FailureClass.UNKNOWN: "unknown: tried a little",
    FailureClass.PERMANENT: "permanent: parked now",
    FailureClass.SCHEMA: "schema: parked now",
}
SCHEDULE_SHOWN = 12
OVERRIDES_CHARS = 25_000  # as many lines as a policy may have overrides


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """A subject as its page shows it. `version` is the newest of the subject itself, 0 = it never had one.

    `source`: whose policy counts, in words. `problem`: why the stored version does not count.
    """

    subject: str
    title: str
    document: Document
    version: int
    is_own: bool
    source: str
    set_by: str = ""
    set_at: datetime | None = None
    reason: str = ""
    problem: str = ""


class Scope(ABC):
    """What the editor asks of a scope. Texts that cannot be used raise `BadInput` with the field's name."""

    slug: ClassVar[str]
    name: ClassVar[str]
    kept_as: ClassVar[PolicyScope]
    action: ClassVar[Action]
    obeyed: ClassVar[str]
    """When a change is obeyed, as a sentence."""
    may_withdraw: ClassVar[bool] = False
    fields: ClassVar[Sequence[str]]

    @abstractmethod
    def read_subject(self, given: QueryDict) -> str:
        """Return the subject that an address or form means."""

    @abstractmethod
    def view(self, subject: str) -> PolicyView:
        """Return what counts for a subject."""

    @abstractmethod
    def read(self, subject: str, given: QueryDict) -> Document:
        """Return the document that a form describes, checked."""

    @abstractmethod
    def as_form(self, document: Document) -> Mapping[str, str]:
        """Return a document as the form's texts."""

    @abstractmethod
    def ask(self, texts: Mapping[str, str]) -> Sequence[Field]:
        """Return the form's fields with these texts in them."""

    @abstractmethod
    def describe(self, document: Document) -> Words:
        """Return a document as (what, words), each what once."""

    @abstractmethod
    def check(self, subject: str, document: Document) -> Document:
        """Return a document in full, checked against today's bounds; what it does not name stays as it counts."""

    def versions(self, subject: str) -> list[PolicyVersion]:
        """Every version of a subject, newest first, bounded."""
        return relay.list_policy_versions(self.kept_as, subject)

    def address(self, subject: str) -> str:
        """The address of a subject's page."""
        return f"{reverse('policy', args=[self.slug])}?{urlencode({'subject': subject})}"


# -- Consumers ---------------------------------------------------------------------------------------------
class ConsumerScope(Scope):
    """Retry policies of consumers: for everything, a group, a topic in it, an event type of that."""

    slug = "consumer"
    name = "Consumers"
    kept_as = PolicyScope.CONSUMER
    action = Action.SET_RETRY_POLICY
    obeyed = "Running consumers obey within 5 s, from the next failure on. A wait that has begun stays as it is."
    may_withdraw = True
    fields = (
        "max_attempts",
        "unknown_attempts",
        "base_s",
        "factor",
        "max_s",
        "jitter",
        "retry_after_max_s",
        "ordering",
        "overrides",
    )

    def read_subject(self, given: QueryDict) -> str:
        """`subject`, or the names that a person typed: `group`, `topic`, `event_type`."""
        try:
            if given.get("subject"):
                return dlq.subject_of(dlq.target_of(given.get("subject", "")))
            names = (given.get(name, "").strip() for name in ("group", "topic", "event_type"))
            return dlq.subject_of(PolicyTarget(*names))
        except BadRetryPolicy as bad:
            raise BadInput(bad.field, str(bad)) from bad

    def view(self, subject: str) -> PolicyView:
        """What counts for a target, with whose policy it is."""
        line = dlq.get_retry_policy(dlq.target_of(subject))
        return PolicyView(
            subject=subject,
            title=str(line.target),
            document=line.policy.as_json(),
            version=line.own_version,
            is_own=line.is_own,
            source=source_words(line),
            set_by=line.set_by,
            set_at=line.set_at,
            reason=line.reason,
            problem=line.problem,
        )

    def read(self, subject: str, given: QueryDict) -> Document:
        """Numbers, an ordering and one override a line."""
        document = {
            "max_attempts": read_whole(given, "max_attempts", "Attempts"),
            "unknown_attempts": read_whole(given, "unknown_attempts", "Attempts of an unknown failure"),
            "base_s": read_seconds(given, "base_s", "The first wait"),
            "factor": read_seconds(given, "factor", "The growth"),
            "max_s": read_seconds(given, "max_s", "The longest wait"),
            "jitter": read_seconds(given, "jitter", "The part left to chance"),
            "retry_after_max_s": read_seconds(given, "retry_after_max_s", "The longest Retry-After"),
            "ordering": given.get("ordering", ""),
            "overrides": read_overrides(given.get("overrides", "")),
        }
        return self.check(subject, document)

    def check(self, subject: str, document: Document) -> Document:
        """By the rules of `dlq`; what is not named stays as it counts now."""
        try:
            target = dlq.target_of(subject)
            whole = dlq.get_retry_policy(target).policy.as_json() | dict(document)
            return dlq.check_retry_policy(target, whole).as_json()
        except BadRetryPolicy as bad:
            raise BadInput(bad.field, str(bad)) from bad

    def as_form(self, document: Document) -> Mapping[str, str]:
        """Numbers without needless zeros, one override a line."""
        texts = {name: _number_text(document[name]) for name in self.fields if name not in {"ordering", "overrides"}}
        overrides = "\n".join(f"{name} = {found}" for name, found in _items(document["overrides"]))
        return texts | {"ordering": str(document["ordering"]), "overrides": overrides}

    def ask(self, texts: Mapping[str, str]) -> Sequence[Field]:
        """In the order in which a person thinks of them."""
        return (
            _number_field("max_attempts", "Attempts", texts, "The first try counts. For transient failures."),
            _number_field(
                "unknown_attempts", "Attempts of an unknown failure", texts, "At most as many as the attempts."
            ),
            _number_field("base_s", "First wait, in seconds", texts),
            _number_field("factor", "Growth", texts, "Each wait is so many times the one before; 1 = all alike."),
            _number_field("max_s", "Longest wait, in seconds", texts),
            _number_field(
                "jitter", "Part left to chance", texts, "0.2: a wait is up to a fifth shorter, so that keys spread."
            ),
            _number_field(
                "retry_after_max_s",
                "Longest Retry-After, in seconds",
                texts,
                "What the other side asks counts up to this; 0 = it is not heeded.",
            ),
            Field(
                name="ordering",
                label="When a record is given up",
                value=texts.get("ordering", ""),
                choices=[(ordering.value, words) for ordering, words in ORDERING_WORDS.items()],
            ),
            Field(
                name="overrides",
                label="Overrides, one a line",
                value=texts.get("overrides", ""),
                hint="KeyError = transient, requests.exceptions.HTTPError = unknown, HTTP 409 = transient.",
                is_required=False,
                most_chars=OVERRIDES_CHARS,
                rows=3,
            ),
        )

    def describe(self, document: Document) -> Words:
        """Every value, with the horizon that follows."""
        try:
            policy = dlq.read_stored_policy(document)
        except BadRetryPolicy as error:
            return [("Document", f"cannot be read: {error}")]
        rows = [
            ("Attempts", number_words(policy.max_attempts)),
            ("Gives up", _gives_up(policy, policy.max_attempts)),
            ("Attempts of an unknown failure", number_words(policy.unknown_attempts)),
            ("Gives up an unknown failure", _gives_up(policy, policy.unknown_attempts)),
            ("First wait", duration_words(policy.base_s)),
            ("Growth", f"{policy.factor:g} times the wait before"),
            ("Longest wait", duration_words(policy.max_s)),
            ("Left to chance", f"up to {policy.jitter:.0%} less" if policy.jitter else "nothing"),
            ("Retry-After", _retry_after_words(policy.retry_after_max_s)),
            ("When a record is given up", ORDERING_WORDS[policy.ordering]),
        ]
        overrides = [
            (f"Override of {name}", TREATMENT_WORDS[found]) for name, found in sorted(policy.overrides.items())
        ]
        return [*rows, *overrides]


def source_words(line: dlq.PolicyLine) -> str:
    """Whose policy counts for a target."""
    if line.is_own:
        return f"its own, version {line.own_version}"
    if line.policy.version == 0:
        return "the settings' values"
    return f"from {dlq.target_of(line.policy.subject)}, version {line.policy.version}"


def gives_up_words(seconds: float) -> str:
    """How long after the first failure a record is given up."""
    return "at once" if not seconds else f"{duration_words(seconds)} after the first failure"


def schedule_words(document: Document) -> str:
    """When a record that keeps failing is tried, counted from its first failure."""
    policy = dlq.read_stored_policy(document)
    at, times = 0.0, []
    for failed in range(1, policy.max_attempts):
        at += dlq.backoff_s(policy, failed)
        times.append(duration_words(at))
    if len(times) > SCHEDULE_SHOWN:
        times = [*times[: SCHEDULE_SHOWN - 1], "…", times[-1]]
    return ", ".join(times)


def simulate_document(subject: str, document: Document, days: int) -> dlq.PolicySimulation:
    """Try the recorded tries of the last days again under a checked document.

    Raises:
        BadInput: tries are not kept for so many days.
    """
    try:
        return dlq.simulate_retry_policy(dlq.target_of(subject), dlq.read_stored_policy(document), days=days)
    except BadRetryPolicy as bad:
        raise BadInput(bad.field, str(bad)) from bad


# -- Topics of the relay -----------------------------------------------------------------------------------
class RelayTopicScope(Scope):
    """How the relay treats rows that Kafka refuses, and the ingress hold, for one topic."""

    slug = "relay-topic"
    name = "Relay topics"
    kept_as = PolicyScope.RELAY_TOPIC
    action = Action.SET_RELAY_POLICY
    obeyed = "Running relays obey within a second. Rows that are blocked already stay so until somebody retries them."
    fields = ("on_failed", "max_attempts", "first_retry_s", "ingress_max_age_s", "ingress_max_rows")

    def read_subject(self, given: QueryDict) -> str:
        """`subject` or `topic`: a topic that this installation declares."""
        name = given.get("subject") or given.get("topic", "")
        try:
            return relay.get_topic(name.strip()).name
        except relay.UnknownTopic as unknown:
            raise BadInput("topic", f"No topic of this installation is called {name[:80]!r}.") from unknown

    def view(self, subject: str) -> PolicyView:
        """The topic's newest version, or the settings' values."""
        policy = relay.get_relay_policy(subject)
        return PolicyView(
            subject=subject,
            title=subject,
            document=relay.check_relay_policy(subject, {}),
            version=policy.version,
            is_own=policy.version > 0,
            source=f"its own, version {policy.version}" if policy.version else "the settings' values",
            set_by=policy.set_by or "",
            set_at=policy.set_at,
            reason=policy.reason,
        )

    def read(self, subject: str, given: QueryDict) -> Document:
        """Numbers; an empty limit of the ingress hold is none."""
        if given.get("on_failed") not in {choice.value for choice in OnFailed}:
            raise BadInput("on_failed", "Choose what happens to a row that has failed: block its key, or park the row.")
        is_said = {name: bool(given.get(name, "").strip()) for name in ("ingress_max_age_s", "ingress_max_rows")}
        document = {
            "on_failed": given.get("on_failed"),
            "max_attempts": read_whole(given, "max_attempts", "Attempts"),
            "first_retry_s": read_seconds(given, "first_retry_s", "The first wait"),
            "ingress_max_age_s": read_seconds(given, "ingress_max_age_s", "The age")
            if is_said["ingress_max_age_s"]
            else None,
            "ingress_max_rows": read_whole(given, "ingress_max_rows", "Rows") if is_said["ingress_max_rows"] else None,
        }
        return self.check(subject, document)

    def check(self, subject: str, document: Document) -> Document:
        """By the rules of `relay`."""
        try:
            return relay.check_relay_policy(subject, document)
        except relay.BadPolicy as bad:
            name = next((name for name in self.fields if name.removeprefix("ingress_") in str(bad)), "document")
            raise BadInput(name, str(bad)) from bad

    def as_form(self, document: Document) -> Mapping[str, str]:
        """Numbers without needless zeros; None is empty."""
        numbers = {name: _number_text(document.get(name)) for name in self.fields if name != "on_failed"}
        return {"on_failed": str(document["on_failed"])} | numbers

    def ask(self, texts: Mapping[str, str]) -> Sequence[Field]:
        """The failed row first, then the hold."""
        return (
            Field(
                name="on_failed",
                label="When every attempt has failed, or one that cannot succeed",
                value=texts.get("on_failed", ""),
                choices=[
                    (OnFailed.BLOCK.value, "block: its key waits until a person acts"),
                    (OnFailed.PARK.value, "park: the row becomes a dead letter and its key goes on"),
                ],
            ),
            _number_field(
                "max_attempts", "Attempts", texts, "The first try counts. Only failures that may pass are tried again."
            ),
            _number_field("first_retry_s", "First wait, in seconds", texts, "Doubles with each further try."),
            _number_field(
                "ingress_max_age_s",
                "Ingress hold: oldest unsent row, in seconds",
                texts,
                "Beyond it the API takes no further events. Empty: no such limit.",
                is_required=False,
            ),
            _number_field(
                "ingress_max_rows", "Ingress hold: unsent rows", texts, "Empty: no such limit.", is_required=False
            ),
        )

    def describe(self, document: Document) -> Words:
        """Every value."""
        age, rows = document.get("ingress_max_age_s"), document.get("ingress_max_rows")
        is_parked = document["on_failed"] == OnFailed.PARK.value
        return [
            ("When a row has failed", "park: it becomes a dead letter" if is_parked else "block: its key waits"),
            ("Attempts", number_words(_float(document["max_attempts"]))),
            ("First wait", f"{duration_words(_float(document['first_retry_s']))}, doubled with each further try"),
            ("Ingress hold by age", "none" if age is None else f"oldest unsent row {duration_words(_float(age))} old"),
            ("Ingress hold by rows", "none" if rows is None else count_words(int(_float(rows)), "unsent row")),
        ]


SCOPES: Mapping[str, Scope] = {scope.slug: scope for scope in (ConsumerScope(), RelayTopicScope())}


# -- Differences -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Change:
    """One line of a comparison; "" = it is not there."""

    what: str
    before: str
    after: str

    @property
    def is_changed(self) -> bool:
        """Tell whether it differs."""
        return self.before != self.after


def compare(scope: Scope, before: Document | None, after: Document | None) -> list[Change]:
    """Both documents line by line; None = there is no policy of its own."""
    old, new = (dict(scope.describe(d)) if d is not None else {} for d in (before, after))
    names = list(dict.fromkeys([*old, *new]))
    return [Change(name, old.get(name, ""), new.get(name, "")) for name in names]


# -- Reading forms -----------------------------------------------------------------------------------------
def read_whole(given: QueryDict, name: str, what: str) -> int:
    """A whole number as people type it.

    Raises:
        BadInput: it is none.
    """
    text = given.get(name, "").strip().replace(",", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise BadInput(name, f"{what}: type a whole number, for example 10.")
    return int(text)


def read_seconds(given: QueryDict, name: str, what: str) -> float:
    """A number as people type it.

    Raises:
        BadInput: it is none.
    """
    text = given.get(name, "").strip().replace(",", "")
    try:
        return float(text)
    except ValueError as error:
        raise BadInput(name, f"{what}: type a number, for example 5 or 0.5.") from error


def read_overrides(text: str) -> dict[str, str]:
    """Lines of `class = treatment`.

    Raises:
        BadInput: a line is no override, or names a class again.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, sign, treatment = (part.strip() for part in line.partition("="))
        if not sign or not name or not treatment:
            raise BadInput("overrides", f"Line {number}: write the error's class, =, and how it is treated.")
        if name in found:
            raise BadInput("overrides", f"Line {number}: {name[:80]} stands there twice.")
        found[name] = treatment
    return found


def _number_field(
    name: str, label: str, texts: Mapping[str, str], hint: str = "", *, is_required: bool = True
) -> Field:
    return Field(name=name, label=label, value=texts.get(name, ""), hint=hint, is_number=True, is_required=is_required)


def _number_text(value: object) -> str:
    return "" if value is None else f"{_float(value):.12g}"


def _float(value: object) -> float:
    return float(str(value))


def _items(value: object) -> list[tuple[str, object]]:
    return sorted(value.items()) if isinstance(value, Mapping) else []


def _gives_up(policy: dlq.RetryPolicy, attempts: int) -> str:
    words = gives_up_words(dlq.horizon_s(policy, attempts))
    return f"{words}; a record with a key never" if policy.ordering is Ordering.BLOCK else words


def _retry_after_words(most_s: float) -> str:
    return f"heeded up to {duration_words(most_s)}" if most_s else "not heeded"
