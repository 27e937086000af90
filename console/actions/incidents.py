"""Acts on incidents: check -> service -> audit, in one transaction."""

from django.db import transaction

from console.actions.base import Actor, StaleAct, require
from console.audit import record_act
from console.models import AuditAction
from console.permissions import Action
from relay import facade


@transaction.atomic
def acknowledge_incident(actor: Actor, incident_id: int) -> None:
    """Say that `actor` looks after an open incident. It stays open until what is wrong is right again.

    One that tells of what has happened, such as a broken order, is closed by that.

    Raises:
        ActDenied, StaleAct (it is closed, or somebody has taken it).
    """
    person = require(actor, Action.ACKNOWLEDGE_INCIDENT)
    incident = next((i for i in facade.list_open_incidents() if i.id == incident_id), None)
    if incident is None:
        raise StaleAct("This incident is closed: what was wrong is right again.")
    if not facade.acknowledge_incident(incident_id, actor=person.get_username()):
        raise StaleAct(f"{incident.acknowledged_by or 'Somebody else'} has taken this incident already.")
    record_act(
        person,
        AuditAction.INCIDENT_ACKNOWLEDGED,
        kind="incident",
        object_id=str(incident_id),
        incident=incident.kind.value,
        cause=incident.cause,
        title=incident.title,
    )
