"""What a rewind asks of the brokers: who is in a group, where its partitions stand, and to move its offsets.

Every wait has a bound (`LAG_REQUEST_TIMEOUT_S`). Offsets are moved only by `alter_offsets`, which reads them back.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from django.conf import settings

from relay.domain.rewind import RewindFacts
from relay.errors import GroupActive, RewindUnavailable
from relay.kafka.admin import STATE_WORDS, TYPE_WORDS, admin_client, error_words, owner_name
from relay.kafka.reader import open_reader
from relay.types import GroupMembers

GRACE_S = 1.0


def read_members(group: str) -> GroupMembers:
    """Who is in the group now.

    Raises:
        RewindUnavailable: its coordinator did not answer.
    """
    described = _answer(admin_client().describe_consumer_groups([group], request_timeout=_timeout_s())[group])
    return GroupMembers(
        group=group,
        state=STATE_WORDS.get(described.state, "Unknown"),
        protocol=TYPE_WORDS.get(described.type, "unknown"),
        members=[(owner_name(member), str(member.host or "").lstrip("/")) for member in described.members],
    )


def list_partitions(topic: str) -> list[int]:
    """The partitions of a topic, sorted; empty when it does not exist.

    Raises:
        RewindUnavailable: no broker answered.
    """
    try:
        found = admin_client().list_topics(topic, timeout=_timeout_s()).topics.get(topic)
    except KafkaException as error:
        raise RewindUnavailable(error_words(error)) from error
    return sorted(found.partitions) if found is not None and found.error is None else []


def read_facts(group: str, topic: str, partitions: Sequence[int], at: datetime | None) -> list[RewindFacts]:
    """Where each partition of the topic begins, ends and is committed; `at`: also the first offset from then on.

    Commits are read first, so an end is never older than the commit beside it.

    Raises:
        RewindUnavailable: the group's coordinator did not answer.
    """
    admin = admin_client()
    committed = _committed(admin, group, topic)
    places = [TopicPartition(topic, partition) for partition in partitions]
    begins = _list_offsets(admin, places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = _list_offsets(admin, places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    times = _list_offsets(admin, places, OffsetSpec.for_timestamp(round(at.timestamp() * 1000))) if at else {}
    return [_facts(partition, committed.get(partition), begins, ends, times) for partition in partitions]


def read_times(topic: str, offsets: Iterable[tuple[int, int]]) -> dict[tuple[int, int], datetime]:
    """When the records at (partition, offset) were written, by their own timestamps; what cannot be read is left out.

    One record a partition and round is fetched, within `REWIND_TIMES_WITHIN_S` in all.
    """
    deadline = time.monotonic() + settings.REWIND_TIMES_WITHIN_S
    rounds: list[dict[int, int]] = []
    for partition, offset in sorted(set(offsets)):
        place = next((one for one in rounds if partition not in one), None)
        if place is None:
            rounds.append(place := {})
        place[partition] = offset
    found: dict[tuple[int, int], datetime] = {}
    if not rounds:
        return found
    with closing(open_reader("rewind", reset="earliest", queued_max_messages_kbytes=1_024)) as consumer:
        for one in rounds:
            found |= _fetch_times(consumer, topic, one, deadline)
    return found


def alter_offsets(group: str, topic: str, wanted: Mapping[int, int]) -> dict[int, tuple[int | None, str]]:
    """Move the group's committed offsets and read them back: partition -> (what is committed now, error or "").

    The broker refuses while the group has members. An answer that got lost may still have moved offsets: what was
    read back counts.

    Raises:
        GroupActive: the group has members after all; nothing was moved.
        RewindUnavailable: it cannot be told what is committed now.
    """
    admin = admin_client()
    places = [TopicPartition(topic, partition, offset) for partition, offset in sorted(wanted.items())]
    errors: dict[int, str] = {}
    try:
        request = [ConsumerGroupTopicPartitions(group, places)]
        answer = admin.alter_consumer_group_offsets(request, request_timeout=_timeout_s())[group]
        result = answer.result(timeout=_timeout_s() + GRACE_S)
        errors = {p.partition: error_words(p.error) for p in result.topic_partitions if p.error is not None}
    except KafkaException as error:
        if error.args[0].code() in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
            raise GroupActive(f"{group} has members again: {error_words(error)}") from error
        errors = dict.fromkeys(wanted, error_words(error))
    except TimeoutError:
        errors = dict.fromkeys(wanted, f"no answer within {_timeout_s()} s")
    now = _committed(admin, group, topic)
    return {partition: (now.get(partition), errors.get(partition, "")) for partition in wanted}


# -- Asking ------------------------------------------------------------------------------------------------
def _timeout_s() -> float:
    return float(settings.LAG_REQUEST_TIMEOUT_S)


def _answer(future: Any) -> Any:
    try:
        return future.result(timeout=_timeout_s() + GRACE_S)
    except KafkaException as error:
        raise RewindUnavailable(error_words(error)) from error
    except TimeoutError as error:
        raise RewindUnavailable(f"no answer within {_timeout_s():.0f} s") from error


def _committed(admin: AdminClient, group: str, topic: str) -> dict[int, int | None]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=_timeout_s())
    found = _answer(asked[group]).topic_partitions or []
    return {p.partition: p.offset if p.offset >= 0 else None for p in found if p.topic == topic and p.error is None}


def _list_offsets(admin: AdminClient, places: Sequence[TopicPartition], spec: OffsetSpec) -> dict[int, int | str]:
    """Partition -> offset, or the reason in words why it is not known."""
    if not places:
        return {}
    asked = admin.list_offsets(
        dict.fromkeys(places, spec), isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_timeout_s()
    )
    return {place.partition: _offset(future) for place, future in asked.items()}


def _offset(future: Any) -> int | str:
    try:
        return int(future.result(timeout=_timeout_s() + GRACE_S).offset)
    except KafkaException as error:
        return error_words(error)
    except TimeoutError:
        return f"no answer within {_timeout_s():.0f} s"


def _facts(
    partition: int,
    committed: int | None,
    begins: Mapping[int, int | str],
    ends: Mapping[int, int | str],
    times: Mapping[int, int | str],
) -> RewindFacts:
    answers = [begins[partition], ends[partition], times.get(partition, -1)]
    errors = [answer for answer in answers if isinstance(answer, str)]
    begin, end, at_time = (answer if isinstance(answer, int) and answer >= 0 else None for answer in answers)
    return RewindFacts(
        partition=partition,
        begin=begin,
        end=end,
        committed=committed,
        at_time=at_time,
        error=errors[0] if errors else "",
    )


# -- Times of records --------------------------------------------------------------------------------------
def _fetch_times(
    consumer: Consumer, topic: str, offsets: Mapping[int, int], deadline: float
) -> dict[tuple[int, int], datetime]:
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in offsets.items()])
    waiting, found = set(offsets), {}
    while waiting and (left_s := deadline - time.monotonic()) > 0:
        message = consumer.poll(min(left_s, 0.2))
        if message is None or message.partition() not in waiting:
            continue
        partition = int(message.partition() or 0)
        waiting.discard(partition)
        kind, at_ms = message.timestamp()
        # Behind a gap the next record tells: compaction and transactions leave some.
        if message.error() is None and kind != TIMESTAMP_NOT_AVAILABLE:
            found[partition, offsets[partition]] = datetime.fromtimestamp(at_ms / 1000, UTC)
    return found
