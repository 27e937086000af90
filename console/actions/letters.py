"""What acts on dead letters share: their refusals in the words of dlq, and asking a second person."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import User

from console.actions.base import BadInput, StaleAct, take_turn
from console.audit import record_act
from console.models import AuditAction, SecondRequest
from console.second_person import Wish, find_waiting, keep_wish
from dlq import facade as dlq


def ask_second(person: User, wish: Wish) -> SecondRequest:
    """Ask another person to confirm, in the caller's transaction; a frozen selection has one request at a time.

    Raises:
        StaleAct: somebody has asked for this already.
    """
    take_turn(f"second:{wish.preview}")
    waiting = find_waiting(wish.act, wish.preview)
    if waiting is not None:
        raise StaleAct(f"{waiting.asked_by} has asked a second person for this already: request {waiting.pk}.")
    row = keep_wish(wish, person)
    record_request(person, AuditAction.SECOND_ASKED, row, wish.reason)
    return row


def record_request(person: User, action: AuditAction, row: SecondRequest, reason: str) -> None:
    """Write the audit row of what happened to a request."""
    facts = {"act": row.act, "count": row.count, "asked_by": row.asked_by, "preview": row.preview}
    record_act(person, action, kind="second_request", object_id=str(row.pk), reason=reason, **facts)


@contextmanager
def refusals(field: str = "selection") -> Iterator[None]:
    """Turn what dlq refuses into what an act refuses, with its words."""
    try:
        yield
    except (dlq.BadSelection, dlq.BadQuery) as bad:
        raise BadInput(field, str(bad)) from bad
    except (dlq.ReplayError, dlq.DiscardError) as stale:
        raise StaleAct(str(stale)) from stale
