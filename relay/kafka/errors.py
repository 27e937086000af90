"""What an error of the Kafka client means to the relay."""

from confluent_kafka import KafkaError

from relay.domain.outcome import Failure, Scope

# The record itself is refused. MSG_SIZE_TOO_LARGE is not final: a batch can be too large where a record alone is not.
_ROW_FINAL = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._INVALID_ARG,  # noqa: SLF001
    }
)
_ROW = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        # The relay has checked the partition before: the topic was deleted, or made anew with fewer.
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
ALL_BROKERS_DOWN: int = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001


class ClusterUnreachableError(Exception):
    """No broker answered in time."""


def classify(error: KafkaError) -> Failure:
    """Tell row, topic and cluster failures apart; what is none of the first two is the cluster's."""
    code = error.code()
    if code in _ROW_FINAL:
        return Failure(scope=Scope.ROW, code=error.name().lower(), text=error.str(), permanent=True)
    if code in _ROW:
        return Failure(scope=Scope.ROW, code=error.name().lower(), text=error.str())
    if code in _TOPIC:
        return Failure(scope=Scope.TOPIC, code=error.name().lower(), text=error.str())
    return Failure(scope=Scope.CLUSTER, code=error.name().lower(), text=error.str())
