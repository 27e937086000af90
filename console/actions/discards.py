"""Acts that end dead letters and take that back: check -> service -> audit, in one transaction.

Above `DLQ_SECOND_PERSON_ABOVE` a discard becomes a request; `console.actions.dlq` lets another person confirm it.
"""

from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from console.actions.base import Actor, BadInput, StaleAct, require, require_reason
from console.actions.letters import ask_second, refusals
from console.audit import record_act
from console.models import AuditAction, SecondAct, SecondRequest
from console.permissions import Action
from console.replay_words import filter_words
from console.second_person import Wish
from console.words import count_words
from dlq import facade as dlq
from dlq.facade import Discarded
from dlq.types import ReplayPreview, Selection


def freeze_discard(actor: Actor, selection: Selection) -> ReplayPreview:
    """Freeze what is to be discarded. Changes nothing, so it leaves no audit row.

    Raises:
        ActDenied, BadInput (nothing matches, too much does, or several consumer groups).
    """
    person = require(actor, Action.DISCARD_DEAD_LETTERS)
    with refusals():
        return dlq.preview_replay(selection, rate_per_s=None, actor=person.get_username())


@transaction.atomic
def discard_frozen(actor: Actor, preview_id: UUID, *, reason: str) -> Discarded | SecondRequest:
    """Discard a frozen selection, or ask a second person when it is of too many.

    Raises:
        ActDenied, BadInput (no reason, or too many), StaleAct (nothing of it is parked any more, or it has expired).
    """
    person, reason = require(actor, Action.DISCARD_DEAD_LETTERS), require_reason(reason)
    with refusals():
        preview = dlq.get_preview(preview_id)
        if preview.total > settings.DLQ_SECOND_PERSON_ABOVE:
            return _ask(person, preview, reason)
        done = dlq.discard_dead_letters(preview_id, reason=reason, actor=person.get_username())
    _record(person, done, preview, reason)
    return done


def carry_out_discard(row: SecondRequest, person: User) -> str:
    """Discard what a second person has confirmed, in the caller's transaction; the id of the discard.

    Raises:
        BadInput, StaleAct.
    """
    preview_id = UUID(row.preview)
    with refusals():
        preview = dlq.get_preview(preview_id)
        done = dlq.discard_dead_letters(preview_id, reason=row.reason, actor=row.asked_by, second=person.get_username())
    _record(person, done, preview, row.reason, asked_by=row.asked_by, request=row.pk)
    return str(done.id)


@transaction.atomic
def restore_dead_letter(actor: Actor, dead_letter_id: UUID, *, reason: str) -> None:
    """Park a discarded dead letter again.

    Raises:
        ActDenied, BadInput (no reason), StaleAct (it is not discarded, or its date is over).
    """
    person, reason = require(actor, Action.DISCARD_DEAD_LETTERS), require_reason(reason)
    with refusals():
        dlq.restore_dead_letter(dead_letter_id, reason=reason, actor=person.get_username())
    record_act(
        person, AuditAction.DEAD_LETTER_RESTORED, kind="dead letter", object_id=str(dead_letter_id), reason=reason
    )


def _ask(person: User, preview: ReplayPreview, reason: str) -> SecondRequest:
    if preview.total > settings.DLQ_DISCARD_MAX:
        raise BadInput("selection", f"At most {settings.DLQ_DISCARD_MAX:,} are discarded at once; narrow the filter.")
    if preview.expired or preview.job_id is not None:
        raise StaleAct("This selection was used, or has expired. Select again.")
    wish = Wish(
        act=SecondAct.DISCARD,
        preview=str(preview.id),
        scope=discard_words(preview),
        count=preview.total,
        options={},
        reason=reason,
        valid_until=preview.expires_at,
    )
    return ask_second(person, wish)


def discard_words(preview: ReplayPreview) -> str:
    """What a discard would take: "Discard 214 dead letters of claim-workers, error X"."""
    parts = [f"Discard {count_words(preview.total, 'dead letter', 'dead letters')} of {preview.group}"]
    if preview.selection.filter is not None:
        parts += filter_words(preview.selection.filter)
    return ", ".join(parts)


def _record(person: User, done: Discarded, preview: ReplayPreview, reason: str, **detail: object) -> None:
    record_act(
        person,
        AuditAction.DEAD_LETTERS_DISCARDED,
        kind="discard",
        object_id=str(done.id),
        reason=reason,
        group=preview.group,
        letters=done.discarded,
        in_replay=done.in_replay,
        skipped=done.skipped,
        preview=str(preview.id),
        **detail,
    )
