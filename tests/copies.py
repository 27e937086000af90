"""Copies of dead letters in tests: switched on, with rules, and read back from the broker."""

from contextlib import contextmanager

from django.test import override_settings

from dlq import copying
from dlq.models_copy import Copy
from relay.kafka.topics import create_missing_topics, delete_topic, is_topic
from tests.relay_helpers import read_topic, run_relay_until_drained, skip_to_now


@contextmanager
def copies_on(line, *, create=True, **rule):
    """Copy the line's dead letters by this rule; its dead-letter topic is deleted at the end."""
    skip_to_now()
    with override_settings(DLQ_COPIES=True, DLQ_COPY_RULES={line.topic: rule}):
        target = copying.find_target(line.topic, line.group)
        if create:
            create_missing_topics([target.spec])
        try:
            yield target.spec.name
        finally:
            copying._learnt.pop(target.spec.name, None)
            if is_topic(target.spec.name):
                delete_topic(target.spec.name)


def read_copies(name):
    """Let the relay publish what waits, and return the copies on the topic."""
    run_relay_until_drained()
    return read_topic(name)


def copy_of(line):
    """The row of the only copy of the line's group."""
    return Copy.objects.get(dead_letter__group=line.group)
