"""Copies of dead letters on `<topic>.<group>.dlq`, through the outbox.

    park (one transaction): dead letter + its row in dlq_copy + the copy in relay_outbox
    relay: publishes it, or gives it up: then the copy is marked as failed, and nothing is parked again

The dead letter is what counts; a copy that cannot be made harms nothing but itself. Dead letters of the relay and of
foreign topics get none, nor do records of a dead-letter topic that Signalbox writes.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from dlq.domain.copying import BadCopyRule, Copy, CopyLimits, CopyRule, build_copy, find_rule, name_copy_topic
from dlq.domain.export import ExportFacts
from dlq.handlers import list_groups
from dlq.models_copy import Copy as Row
from dlq.originals import decode_headers
from dlq.types import CopiedPayload, CopyView, Family, Origin
from relay.facade import (
    PublishError,
    TopicSetupError,
    close_incident,
    derive_topics,
    get_declared_topic,
    look_at_topics,
    open_incident,
    publish,
)
from relay.types import IncidentKind, PublishedEvent, RowToPark, TopicCondition, TopicSpec

log = structlog.get_logger(__name__)

COPY_TYPE = "dead-letter.parked"
_RELAY_HEADER_BYTES = 300
_BATCH_BYTES = 1_000
_KEEP = """
INSERT INTO dlq_copy (dead_letter_id, topic, family, event_id, payload, shed, failure, created_at, failed_at)
VALUES (%(id)s, %(topic)s, %(family)s, %(event_id)s, %(payload)s, %(shed)s, %(failure)s, clock_timestamp(),
    CASE WHEN %(failure)s <> '' THEN clock_timestamp() END)
"""
_MARK = "UPDATE dlq_copy SET failure = %(failure)s, failed_at = clock_timestamp() WHERE event_id = %(event_id)s"
_FAILED = """
SELECT topic, count(*), (array_agg(failure ORDER BY failed_at DESC))[1] FROM dlq_copy
WHERE topic = ANY(%s) AND failed_at > clock_timestamp() - make_interval(secs => %s) GROUP BY topic
"""

_learnt: dict[str, TopicCondition] = {}
"""What the broker last said of a copy topic, in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the dead letters of a topic and group are copied to; `problem` says why that cannot be."""

    rule: CopyRule
    spec: TopicSpec
    problem: str = ""


def register() -> None:
    """Let the dead-letter topics follow from the handlers."""
    derive_topics(derive_copy_topics)


# -- Where to ----------------------------------------------------------------------------------------------
def find_target(topic: str, group: str) -> Target | None:
    """Return where to copy to; None = these dead letters are not copied.

    Raises:
        BadCopyRule: the rule of this topic and group cannot be.
    """
    if not settings.DLQ_COPIES:
        return None
    rule = find_rule(settings.DLQ_COPY_RULES, topic, group)
    if not rule.is_on:
        return None
    declared = get_declared_topic(rule.to)
    if declared is None:
        return Target(rule=rule, spec=_spec(rule))
    if rule.to == name_copy_topic(topic, group):
        problem = f'the topic "{rule.to}" is declared for something else; name another one in DLQ_COPY_RULES ("to")'
        return Target(rule=rule, spec=declared, problem=problem)
    return Target(rule=rule, spec=declared)


def list_targets() -> list[Target]:
    """Return the targets of every topic that has a handler; none for a dead-letter topic that is one of them."""
    pairs = [(topic, group.name) for group in list_groups() for topic in group.topics]
    found = [target for topic, group in pairs if (target := _target_or_none(topic, group)) is not None]
    names = {target.rule.to for target in found}
    return [target for target in found if target.rule.topic not in names]


def derive_copy_topics() -> Iterable[TopicSpec]:
    """Return the dead-letter topics that follow from the handlers; of those that share a name, the largest."""
    specs = [target.spec for target in list_targets() if not target.problem]
    return sorted(specs, key=lambda spec: (spec.partitions, spec.max_bytes))


def _target_or_none(topic: str, group: str) -> Target | None:
    try:
        return find_target(topic, group)
    except BadCopyRule:  # a system check says it
        return None


def _spec(rule: CopyRule) -> TopicSpec:
    source = get_declared_topic(rule.topic) or TopicSpec(name=rule.topic, partitions=settings.DLQ_COPY_PARTITIONS)
    most = source.max_bytes + settings.DLQ_EXPORT_HEADER_BYTES + _RELAY_HEADER_BYTES
    known = _learnt.get(rule.to, TopicCondition(name=rule.to))
    return TopicSpec(
        name=rule.to,
        partitions=known.partitions or source.partitions,
        max_bytes=min(most, known.max_message_bytes - _BATCH_BYTES) if known.max_message_bytes else most,
        parks_failed=True,
        may_create=settings.DLQ_COPY_CREATE_TOPICS,
    )


def _is_copy_topic(topic: str) -> bool:
    return any(target.rule.to == topic for target in list_targets())


# -- The copy ----------------------------------------------------------------------------------------------
def publish_copy(cursor: Any, values: Mapping[str, Any]) -> None:
    """Write the copy of a new dead letter (its columns in `values`) in the transaction that parks it.

    Never raises on content: what does not fit is left out, and what still cannot be published is marked as failed.
    """
    if values["origin"] != Origin.CONSUMER.value:
        return
    topic, group = values["topic"], values["group"]
    try:
        target = find_target(topic, group)
    except BadCopyRule as error:
        unruled = find_rule({}, topic, group)
        _keep(cursor, values, unruled, failure=str(error))
        return
    if target is None or _is_copy_topic(topic):
        return
    copy = _build(values, target)
    event, failure = (None, target.problem) if target.problem else _publish(values, target, copy)
    _keep(cursor, values, target.rule, copy=copy, event=event, failure=failure)


def _build(values: Mapping[str, Any], target: Target) -> Copy:
    at = values["record_timestamp"]
    facts = ExportFacts(
        dead_letter=str(values["id"]),
        topic=values["topic"],
        partition=values["partition"],
        offset=values["offset"],
        timestamp_ms=None if at is None else round(at.timestamp() * 1000),
        group=values["group"],
        handler=values["handler"],
        attempts=values["attempts"],
        error_class=values["error_class"],
        message=values["error_message"],
        stack=values["stack"],
    )
    limits = CopyLimits(
        record_bytes=target.spec.max_bytes - _RELAY_HEADER_BYTES,
        added_bytes=settings.DLQ_EXPORT_HEADER_BYTES,
        headers=settings.PUBLISH_MAX_HEADERS,
    )
    headers = decode_headers(values["headers"])
    return build_copy(values["key"], values["value"], headers, facts=facts, rule=target.rule, limits=limits)


def _publish(values: Mapping[str, Any], target: Target, copy: Copy) -> tuple[PublishedEvent | None, str]:
    """Write it to the outbox; (None, why) when the outbox refused it."""
    try:
        with transaction.atomic():
            event = publish(
                target.spec.name,
                key=copy.key,
                type=COPY_TYPE,
                payload=copy.value,
                headers=copy.headers,
                partition=values["partition"] % target.spec.partitions,
            )
    except (PublishError, DatabaseError) as error:
        log.warning("dlq.copy_failed", topic=target.spec.name, error=type(error).__name__)
        return None, f"the outbox refused it: {type(error).__name__}"
    return event, ""


def _keep(
    cursor: Any,
    values: Mapping[str, Any],
    rule: CopyRule,
    *,
    copy: Copy | None = None,
    event: PublishedEvent | None = None,
    failure: str = "",
) -> None:
    kept = {
        "id": values["id"],
        "topic": rule.to,
        "family": rule.family.value,
        "event_id": event.id if event else None,
        "payload": (copy.payload if copy else CopiedPayload.WITHHELD).value,
        "shed": ", ".join(copy.shed if copy else ())[:300],
        "failure": failure[:300],
    }
    cursor.execute(_KEEP, kept)


def mark_failed(cursor: Any, row: RowToPark) -> bool:
    """Mark the copy that the relay gives up, in its transaction; False = the row is no copy of a dead letter."""
    cursor.execute(_MARK, {"event_id": row.event_id, "failure": f"the relay gave it up: {row.code}: {row.error}"[:300]})
    return bool(cursor.rowcount)


def get_copy(dead_letter_id: UUID) -> CopyView | None:
    """Return what became of a dead letter's copy; None = it has none."""
    row = Row.objects.filter(pk=dead_letter_id).first()
    if row is None:
        return None
    return CopyView(
        topic=row.topic,
        family=Family(row.family),
        event_id=row.event_id,
        payload=CopiedPayload(row.payload),
        shed=tuple(word for word in row.shed.split(", ") if word),
        failure=row.failure,
        failed_at=row.failed_at,
    )


# -- The topics of a running group -------------------------------------------------------------------------
class CopyTopics:
    """Looks at the dead-letter topics of one group now and then: makes them, learns their size, tells what is wrong."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._next_look_at = 0.0

    def look_if_due(self) -> None:
        """Look; a broker that is away is asked again the next time."""
        if time.monotonic() < self._next_look_at:
            return
        self._next_look_at = time.monotonic() + settings.DLQ_COPY_LOOK_EVERY_S
        targets = [target for target in list_targets() if target.rule.group == self._group]
        try:
            conditions = look_at_topics([target.spec for target in targets if not target.problem])
        except TopicSetupError as error:
            log.info("dlq.copy_topics_not_seen", group=self._group, error=str(error))
            return
        _learnt.update({c.name: c for c in conditions if not c.problem})
        problems = {c.name: c.problem for c in conditions} | {t.rule.to: t.problem for t in targets if t.problem}
        self._tell(problems)

    def _tell(self, problems: Mapping[str, str]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_FAILED, [list(problems), settings.DLQ_COPY_FAILED_SHOWN_S])
            failed = {topic: (count, latest) for topic, count, latest in cursor.fetchall()}
        for topic, problem in problems.items():
            if problem:
                self._open(topic, f"Dead letters are not copied to {topic}: {problem}")
            elif topic in failed:
                count, latest = failed[topic]
                self._open(topic, f"{count:,} copies of dead letters did not reach {topic}; the latest: {latest}")
            else:
                close_incident(IncidentKind.DEAD_LETTER_COPY_FAILED, topic)

    def _open(self, topic: str, title: str) -> None:
        open_incident(
            IncidentKind.DEAD_LETTER_COPY_FAILED,
            topic,
            title=title,
            meaning=f"Records of {self._group} are parked as ever, nothing is lost; readers of the topic miss them.",
            action="See that the topic exists and may be written. A single copy is sent again by"
            " `manage.py export_dead_letter ID --to TOPIC`.",
            link="/dead-letters/",
        )
