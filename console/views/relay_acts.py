"""Acts on the relay: GET asks with the exact scope and consequence, POST does it and goes back."""

from collections.abc import Callable
from dataclasses import replace

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict

from console.actions import relay as acts
from console.actions.base import BadInput, StaleAct
from console.asks import Ask, Field
from console.permissions import Action
from console.views.asking import answer_ask, asks
from console.views.page import permitted
from console.words import count_words, duration_words, number_words
from relay.facade import (
    UnknownTopic,
    find_row,
    get_relay_status,
    get_topic,
    list_pauses,
    list_topics,
)
from relay.types import DeferredKey, RelayPause, RelayStatus, RowRef

MAX_POSITION = 2**63 - 1


# -- All of the relay --------------------------------------------------------------------------------------
@asks
@permitted(Action.VIEW)
def pause(request: HttpRequest) -> HttpResponse:
    """Pause the relay with a reason."""

    def ask(_: QueryDict) -> Ask:
        status = get_relay_status()
        if status.paused_by is not None:
            raise StaleAct(f"The relay is paused already, by {status.paused_by}: {status.paused_reason}")
        return Ask(
            title="Pause the relay",
            words=[
                (
                    "Rows that are on their way are finished. Then nothing is published, on any topic, until somebody "
                    "resumes it."
                ),
                "Applications go on writing: rows wait in order and the outbox grows.",
            ],
            action=Action.PAUSE_RELAY,
            button="Pause the relay",
            kind="danger",
            facts=[("Unsent now", _unsent(status)), ("Written", _per_s(status.appended_per_s))],
            needs_reason=True,
        )

    return _answer(
        request,
        Action.PAUSE_RELAY,
        ask,
        lambda given: acts.pause_relay(request.user, reason=given.get("reason", "")),
        done="The relay is paused. Rows wait in the outbox until somebody resumes it.",
    )


@asks
@permitted(Action.VIEW)
def resume(request: HttpRequest) -> HttpResponse:
    """Resume the relay."""

    def ask(_: QueryDict) -> Ask:
        status = get_relay_status()
        if status.paused_by is None:
            raise StaleAct("The relay is not paused: somebody has resumed it already.")
        return Ask(
            title="Resume the relay",
            words=["The rows that wait are published in their order, beginning at once."],
            action=Action.RESUME_RELAY,
            button="Resume the relay",
            facts=[
                ("Waiting rows", _unsent(status)),
                ("Paused by", status.paused_by),
                ("Reason", status.paused_reason or "none was given"),
            ],
        )

    return _answer(
        request,
        Action.RESUME_RELAY,
        ask,
        lambda _: acts.resume_relay(request.user),
        done="The relay is resumed. Rows that waited go out in their order.",
    )


# -- One topic ---------------------------------------------------------------------------------------------
@asks
@permitted(Action.VIEW)
def pause_topic(request: HttpRequest) -> HttpResponse:
    """Pause one topic with a reason."""

    def ask(query: QueryDict) -> Ask:
        topic = _declared_topic(query)
        pause = _pause_of(topic, None)
        if pause is not None:
            raise StaleAct(f"The topic {topic} is paused already, by {pause.paused_by}: {pause.reason}")
        return Ask(
            title=f"Pause {topic}",
            words=[
                (
                    f"Rows of {topic} that are on their way are finished. Then nothing is published on it until "
                    "somebody resumes it; its rows wait in order."
                ),
                "Every other topic goes on. No attempt is used up.",
            ],
            action=Action.PAUSE_TOPIC,
            button=f"Pause {topic}",
            kind="danger",
            hidden={"topic": topic},
            facts=[("Unsent now", _unsent_of(topic))],
            needs_reason=True,
        )

    return _answer(
        request,
        Action.PAUSE_TOPIC,
        ask,
        lambda given: acts.pause_topic(request.user, _text(given, "topic"), reason=given.get("reason", "")),
        done="The topic is paused within a second. Its rows wait in the outbox until somebody resumes it.",
    )


@asks
@permitted(Action.VIEW)
def resume_topic(request: HttpRequest) -> HttpResponse:
    """Resume one topic."""

    def ask(query: QueryDict) -> Ask:
        topic = _text(query, "topic")
        pause = _pause_of(topic, None)
        if pause is None:
            raise StaleAct(f"The topic {topic} is not paused: somebody has resumed it already.")
        return Ask(
            title=f"Resume {topic}",
            words=["Its rows that wait are published in their order, from where it was paused."],
            action=Action.PAUSE_TOPIC,
            button=f"Resume {topic}",
            hidden={"topic": topic},
            facts=[("Waiting rows", _unsent_of(topic)), *_pause_facts(pause)],
        )

    return _answer(
        request,
        Action.PAUSE_TOPIC,
        ask,
        lambda given: acts.resume_topic(request.user, _text(given, "topic")),
        done="The topic is resumed. Its rows go out in their order.",
    )


@asks
@permitted(Action.VIEW)
def retry_topic(request: HttpRequest) -> HttpResponse:
    """Try what waits after a failure on one topic now."""

    def ask(query: QueryDict) -> Ask:
        topic = _text(query, "topic")
        keys = [key for key in get_relay_status().deferred if key.topic == topic]
        if not keys:
            raise StaleAct(f"Nothing of {topic} waits after a failure any more: it was sent, skipped or retried.")
        failed = sum(key.failed for key in keys)
        return Ask(
            title=f"Retry {topic} now",
            words=[
                (
                    "The first waiting row of each key is tried at once, failed ones with all their attempts again; "
                    "the rows behind follow in order."
                ),
                (
                    f"At most {number_words(settings.RELAY_RETRY_TOPIC_ROWS)} keys at a time, the oldest first. "
                    "Paused keys stay paused."
                ),
            ],
            action=Action.RETRY_ROWS,
            button=f"Retry {topic}",
            hidden={"topic": topic},
            facts=[
                ("Keys that wait", number_words(len(keys))),
                ("Of them failed", number_words(failed)),
                ("Cause of the oldest", keys[0].error or "none was noted"),
            ],
        )

    return _answer(
        request,
        Action.RETRY_ROWS,
        ask,
        lambda given: acts.retry_topic(request.user, _text(given, "topic")),
        done="Made due: the relay tries the rows within a second.",
    )


# -- One key -----------------------------------------------------------------------------------------------
@asks
@permitted(Action.VIEW)
def pause_key(request: HttpRequest) -> HttpResponse:
    """Pause one key: that of a row, or one that the person names."""

    def ask(query: QueryDict) -> Ask:
        row = _row(query) if query.get("position") else None
        words = [
            "Rows of this key wait in order until somebody resumes it, also those that are yet to come.",
            "Every other key of the topic goes on. No attempt is used up.",
        ]
        asked = Ask(
            title="Pause a key",
            words=words,
            action=Action.PAUSE_TOPIC,
            button="Pause the key",
            kind="danger",
            needs_reason=True,
        )
        if row is None:
            return replace(asked, fields=_key_fields(query))
        _require_key(row)
        return replace(
            asked,
            title=f"Pause {row.key_label} of {row.topic}",
            hidden={"position": str(row.position)},
            facts=_row_facts(row),
        )

    def act(given: QueryDict) -> None:
        topic, key = _key(given)
        acts.pause_key(request.user, topic, key, reason=given.get("reason", ""))

    return _answer(request, Action.PAUSE_TOPIC, ask, act, done="The key is paused. Its rows wait until it is resumed.")


@asks
@permitted(Action.VIEW)
def resume_key(request: HttpRequest) -> HttpResponse:
    """Resume one paused key, named by its label."""

    def ask(query: QueryDict) -> Ask:
        pause = _paused_key(query)
        return Ask(
            title=f"Resume {pause.key_label} of {pause.topic}",
            words=[
                (
                    "Its rows that wait are published in their order. A row of it that failed before still waits for "
                    "a person."
                ),
            ],
            action=Action.PAUSE_TOPIC,
            button="Resume the key",
            hidden={"topic": pause.topic, "key_label": pause.key_label or ""},
            facts=_pause_facts(pause),
        )

    def act(given: QueryDict) -> None:
        pause = _paused_key(given)
        acts.resume_key(request.user, pause.topic, pause.key or b"")

    return _answer(request, Action.PAUSE_TOPIC, ask, act, done="The key is resumed. Its rows go out in their order.")


@asks
@permitted(Action.VIEW)
def retry_key(request: HttpRequest) -> HttpResponse:
    """Try the first waiting row of a key now."""

    def ask(query: QueryDict) -> Ask:
        row = _row(query)
        key = _deferred(row)
        return Ask(
            title=f"Retry {row.key_label} of {row.topic} now",
            words=[
                (
                    "The first waiting row of this key is tried at once, with all its attempts again if it had failed. "
                    "The rows behind it follow in order."
                ),
            ],
            action=Action.RETRY_ROWS,
            button="Retry now",
            hidden={"position": str(row.position)},
            facts=[*_row_facts(row), *_deferred_facts(key)],
        )

    def act(given: QueryDict) -> None:
        row = _row(given)
        acts.retry_key(request.user, row.topic, row.key)

    return _answer(request, Action.RETRY_ROWS, ask, act, done="Made due: the relay tries the row within a second.")


@asks
@permitted(Action.VIEW)
def skip_row(request: HttpRequest) -> HttpResponse:
    """Give up one waiting row for good."""

    def ask(query: QueryDict) -> Ask:
        row = _row(query)
        key = _deferred(row)
        return Ask(
            title=f"Skip event …{str(row.event_id)[-8:]} of {row.topic}",
            words=[
                "This row is never published: no consumer will see it. The rows behind it go on in order.",
                (
                    "It cannot be undone. Its row stays readable until retention; publish the event anew if it is "
                    "needed after all."
                ),
            ],
            action=Action.SKIP_ROW,
            button="Skip this row for good",
            kind="danger",
            hidden={"position": str(row.position)},
            facts=[("Event", str(row.event_id)), *_row_facts(row), *_deferred_facts(key)],
            needs_reason=True,
        )

    return _answer(
        request,
        Action.SKIP_ROW,
        ask,
        lambda given: acts.skip_row(request.user, _position(given), reason=given.get("reason", "")),
        done="The row is skipped, with your reason. Its key goes on without it.",
    )


# -- Ask and answer ----------------------------------------------------------------------------------------
def _answer(
    request: HttpRequest,
    action: Action,
    ask: Callable[[QueryDict], Ask],
    act: Callable[[QueryDict], object],
    *,
    done: str,
) -> HttpResponse:
    return answer_ask(request, action, ask, act, done=done, area="Relay", home="relay")


# -- What is meant -----------------------------------------------------------------------------------------
def _text(query: QueryDict, name: str) -> str:
    text = query.get(name, "").strip()
    if not text or "\0" in text:
        raise BadInput(name, f"The address or form does not say which {name} is meant. Go back and choose it again.")
    return text


def _declared_topic(query: QueryDict) -> str:
    try:
        return get_topic(_text(query, "topic")).name
    except UnknownTopic as unknown:
        raise BadInput("topic", f"No topic of this installation is called {query.get('topic')!r}.") from unknown


def _position(query: QueryDict) -> int:
    text = query.get("position", "")
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_POSITION):
        raise BadInput("position", "The address or form does not say which row is meant. Go back and choose it again.")
    return int(text)


def _row(query: QueryDict) -> RowRef:
    position = _position(query)
    row = find_row(position)
    if row is None:
        raise StaleAct(f"No row is at position {number_words(position)} any more: it was sent and purged since.")
    return row


def _key(given: QueryDict) -> tuple[str, bytes]:
    if given.get("position"):
        row = _row(given)
        return row.topic, _require_key(row)
    key = given.get("key", "")
    if not key:
        raise BadInput("key", "Type the key as the application writes it.")
    return _text(given, "topic"), key.encode()


def _require_key(row: RowRef) -> bytes:
    if row.key is None:
        raise BadInput("key", "This row has no key: it waits for no other row. Pause its topic instead.")
    return row.key


def _key_fields(query: QueryDict) -> list[Field]:
    names = sorted(spec.name for spec in list_topics())
    return [
        Field(name="topic", label="Topic", value=query.get("topic", ""), options=names),
        Field(
            name="key",
            label="Key",
            value=query.get("key", ""),
            hint="As the application writes it. It is shown to nobody: pages and the audit have its label.",
            most_chars=1_000,
        ),
    ]


# -- What is known of it -----------------------------------------------------------------------------------
def _pause_of(topic: str, key_label: str | None) -> RelayPause | None:
    return next((p for p in list_pauses() if (p.topic, p.key_label) == (topic, key_label)), None)


def _paused_key(query: QueryDict) -> RelayPause:
    topic, label = _text(query, "topic"), _text(query, "key_label")
    found = [p for p in list_pauses() if (p.topic, p.key_label) == (topic, label)]
    if not found:
        raise StaleAct(f"{label} of {topic} is not paused: somebody has resumed it already.")
    return found[0]


def _deferred(row: RowRef) -> DeferredKey | None:
    same = (k for k in get_relay_status().deferred if (k.topic, k.key_label) == (row.topic, row.key_label))
    return next((k for k in same if row.key is not None or k.first_position == row.position), None)


def _row_facts(row: RowRef) -> list[tuple[str, str]]:
    return [("Topic", row.topic), ("Key", row.key_label), ("Type", row.type)]


def _deferred_facts(key: DeferredKey | None) -> list[tuple[str, str]]:
    if key is None:
        return []
    return [
        ("Cause", key.error or "none was noted"),
        ("Tried", count_words(key.attempts, "time", "times")),
        ("Rows of the key that wait", number_words(key.rows)),
    ]


def _pause_facts(pause: RelayPause) -> list[tuple[str, str]]:
    return [("Paused by", pause.paused_by), ("Reason", pause.reason)]


def _unsent(status: RelayStatus) -> str:
    least = "at least " if status.unsent.capped else ""
    age = f", the oldest {duration_words(status.oldest.age_s)} old" if status.oldest else ""
    return f"{least}{count_words(status.unsent.value, 'row', 'rows')}{age}"


def _unsent_of(topic: str) -> str:
    found = next((t for t in get_relay_status().unsent_by_topic if t.topic == topic), None)
    if found is None:
        return "none"
    return f"{'at least ' if found.unsent.capped else ''}{count_words(found.unsent.value, 'row', 'rows')}"


def _per_s(rate: float | None) -> str:
    return "no row lately" if rate is None else f"{number_words(rate)} rows / s"
