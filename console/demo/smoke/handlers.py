"""The smoke run's handler: one effect row an event, and an honest failure for poison."""

from console.demo.models import Effect
from console.demo.smoke.names import COUNTED, GROUP, POISON, TOPIC
from dlq.facade import Tx, handler
from dlq.types import Event, Permanent, Result


@handler(topic=TOPIC, group=GROUP, event_types=[COUNTED, POISON])
def count(event: Event, _tx: Tx) -> Result:
    """Write the effect with the publisher's sequence."""
    if event.type == POISON:
        raise Permanent("a poison record of the smoke run")
    if not isinstance(event.payload, dict):
        raise TypeError("the payload is not an object")
    Effect.objects.create(
        group=GROUP,
        event_id=event.id,
        event_type=event.type,
        key=(event.key or b"").decode(),
        sequence=event.payload["sequence"],
    )
    return Result()
