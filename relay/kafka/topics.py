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
    admin = _admin()
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


def is_topic(name: str) -> bool:
    """Tell whether the cluster has a topic of this name.

    Raises:
        TopicSetupError: the cluster was not reached.
    """
    try:
        return name in _admin().list_topics(timeout=REQUEST_TIMEOUT_S).topics
    except KafkaException as error:
        raise TopicSetupError(_unreached(error)) from error


def delete_topic(name: str) -> None:
    """Delete a topic that a check or drill made for itself.

    Raises:
        TopicSetupError: the cluster was not reached, or refused.
    """
    admin = _admin()  # kept: its answers end with it
    try:
        admin.delete_topics([name], request_timeout=REQUEST_TIMEOUT_S)[name].result()
    except KafkaException as error:
        raise TopicSetupError(f"Kafka did not delete {name!r}: {error.args[0].str()}. Delete it by hand.") from error


def _admin() -> AdminClient:
    config: dict[str, Any] = {"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, **settings.KAFKA_CLIENT_CONFIG}
    return AdminClient(config)


def _unreached(error: KafkaException) -> str:
    return f"Kafka at {settings.KAFKA_BOOTSTRAP_SERVERS} did not answer: {error.args[0].str()}. Check that it runs."


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
