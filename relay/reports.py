"""What a runner tells people: incidents and the page's hint. Never stops the loop; told again at the next beat."""

from collections.abc import Sequence

import structlog
from django.db import Error, connection

from relay.domain.circuit import Circuit
from relay.engine import Engine
from relay.incidents import close_incident, open_incident
from relay.signals import relay_changed, rows_parked
from relay.store import Deferral
from relay.types import IncidentKind

log = structlog.get_logger(__name__)

LINK = "/relay/"


def tell(engine: Engine, circuit: Circuit) -> None:
    """Open the incidents of what happened since the last beat, and hint that the relay moved."""
    try:
        _tell(engine, circuit)
    except Error as error:
        log.warning("relay.not_told", error=type(error).__name__)
        connection.close()


def _tell(engine: Engine, circuit: Circuit) -> None:
    if circuit.is_open:
        _cluster_is_down(circuit)
    for topic, failure in list(engine.failed_topics.items()):
        open_incident(
            IncidentKind.RELAY_TOPIC_FAILED,
            topic,
            title=f"Topic {topic} is held: {failure.code}",
            meaning=f"Kafka refuses the topic ({failure.text}). Its events wait in order; other topics go on.",
            action="Create the topic (manage.py ensure_topics) or give the relay the right to write; it resumes alone.",
            link=LINK,
        )
        del engine.failed_topics[topic]
    for topic in list(engine.remade_topics):
        open_incident(
            IncidentKind.RELAY_TOPIC_REMADE,
            topic,
            title=f"Topic {topic} was deleted and made anew",
            meaning="Kafka has another topic under this name than the relay published to. What was in it is gone: "
            "consumers that had not read it have lost it. The relay goes on with what it had not published.",
            action="See what each consumer of it had read, publish again what is missing, and take this: it closes.",
            link=LINK,
        )
        engine.remade_topics.discard(topic)
    while engine.failed_rows:
        row, failure = engine.failed_rows[0]
        open_incident(
            IncidentKind.RELAY_ROW_FAILED,
            row.topic,
            title=f"An event of {row.topic} cannot be published",
            meaning=f"Event {row.event_id}: {failure.code}: {failure.text}. Later events of its key wait behind it.",
            action="Correct the cause (for example the topic's max.message.bytes), then retry it on the Relay page.",
            link=LINK,
        )
        engine.failed_rows.pop(0)
    while engine.order_broken:
        broken = engine.order_broken[0]
        open_incident(
            IncidentKind.RELAY_ORDER_BROKEN,
            broken.topic,
            title=f"Order of a key was broken on {broken.topic}",
            meaning=f"Kafka refused event {broken.event_id} after it had taken a later event of the same key.",
            action="Look at the consumers of this key: they saw the later event first. Then take this: that closes it.",
            link=LINK,
        )
        engine.order_broken.pop(0)
    relay_changed.send_robust(sender=Engine)


def tell_parked(parked: Sequence[Deferral]) -> None:
    """Log what became dead letters, and announce it."""
    for deferral in parked:
        log.warning("relay.parked", topic=deferral.topic, position=deferral.position, event_id=str(deferral.event_id))
    if parked:
        rows_parked.send_robust(sender=Engine)


def relay_is_restored() -> None:
    """Open the incident before the places are carried over: whoever crashes between tells it again.

    Raises:
        Error: it could not be written; the shards must not be used.
    """
    open_incident(
        IncidentKind.RELAY_RESTORED,
        "database",
        title="The database was restored, or moved to another server",
        meaning="The relay's places were of another server. It published what the backup held unpublished, once, and "
        "goes on from there. What was published after the backup is in Kafka, and perhaps not in the database.",
        action="Compare the consumers' state with the restored database, then take this: that closes it.",
        link=LINK,
    )


def _cluster_is_down(circuit: Circuit) -> None:
    open_incident(
        IncidentKind.RELAY_CLUSTER_DOWN,
        "kafka",
        title="Kafka is not reachable",
        meaning=f"The relay stopped producing ({circuit.reason}). Events wait in the outbox; nothing is lost.",
        action="Bring the brokers back; the relay resumes by itself, in order. No attempts are spent meanwhile.",
        link=LINK,
    )


def cluster_is_back() -> None:
    """Close the cluster's incident."""
    try:
        close_incident(IncidentKind.RELAY_CLUSTER_DOWN, "kafka")
    except Error as error:
        log.warning("relay.not_told", error=type(error).__name__)
        connection.close()


def forget_connection() -> None:
    """Close this thread's connection of Django: it may be broken, or the thread ends."""
    connection.close()
