"""System checks of the consumers: settings and handlers that cannot work together, said with their numbers."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004 - Django's own word

from dlq.copying import list_targets
from dlq.domain.copying import BadCopyRule, check_rule
from dlq.handlers import find_clashes
from relay.facade import ConsumerConfigError, check_consumer_settings


@register("signalbox")
def check_deadline(*_: Any, **__: Any) -> Sequence[CheckMessage]:
    """A handler must be over before Kafka expels its consumer."""
    deadline_ms = settings.HANDLER_DEADLINE_S * 1000
    interval_ms = settings.CONSUMER_MAX_POLL_INTERVAL_MS
    if 0 < deadline_ms < interval_ms:
        return []
    return [
        Error(
            f"HANDLER_DEADLINE_S is {settings.HANDLER_DEADLINE_S} s ({deadline_ms:.0f} ms); it must be above 0 and"
            f" below CONSUMER_MAX_POLL_INTERVAL_MS, which is {interval_ms} ms.",
            hint="Lower the deadline, or raise the interval above it.",
            id="dlq.E001",
        )
    ]


@register("signalbox")
def check_handlers(*_: Any, **__: Any) -> Sequence[CheckMessage]:
    """Each event type of a topic has at most one handler in a group."""
    return [
        Error(clash + ".", hint="Give one of them another group, topic or event type.", id="dlq.E002")
        for clash in find_clashes()
    ]


@register("signalbox")
def check_kafka_settings(*_: Any, **__: Any) -> Sequence[CheckMessage]:
    """The Kafka settings fit together and keep what the runtime promises."""
    try:
        check_consumer_settings()
    except ConsumerConfigError as error:
        return [Error(str(error), id="dlq.E003")]
    return []


@register("signalbox")
def check_copy_rules(*_: Any, **__: Any) -> Sequence[CheckMessage]:
    """The rules of dead-letter copies can be, and each dead-letter topic is one of its own."""
    found: list[CheckMessage] = []
    for subject, rule in settings.DLQ_COPY_RULES.items():
        try:
            check_rule(subject, rule)
        except BadCopyRule as error:
            found.append(Error(f"DLQ_COPY_RULES: {error}.", id="dlq.E004"))
    return found or _name_clashes()


def _name_clashes() -> list[CheckMessage]:
    targets = list_targets()
    found: list[CheckMessage] = [Error(f"{t.problem}.", id="dlq.E005") for t in targets if t.problem]
    sources: dict[str, list[str]] = {}
    for target in targets:
        sources.setdefault(target.rule.to, []).append(f"{target.rule.topic} in {target.rule.group}")
    return found + [
        Warning(
            f'Dead letters of {" and of ".join(both)} are copied to one topic, "{name}".',
            hint='Their headers tell them apart. To part them, give one another name in DLQ_COPY_RULES ("to").',
            id="dlq.W001",
        )
        for name, both in sources.items()
        if len(both) > 1
    ]
