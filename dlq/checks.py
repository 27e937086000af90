"""System checks of the consumers: settings and handlers that cannot work together, said with their numbers."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

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
