"""Create declared topics that are missing; never alter one that exists."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from django.conf import settings

from relay.domain.outcome import Scope
from relay.errors import TopicSetupError
from relay.kafka.admin import admin_client, error_words
from relay.kafka.errors import classify
from relay.types import TopicCondition, TopicSpec

REQUEST_TIMEOUT_S = 20
LOOK_TIMEOUT_S = 5


def create_missing_topics(specs: Sequence[TopicSpec]) -> list[str]:
    """Create what is missing and return the names that were created; safe to call twice and at once.

    Raises:
        TopicSetupError: the cluster was not reached, or refused a topic.
    """
    admin = _admin()
    try:
        present = set(admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics)
        wanted = [_new_topic(spec) for spec in specs if spec.may_create and spec.name not in present]
        futures = admin.create_topics(wanted, request_timeout=REQUEST_TIMEOUT_S) if wanted else {}
        return [name for name, future in futures.items() if _was_created(future)]
    except KafkaException as error:
        raise TopicSetupError(
            f"Kafka at {settings.KAFKA_BOOTSTRAP_SERVERS} did not create the declared topics: {error.args[0].str()}. "
            "Check that it runs and that this client may create topics, or create them by hand."
        ) from error


def look_at_topics(specs: Sequence[TopicSpec]) -> list[TopicCondition]:
    """Say of each topic whether it is there, with its partitions and limit; make what is missing and may be made.

    What the broker refuses is that topic's `problem`. At most `LOOK_TIMEOUT_S` a question.

    Raises:
        TopicSetupError: the cluster was not reached.
    """
    found = _describe(specs)
    missing = [spec for spec in specs if found[spec.name].problem and spec.may_create]
    problems = _create(missing)
    found |= _describe([spec for spec in missing if not problems[spec.name]])
    found |= {name: TopicCondition(name=name, problem=problem) for name, problem in problems.items() if problem}
    return [found[spec.name] for spec in specs]


def _create(specs: Sequence[TopicSpec]) -> dict[str, str]:
    """Make topics; why each one could not be made, "" = it is there."""
    wanted = [_new_topic(spec) for spec in specs]
    made = admin_client().create_topics(wanted, request_timeout=LOOK_TIMEOUT_S) if wanted else {}
    problems = {}
    for name, future in made.items():
        error = future.exception(LOOK_TIMEOUT_S + 1)
        is_there = isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        problems[name] = "" if error is None or is_there else error_words(error)
    return problems


def _describe(specs: Sequence[TopicSpec]) -> dict[str, TopicCondition]:
    names = [spec.name for spec in specs]
    if not names:
        return {}
    admin = admin_client()
    topics = admin.describe_topics(TopicCollection(names), request_timeout=LOOK_TIMEOUT_S)
    limits = admin.describe_configs(
        [ConfigResource(ResourceType.TOPIC, name) for name in names], request_timeout=LOOK_TIMEOUT_S
    )
    limit_of = {resource.name: future for resource, future in limits.items()}
    return {name: _condition(name, topics[name], limit_of[name]) for name in names}


def _condition(name: str, topic: "Future[Any]", limit: "Future[Any]") -> TopicCondition:
    try:
        partitions = len(topic.result(LOOK_TIMEOUT_S + 1).partitions)
    except KafkaException as error:
        if classify(error.args[0]).scope is Scope.CLUSTER:
            raise TopicSetupError(_unreached(error)) from error
        return TopicCondition(name=name, problem=error_words(error))
    except TimeoutError as error:
        raise TopicSetupError(f"Kafka did not answer within {LOOK_TIMEOUT_S} s about the topic {name!r}.") from error
    try:
        most = int(limit.result(LOOK_TIMEOUT_S + 1)["max.message.bytes"].value)
    except (KafkaException, KeyError, ValueError, TimeoutError):
        return TopicCondition(name=name, partitions=partitions)
    return TopicCondition(name=name, partitions=partitions, max_message_bytes=most)


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
