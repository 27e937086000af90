"""Discard and restore dead letters: what was marked is frozen, then one question with the exact scope, then the act."""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from console.actions import discards as acts
from console.actions.base import ActDenied, ActError, StaleAct
from console.asks import Ask
from console.filters import BadFilter
from console.models import SecondRequest
from console.permissions import Action
from console.views.acts import refuse_act
from console.views.asking import answer_ask, asks
from console.views.page import permitted, safe_next, see_other
from console.views.replays import read_selection
from console.words import clock_words, count_words, number_words
from dlq import facade as dlq
from dlq.types import ReplayPreview, ReplayVerdict

SAMPLES = 5


@require_POST
@permitted(Action.DISCARD_DEAD_LETTERS)
def freeze(request: HttpRequest) -> HttpResponse:
    """Freeze what was marked (`ids`, or `scope=matching` with the list's `query`) and lead to the question."""
    back = safe_next(request, reverse("dead_letters"))
    try:
        found = acts.freeze_discard(request.user, read_selection(request.POST))
    except ActDenied as denied:
        raise PermissionDenied(str(denied)) from denied
    except StaleAct as stale:
        return refuse_act(request, 409, "It has changed since you looked", stale, back)
    except (ActError, BadFilter) as bad:
        return refuse_act(request, 422, "This selection cannot be discarded", bad, back)
    query = QueryDict(mutable=True)
    query["next"] = back
    return see_other(f"{reverse('dead_letters_discard_ask', args=[found.id])}?{query.urlencode()}")


@asks
@permitted(Action.VIEW)
def discard(request: HttpRequest, preview_id: UUID) -> HttpResponse:
    """Ask before a frozen selection is discarded, and do it."""

    def ask(_: QueryDict) -> Ask:
        return _discard_ask(_preview(preview_id))

    def lead(found: object) -> str:
        if isinstance(found, SecondRequest):
            return reverse("second_request", args=[found.pk])
        return safe_next(request, reverse("dead_letters"))

    return answer_ask(
        request,
        Action.DISCARD_DEAD_LETTERS,
        ask,
        lambda given: acts.discard_frozen(request.user, preview_id, reason=given.get("reason", "")),
        done="Your discard is noted, with its reason. Above the threshold it waits for a second person.",
        area="Dead letters",
        home="dead_letters",
        lead=lead,
    )


@asks
@permitted(Action.VIEW)
def restore(request: HttpRequest, dead_letter_id: UUID) -> HttpResponse:
    """Ask before a discarded dead letter is parked again, and do it."""

    def ask(_: QueryDict) -> Ask:
        found = dlq.get_dead_letter(dead_letter_id)
        last = next((d for d in reversed(dlq.list_discards(dead_letter_id)) if d.is_restorable), None)
        if found is None or last is None:
            raise StaleAct("It is not discarded any more, or the date until which it could be restored is over.")
        return Ask(
            title=f"Restore {found.row.key_label}",
            words=[
                "It is parked again, with its exact bytes, and can be replayed.",
                "If its key is quarantined it takes its old place among the records of its key.",
            ],
            action=Action.DISCARD_DEAD_LETTERS,
            button="Restore it",
            facts=[
                ("Discarded by", last.actor),
                ("Reason", last.reason),
                ("Restorable until", _clock(last.restorable_until)),
            ],
            needs_reason=True,
        )

    return answer_ask(
        request,
        Action.DISCARD_DEAD_LETTERS,
        ask,
        lambda given: acts.restore_dead_letter(request.user, dead_letter_id, reason=given.get("reason", "")),
        done="It is parked again.",
        area="Dead letters",
        home="dead_letters",
        lead=lambda _: reverse("dead_letter", args=[dead_letter_id]),
    )


def _discard_ask(preview: ReplayPreview) -> Ask:
    letters = count_words(preview.total, "dead letter", "dead letters")
    until = _clock(timezone.now() + settings.DLQ_DISCARD_RESTORABLE)
    words = [
        f"{letters} of {preview.group} end without an effect. Nothing newer is swept in: the set was frozen just now.",
        f"Restorable until {until}. Where a key is quarantined, its next record becomes the head.",
    ]
    if preview.total > settings.DLQ_SECOND_PERSON_ABOVE:
        above = number_words(settings.DLQ_SECOND_PERSON_ABOVE)
        words.append(f"It is more than {above}: a second person confirms it, or it expires.")
    return Ask(
        title=f"Discard {letters}",
        words=words,
        action=Action.DISCARD_DEAD_LETTERS,
        button=f"Discard {letters}",
        kind="danger",
        facts=_facts(preview),
        needs_reason=True,
    )


def _facts(preview: ReplayPreview) -> list[tuple[str, str]]:
    facts = [("Consumer group", preview.group)]
    left_out = preview.counts.get(ReplayVerdict.IN_REPLAY, 0) + preview.counts.get(ReplayVerdict.NOT_PARKED, 0)
    if left_out:
        facts.append(("Left out", f"{number_words(left_out)}: in a replay, or not parked any more"))
    if preview.late:
        facts.append(("Parked since", f"{number_words(preview.late)} more match now; they are not part of it"))
    facts += [
        ("Among them", f"{row.key_label}, {row.error_class}, {row.topic} {row.partition} / {number_words(row.offset)}")
        for row, _ in preview.samples[:SAMPLES]
    ]
    return facts


def _preview(preview_id: UUID) -> ReplayPreview:
    try:
        found = dlq.get_preview(preview_id)
    except dlq.UnknownReplay as unknown:
        raise StaleAct("This selection is not kept any more. Select again.") from unknown
    if found.expired or found.job_id is not None:
        raise StaleAct("This selection was used by a replay, or has expired. Select again.")
    return found


def _clock(at: datetime) -> str:
    return clock_words(timezone.localtime(at), timezone.localtime())
