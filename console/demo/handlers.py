"""The three workers of the returns pipeline: triage, settle, notify. Each writes its effects and events in `tx`."""

import time

from django.conf import settings
from django.db.models.functions import Now

from console.demo.models import Claim, ClaimState, Effect, Notice, Refund
from console.demo.rates import read_rates
from console.demo.story import answer_triage, may_refund, read_claim
from console.demo.topics import CLAIM_WORKERS, CLAIMS, MAIL_WORKERS, NOTICES, REFUND_WORKERS, REFUNDS
from dlq.facade import Tx, handler
from dlq.types import Event, Permanent, Result


@handler(topic=CLAIMS, group=CLAIM_WORKERS, event_types=["claim.opened"])
def triage(event: Event, tx: Tx) -> Result:
    """Ask the (simulated) model about a claim and propose a refund."""
    opened = read_claim(event.payload)
    claim = _get_claim(opened.number)
    rates = read_rates()
    _think(rates.triage_ms * (settings.DEMO_SLOW_FACTOR if opened.is_long else 1))
    answer = answer_triage(rates.seed, opened.number, opened.amount_cents)
    Refund.objects.create(
        claim=claim, amount_cents=opened.amount_cents, confidence=answer.confidence, tokens=answer.tokens
    )
    _move(claim, ClaimState.TRIAGED)
    customer = claim.customer
    tx.publish(
        REFUNDS,
        key=claim.number,
        type="refund.proposed",
        payload={
            "claim": claim.number,
            "amount_cents": opened.amount_cents,
            "currency": opened.currency,
            "triage": {
                "model": answer.model,
                "confidence": answer.confidence,
                "tokens": answer.tokens,
                "rationale": answer.rationale,
            },
            "pay_to": {"card_number": customer.card, "card_holder": customer.name},
        },
    )
    _count_effect(CLAIM_WORKERS, event)
    return Result(outcome="proposed", data={"claim": claim.number, "tokens": answer.tokens})


@handler(topic=REFUNDS, group=REFUND_WORKERS, event_types=["refund.proposed"])
def settle(event: Event, tx: Tx) -> Result:
    """Pay a proposed refund, or refuse it, and have the customer told."""
    payload = _object(event)
    claim = _get_claim(str(payload["claim"]))
    refund = claim.refunds.select_for_update().latest("pk")
    is_paid = may_refund(refund.confidence, refund.amount_cents, limit_cents=settings.DEMO_REFUND_LIMIT_CENTS)
    Refund.objects.filter(pk=refund.pk).update(is_paid=is_paid, decided_at=Now())
    _move(claim, ClaimState.APPROVED if is_paid else ClaimState.REJECTED)
    outcome = "approved" if is_paid else "rejected"
    customer = claim.customer
    tx.publish(
        REFUNDS, key=claim.number, type=f"refund.{outcome}", payload={"claim": claim.number, "triage": "accepted"}
    )
    tx.publish(
        NOTICES,
        key=customer.number,
        type="notice.requested",
        payload={
            "claim": claim.number,
            "to": customer.email,
            "phone": customer.phone,
            "text": f"Dear {customer.name}, your claim {claim.number} was {outcome}.",
        },
    )
    _count_effect(REFUND_WORKERS, event)
    return Result(outcome=outcome, data={"claim": claim.number})


@handler(topic=NOTICES, group=MAIL_WORKERS, event_types=["notice.requested"])
def notify(event: Event, _tx: Tx) -> Result:
    """Write the notice that stands for a mail."""
    payload = _object(event)
    claim = _get_claim(str(payload["claim"]))
    Notice.objects.create(claim=claim, to=str(payload["to"]), text=str(payload["text"]))
    _count_effect(MAIL_WORKERS, event)
    return Result(outcome="sent", data={"claim": claim.number})


def _get_claim(number: str) -> Claim:
    claim = Claim.objects.select_related("customer").filter(pk=number).first()
    if claim is None:
        raise Permanent("the claim is not known here; it may have been purged")
    return claim


def _move(claim: Claim, state: ClaimState) -> None:
    Claim.objects.filter(pk=claim.pk).update(state=state)


def _object(event: Event) -> dict[str, object]:
    if not isinstance(event.payload, dict):
        raise TypeError("the payload is not an object")
    return event.payload


def _think(milliseconds: int) -> None:
    """Stand for a model call. A drawn-out one is cut at half the handler's deadline."""
    time.sleep(min(milliseconds / 1000, settings.HANDLER_DEADLINE_S / 2))


def _count_effect(group: str, event: Event) -> None:
    Effect.objects.create(
        group=group, event_id=event.id, event_type=event.type, key=(event.key or b"").decode(errors="backslashreplace")
    )
