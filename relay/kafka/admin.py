"""Read groups, commits and log ends through Kafka's admin protocol. Reads only; every wait has a bound.

What could not be read is a value beside what could (`error`), so one unreadable group or partition hides no other.
Commits are read before log ends, so an end is never older than the commit that it is compared with.
"""

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from django.conf import settings

TYPE_WORDS = {ConsumerGroupType.CONSUMER: "consumer", ConsumerGroupType.CLASSIC: "classic"}
STATE_WORDS = {
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
}
DESCRIBE_BATCH_GROUPS = 100
FUTURE_GRACE_S = 1.0

_clients: dict[tuple[int, str], AdminClient] = {}
_clients_lock = threading.Lock()

Place = tuple[str, int]
"""(topic, partition)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """Where a partition's log begins and ends (the offset after the last record that may be read)."""

    begin: int | None
    end: int | None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReading:
    """One group as its coordinator described it. `committed` has None where nothing was committed.

    `owners` names the member that a partition is assigned to. With an `error` the rest is empty.
    """

    group: str
    state: str = "Unknown"
    protocol: str = ""
    members: int = 0
    owners: Mapping[Place, str] = field(default_factory=dict)
    committed: Mapping[Place, int | None] = field(default_factory=dict)
    partition_errors: Mapping[Place, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading:
    """One pass over the cluster. `complete` = every broker listed its groups, so a group not here is gone."""

    groups: Sequence[GroupReading]
    ends: Mapping[Place, LogEnds]
    errors: Sequence[str]
    complete: bool


def read_cluster() -> ClusterReading:
    """Read every consumer group's state, commits and log ends; at most `LAG_PASS_LIMIT_S` seconds.

    Never raises for what Kafka answers or fails to answer: that is in `errors` and in the values.
    """
    reader = _Reader(deadline=time.monotonic() + settings.LAG_PASS_LIMIT_S)
    names, errors = reader.list_groups()
    complete = not errors
    if len(names) > settings.LAG_GROUPS_LIMIT:
        limit = settings.LAG_GROUPS_LIMIT
        errors.append(f"{len(names):,} consumer groups exist; the first {limit:,} by name are read (LAG_GROUPS_LIMIT)")
        names, complete = names[: settings.LAG_GROUPS_LIMIT], True
    groups = reader.read_groups(names)
    places = {place for group in groups for place in group.committed}
    ends, ends_error = reader.read_ends(places)
    return ClusterReading(
        groups=groups, ends=ends, errors=[*errors, *([ends_error] if ends_error else [])], complete=complete
    )


def admin_client() -> AdminClient:
    """This process's client for admin calls: made once for a configuration, used by every thread.

    A client that is made for each pass asks coordinators over connections that are only just being made, and librdkafka
    aborts the whole process when one of them drops in that moment (its issue 4605).
    """
    config: dict[str, Any] = {
        "bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS,
        "client.id": "signalbox-lag",
        "log_level": 2,  # what fails is shown on the page, with its age; not once a second in a log
        **settings.KAFKA_CLIENT_CONFIG,
    }
    wanted = (os.getpid(), repr(sorted(config.items())))
    with _clients_lock:
        if wanted not in _clients:
            _clients[wanted] = AdminClient(config)
        return _clients[wanted]


class _Reader:
    """One pass, until `deadline`."""

    def __init__(self, *, deadline: float) -> None:
        self._deadline = deadline
        self._admin = admin_client()

    def list_groups(self) -> tuple[list[str], list[str]]:
        """Names of all consumer groups, sorted, and what kept a broker from listing its own."""
        found, error = self._ask(lambda timeout: self._admin.list_consumer_groups(request_timeout=timeout))
        if error:
            return [], [f"The consumer groups could not be listed: {error}"]
        errors = sorted({f"A broker did not list its consumer groups: {error_words(e)}" for e in found.errors or []})
        return sorted(listing.group_id for listing in found.valid or []), errors

    def read_groups(self, names: Sequence[str]) -> list[GroupReading]:
        """Describe the groups in batches and read their commits, one call a group."""
        described = self._describe(names)
        commits = self._commits([name for name in names if not isinstance(described[name], str)])
        return [_reading(name, described[name], commits.get(name, "")) for name in names]

    def read_ends(self, places: Iterable[Place]) -> tuple[dict[Place, LogEnds], str]:
        """Begin and end of each partition: two requests for all of them, and why none could be read."""
        wanted = sorted(places)
        if not wanted:
            return {}, ""
        try:
            existing = self._admin.list_topics(timeout=self._timeout()).topics
        except KafkaException as error:
            reason = error_words(error)
            ends = {place: LogEnds(begin=None, end=None, error=reason) for place in wanted}
            return ends, f"The log ends could not be read: {reason}"
        # A partition without a leader would hold the whole request up to its timeout, so it is told apart first.
        absent = {place: reason for place in wanted if (reason := _absent(existing, place))}
        asked = [place for place in wanted if place not in absent]
        begins = self._offsets(asked, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        latest = self._offsets(asked, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        read = {place: self._log_ends(begins[place], latest[place]) for place in asked}
        return {**read, **{p: LogEnds(begin=None, end=None, error=reason) for p, reason in absent.items()}}, ""

    def _describe(self, names: Sequence[str]) -> dict[str, Any]:
        futures: dict[str, Future[Any] | str] = {}
        for at in range(0, len(names), DESCRIBE_BATCH_GROUPS):
            batch = list(names[at : at + DESCRIBE_BATCH_GROUPS])
            try:
                futures |= self._admin.describe_consumer_groups(batch, request_timeout=self._timeout())
            except KafkaException as error:
                futures |= dict.fromkeys(batch, error_words(error))
        return {name: self._value(future) for name, future in futures.items()}

    def _commits(self, names: Sequence[str]) -> dict[str, Any]:
        """Commits of each group, with at most `LAG_PARALLEL_REQUESTS` requests in the air."""
        waiting = list(reversed(names))
        flying: dict[Future[Any], str] = {}
        done: dict[str, Any] = {}
        while waiting or flying:
            while waiting and len(flying) < settings.LAG_PARALLEL_REQUESTS:
                name = waiting.pop()
                asked = self._ask_commits(name)
                if isinstance(asked, str):
                    done[name] = asked
                else:
                    flying[asked] = name
            landed = wait(flying, timeout=self._timeout() + FUTURE_GRACE_S, return_when=FIRST_COMPLETED).done
            for future in landed or list(flying):
                done[flying.pop(future)] = self._value(future)
        return done

    def _ask_commits(self, name: str) -> Future[Any] | str:
        request = [ConsumerGroupTopicPartitions(name)]
        try:
            answer = self._admin.list_consumer_group_offsets(request, request_timeout=self._timeout())
        except (KafkaException, ValueError) as error:
            return error_words(error)
        future: Future[Any] = answer[name]
        return future

    def _offsets(self, places: Sequence[Place], spec: OffsetSpec) -> dict[Place, Future[Any] | str]:
        if not places:
            return {}
        try:
            answer = self._admin.list_offsets(
                {TopicPartition(*place): spec for place in places},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._timeout(),
            )
        except KafkaException as error:
            return dict.fromkeys(places, error_words(error))
        return {(asked.topic, asked.partition): future for asked, future in answer.items()}

    def _log_ends(self, begin: Future[Any] | str, end: Future[Any] | str) -> LogEnds:
        first, last = self._value(begin), self._value(end)
        if isinstance(first, str) or isinstance(last, str):
            return LogEnds(begin=None, end=None, error=first if isinstance(first, str) else last)
        return LogEnds(begin=first.offset, end=last.offset)

    def _ask(self, send: Any) -> tuple[Any, str]:
        try:
            value = self._value(send(self._timeout()))
        except KafkaException as error:
            return None, error_words(error)
        return (None, value) if isinstance(value, str) else (value, "")

    def _value(self, future: Future[Any] | str) -> Any:
        """What the future holds, or the reason in words (a `str`) why it holds nothing."""
        if isinstance(future, str):
            return future
        try:
            left_s = self._deadline + FUTURE_GRACE_S - time.monotonic()
            return future.result(timeout=max(0.0, min(self._timeout() + FUTURE_GRACE_S, left_s)))
        except FutureTimeoutError:
            return f"no answer within {settings.LAG_REQUEST_TIMEOUT_S} s"
        except (KafkaException, ValueError) as error:
            return error_words(error)

    def _timeout(self) -> float:
        """Seconds that the next request may take: its own bound, or what is left of the pass."""
        return max(0.1, min(settings.LAG_REQUEST_TIMEOUT_S, self._deadline - time.monotonic()))


def _reading(name: str, described: Any, commits: Any) -> GroupReading:
    if isinstance(described, str) or isinstance(commits, str):
        return GroupReading(group=name, error=described if isinstance(described, str) else commits)
    owners = {
        (part.topic, part.partition): owner_name(member)
        for member in described.members
        for part in member.assignment.topic_partitions
    }
    committed: dict[Place, int | None] = dict.fromkeys(owners)
    errors: dict[Place, str] = {}
    for part in commits.topic_partitions or []:
        place = (part.topic, part.partition)
        committed[place] = part.offset if part.offset >= 0 and part.error is None else None
        if part.error is not None:
            errors[place] = part.error.str()
    return GroupReading(
        group=name,
        state=STATE_WORDS.get(described.state, "Unknown"),
        protocol=TYPE_WORDS.get(described.type, "unknown"),
        members=len(described.members),
        owners=owners,
        committed=committed,
        partition_errors=errors,
    )


def owner_name(member: Any) -> str:
    """The member's own name where it has one: instance id, then a client id that somebody chose."""
    chosen = member.client_id if member.client_id not in ("", "rdkafka", None) else ""
    return str(member.group_instance_id or chosen or member.member_id).replace("\0", "")[: settings.LAG_OWNER_CHARS]


def _absent(topics: Mapping[str, Any], place: Place) -> str:
    topic, partition = place
    if topic not in topics:
        return "the topic does not exist (any more)"
    if topics[topic].error is not None:
        return str(topics[topic].error.str())
    if partition not in topics[topic].partitions:
        return "the topic has no such partition (any more)"
    return "the partition has no leader" if topics[topic].partitions[partition].leader < 0 else ""


def error_words(error: object) -> str:
    """The error's text for people, on one line."""
    first = error.args[0] if isinstance(error, KafkaException) and error.args else error
    text = first.str() if hasattr(first, "str") else str(first)
    return " ".join(text.replace("\0", "").split())[: settings.LAG_ERROR_CHARS]
