"""Topics of a test's own on the real broker, ready to be read."""

import time

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from django.conf import settings

WITHIN_S = 30


def admin_client():
    return AdminClient({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})


def create_topic(name, partitions=1):
    """Create it and wait until the broker leads each partition: it refuses reads for a moment after the creation."""
    admin = admin_client()
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WITHIN_S)
    deadline = time.monotonic() + WITHIN_S
    while refusals := _refusals(admin, name, partitions):
        assert time.monotonic() < deadline, f"{name!r} is not led after {WITHIN_S} s: {refusals}"
        time.sleep(0.02)
    return name


def delete_topics(names):
    """Delete those that are there."""
    for future in admin_client().delete_topics(list(names)).values() if names else ():
        future.exception()


def _refusals(admin, name, partitions):
    asked = admin.list_offsets({TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)})
    return [str(error) for future in asked.values() if (error := future.exception(WITHIN_S))]
