"""Create declared topics that are missing; never alter one that exists."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from django.conf import settings

from relay.errors import TopicSetupError
from relay.types import TopicSpec

REQUEST_TIMEOUT_S = 20


def create_missing_topics(specs: Sequence[TopicSpec]) -> list[str]:
    """Create what is missing and return the names that were created; safe to call twice and at once.

    Raises:
        TopicSetupError: the cluster was not reached, or refused a topic.
    """
    config: dict[str, Any] = {"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, **settings.KAFKA_CLIENT_CONFIG}
    admin = AdminClient(config)
    try:
        present = set(admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics)
        wanted = [_new_topic(spec) for spec in specs if spec.name not in present]
        futures = admin.create_topics(wanted, request_timeout=REQUEST_TIMEOUT_S) if wanted else {}
        return [name for name, future in futures.items() if _was_created(future)]
    except KafkaException as error:
        raise TopicSetupError(
            f"Kafka at {settings.KAFKA_BOOTSTRAP_SERVERS} did not create the declared topics: {error.args[0].str()}. "
            "Check that it runs and that this client may create topics, or create them by hand."
        ) from error


def _new_topic(spec: TopicSpec) -> NewTopic:
    limit = spec.max_bytes + 10_000  # the batch's own bytes and the relay's headers
    return NewTopic(
        spec.name,
        num_partitions=spec.partitions,
        replication_factor=settings.KAFKA_REPLICATION_FACTOR,
        config={"max.message.bytes": str(max(limit, 1_048_588))},
    )


def _was_created(future: "Future[None]") -> bool:
    try:
        future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True
