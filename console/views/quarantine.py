"""Quarantined keys: what is parked at the head, how many wait behind it, since when; release; and open breakers."""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.actions import dlq as acts
from console.actions.base import BadInput, StaleAct
from console.asks import Ask
from console.faults import Fault, read_or_fault
from console.filters import BadFilter, read_name, read_text
from console.permissions import Action
from console.views.asking import answer_ask, asks, read_seen
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page
from console.words import count_words, duration_words, number_words
from dlq import facade as dlq
from dlq.types import BreakerView, QuarantinedKey, QuarantineFilter


@require_safe
@permitted(Action.VIEW)
def quarantined(request: HttpRequest) -> HttpResponse:
    """List quarantined keys, newest first, and the breakers that are open."""
    try:
        wanted = QuarantineFilter(
            group=read_name(request.GET, "group"),
            topic=read_name(request.GET, "topic"),
            key_label=read_text(request.GET, "key"),
        )
        cursor = read_text(request.GET, "cursor")
        page = _checked(read_or_fault("The quarantined keys could not be read", _read_page, wanted, cursor))
    except (BadFilter, dlq.BadCursor) as refused:
        back = reverse("quarantined")
        return refuse_filter(request, f"{str(refused).rstrip('.')}.", page="Quarantined keys", back=back)
    breakers = read_or_fault("The breakers could not be read", dlq.list_breakers, only_open=True)
    context = {
        "page": page,
        "rows": [] if isinstance(page, Fault) else [(key, key.letters - 1) for key in page.keys],
        "wanted": wanted,
        "is_filtered": bool(wanted.group or wanted.topic or wanted.key_label),
        "is_first": not cursor,
        "breakers": breakers,
        "breakers_fault": breakers if isinstance(breakers, Fault) else None,
        "groups": sorted(spec.name for spec in dlq.list_groups()),
    }
    return render_page(request, "quarantine/quarantine.html", context)


@asks
@permitted(Action.VIEW)
def release(request: HttpRequest) -> HttpResponse:
    """Release a quarantined key with a reason: its records are replayed in order."""

    def ask(given: QueryDict) -> Ask:
        key = dlq.get_quarantined(_key_id(given))
        if key is None:
            raise StaleAct("This key is free: it was released, or what was parked was discarded.")
        if key.job_id is not None:
            raise StaleAct("This key is in a replay already.")
        behind = key.letters - 1
        return Ask(
            title=f"Release {key.key_label} of {key.topic}",
            words=[
                (
                    f"{count_words(key.letters, 'record')} of this key, the head first, then what waits behind it, one "
                    "after the other through the handler. What arrives meanwhile follows in order."
                ),
                "When one fails again it stops there, with the new cause, and the key stays quarantined.",
                *(["So many need a second person, who is asked."] if _needs_second(key.letters) else []),
            ],
            action=Action.RELEASE_KEY,
            button=f"Release {key.key_label}",
            hidden={"key": str(key.id)},
            facts=[
                ("Group", key.group),
                ("Head failed with", f"{key.head.error_class}: {key.head.error_message}"[:200]),
                ("Behind it", number_words(behind)),
                ("Quarantined", f"{duration_words(_age_s(key))} ago"),
            ],
            needs_reason=True,
        )

    return answer_ask(
        request,
        Action.RELEASE_KEY,
        ask,
        lambda given: acts.release_key(request.user, _key_id(given), reason=given.get("reason", "")),
        done="The key is being released: this page shows how far it is.",
        area="Quarantined keys",
        home="quarantined",
        lead=_after_release,
    )


@asks
@permitted(Action.VIEW)
def close_breaker(request: HttpRequest) -> HttpResponse:
    """Close an open breaker with a reason."""

    def ask(given: QueryDict) -> Ask:
        found = _breaker(given)
        return Ask(
            title=f"Close the breaker of {found.handler}",
            words=[
                (
                    f"The records of {found.handler} in {found.group} run again at once, in every process. No attempt "
                    "was used up while it was open."
                ),
                "When what it depends on is still down, it opens again after a few failures.",
            ],
            action=Action.CLOSE_BREAKER,
            button="Close the breaker",
            hidden={"group": found.group, "handler": found.handler, "seen": str(found.version)},
            facts=[
                ("Failed with", found.error_class or "not noted"),
                ("Next try by itself", f"in {duration_words(found.probe_in_s)}"),
                ("Tries so far", number_words(found.probes)),
            ],
            needs_reason=True,
        )

    return answer_ask(
        request,
        Action.CLOSE_BREAKER,
        ask,
        lambda given: acts.close_breaker(
            request.user,
            given.get("group", ""),
            given.get("handler", ""),
            seen=read_seen(given),
            reason=given.get("reason", ""),
        ),
        done="The breaker is closed: its records are tried again at once.",
        area="Quarantined keys",
        home="quarantined",
    )


def _after_release(done: object) -> str:
    if isinstance(done, acts.Asked):
        return reverse("second_request", args=[done.request.pk])
    if isinstance(done, acts.Started):
        return reverse("replay", args=[done.job.id])
    return reverse("quarantined")


def _key_id(given: QueryDict) -> UUID:
    try:
        return UUID(given.get("key", ""))
    except ValueError as error:
        raise BadInput("key", "The address or form does not say which key is meant. Go back and choose it.") from error


def _needs_second(letters: int) -> bool:
    return letters > settings.DLQ_SECOND_PERSON_ABOVE


def _breaker(given: QueryDict) -> BreakerView:
    named = (given.get("group", ""), given.get("handler", ""))
    found = next((b for b in dlq.list_breakers(only_open=True) if (b.group, b.handler) == named), None)
    if found is None:
        raise StaleAct("This breaker is not open (any more): its records run.")
    return found


def _age_s(key: QuarantinedKey) -> float:
    return max(0.0, (timezone.now() - key.quarantined_at).total_seconds())


def _read_page(wanted: QuarantineFilter, cursor: str) -> Any:
    try:
        return dlq.list_quarantined(cursor or None, settings.LIST_PAGE_ROWS, wanted)
    except dlq.BadCursor as bad:
        return bad


def _checked(found: Any) -> Any:
    if isinstance(found, dlq.BadCursor):
        raise found
    return found
