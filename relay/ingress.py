"""Hold events from outside back when a topic's backlog is too old or too deep, so that an outage cannot grow it."""

import time
from collections.abc import Mapping
from threading import Lock

from django.conf import settings

from relay.domain.words import say_duration
from relay.policies import get_relay_policy
from relay.queries import list_unsent_by_topic
from relay.types import IngressHold, RelayPolicy, TopicUnsent

_lock = Lock()
_known: tuple[float, Mapping[str, TopicUnsent]] = (float("-inf"), {})


def check_ingress(topic: str) -> IngressHold | None:
    """Tell whether the topic takes no further events from outside now, by the limits of its policy; None = it takes.

    One bounded probe for all topics, at most once in `RELAY_INGRESS_CACHE_MS` a process; nothing is counted beyond
    `RELAY_UNSENT_COUNT_CAP` rows.

    Raises:
        UnknownTopic: nobody declared the topic.
    """
    policy = get_relay_policy(topic)
    if policy.ingress_max_age_s is None and policy.ingress_max_rows is None:
        return None
    unsent = _unsent_by_topic().get(topic)
    reason = "" if unsent is None else _exceeds(policy, unsent)
    if not reason:
        return None
    return IngressHold(topic=topic, reason=reason, retry_after_s=settings.RELAY_INGRESS_RETRY_AFTER_S)


def _exceeds(policy: RelayPolicy, unsent: TopicUnsent) -> str:
    age_s, max_age_s = unsent.oldest_age_s or 0.0, policy.ingress_max_age_s
    if max_age_s is not None and age_s > max_age_s:
        return f"its oldest unsent event is {say_duration(age_s)} old; {say_duration(max_age_s)} are allowed"
    if policy.ingress_max_rows is not None and unsent.unsent.value >= policy.ingress_max_rows:
        return f"{unsent.unsent.value:,} of its events or more are unsent; {policy.ingress_max_rows:,} are allowed"
    return ""


def _unsent_by_topic() -> Mapping[str, TopicUnsent]:
    global _known  # noqa: PLW0603 - the one cache of the process
    with _lock:
        if time.monotonic() - _known[0] > settings.RELAY_INGRESS_CACHE_MS / 1000:
            _known = (time.monotonic(), {unsent.topic: unsent for unsent in list_unsent_by_topic()})
        return _known[1]
