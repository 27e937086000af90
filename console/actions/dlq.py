"""Acts on dead letters: check -> service -> audit, in one transaction.

An act on more than `DLQ_SECOND_PERSON_ABOVE` dead letters becomes a request, which another person confirms: then it is
done in the transaction that writes the answer.
"""

from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction

from console.actions.base import ActDenied, Actor, StaleAct, require, require_reason
from console.actions.discards import carry_out_discard
from console.actions.letters import ask_second, record_request, refusals
from console.audit import record_act
from console.models import AuditAction, SecondAct, SecondRequest, SecondState
from console.permissions import Action, token_scope
from console.replay_words import scope_words
from console.second_person import Wish, decide, lock_waiting
from dlq import facade as dlq
from dlq.types import ReplayJob, ReplayPreview, Selection

NEEDED = {SecondAct.REPLAY: Action.REPLAY_DEAD_LETTERS, SecondAct.DISCARD: Action.DISCARD_DEAD_LETTERS}


@dataclass(frozen=True, slots=True)
class Started:
    """The replay runs, or waits for a consumer."""

    job: ReplayJob


@dataclass(frozen=True, slots=True)
class Asked:
    """Nothing was done yet: a second person was asked."""

    request: SecondRequest


# -- Replay ------------------------------------------------------------------------------------------------
def preview_replay(actor: Actor, selection: Selection, *, rate_per_s: float | None) -> ReplayPreview:
    """Freeze a selection and say what a replay of it would do. Changes nothing, so it leaves no audit row.

    Raises:
        ActDenied, BadInput (nothing matches, too much does, several groups; or the rate cannot be).
    """
    person = require(actor, Action.REPLAY_DEAD_LETTERS)
    with refusals():
        return dlq.preview_replay(selection, rate_per_s=rate_per_s, actor=person.get_username())


def preview_failed(actor: Actor, job_id: UUID, *, rate_per_s: float | None) -> ReplayPreview:
    """Freeze what failed in a replay and is still parked.

    Raises:
        ActDenied, BadInput (nothing of it failed), StaleAct (there is no such replay).
    """
    person = require(actor, Action.REPLAY_DEAD_LETTERS)
    with refusals():
        return dlq.replay_failed(job_id, rate_per_s=rate_per_s, actor=person.get_username())


@transaction.atomic
def start_replay(actor: Actor, preview_id: UUID, *, rate_per_s: float | None, reason: str) -> Started | Asked:
    """Start the replay of a preview, or ask a second person when it is of too many.

    A reason is needed above `DLQ_REASON_ABOVE` dead letters.

    Raises:
        ActDenied, BadInput (the rate, or no reason), StaleAct (started before, expired, or nothing of it can run).
    """
    person = require(actor, Action.REPLAY_DEAD_LETTERS)
    with refusals():
        preview = dlq.get_preview(preview_id)
    return _start(person, preview, AuditAction.REPLAY_STARTED, rate_per_s=rate_per_s, reason=reason)


@transaction.atomic
def release_key(actor: Actor, key_id: UUID, *, rate_per_s: float | None = None, reason: str) -> Started | Asked:
    """Replay a quarantined key from its head on, in order; what arrives meanwhile follows.

    Raises:
        ActDenied, BadInput (no reason), StaleAct (it is free already, or its head cannot be replayed).
    """
    person = require(actor, Action.RELEASE_KEY)
    reason = require_reason(reason)
    with refusals():
        preview = dlq.preview_release(key_id, rate_per_s=rate_per_s, actor=person.get_username())
    return _start(person, preview, AuditAction.KEY_RELEASED, rate_per_s=rate_per_s, reason=reason)


@transaction.atomic
def pause_replay(actor: Actor, job_id: UUID, *, seen: int, reason: str = "") -> ReplayJob:
    """Let a replay begin no more items; those that run end as they end. `seen`: the version that the page showed.

    Raises:
        ActDenied, StaleAct (it changed since, or does not run).
    """
    person, reason = require(actor, Action.REPLAY_DEAD_LETTERS), _optional_reason(reason)
    with refusals():
        job = dlq.pause_replay(job_id, expected_version=seen, reason=reason, actor=person.get_username())
    _record_job(person, AuditAction.REPLAY_PAUSED, job, reason)
    return job


@transaction.atomic
def resume_replay(actor: Actor, job_id: UUID, *, seen: int, reason: str = "") -> ReplayJob:
    """Let a paused replay go on, with one item first.

    Raises:
        ActDenied, StaleAct (it changed since, or is not paused).
    """
    person = require(actor, Action.REPLAY_DEAD_LETTERS)
    reason = _optional_reason(reason)
    with refusals():
        job = dlq.resume_replay(job_id, expected_version=seen, actor=person.get_username())
    _record_job(person, AuditAction.REPLAY_RESUMED, job, reason)
    return job


@transaction.atomic
def cancel_replay(actor: Actor, job_id: UUID, *, seen: int, reason: str) -> ReplayJob:
    """End a replay: what was not begun stays parked.

    Raises:
        ActDenied, BadInput (no reason), StaleAct (it changed since, or has ended).
    """
    person, reason = require(actor, Action.REPLAY_DEAD_LETTERS), require_reason(reason)
    with refusals():
        job = dlq.cancel_replay(job_id, expected_version=seen, reason=reason, actor=person.get_username())
    _record_job(person, AuditAction.REPLAY_CANCELLED, job, reason)
    return job


@transaction.atomic
def set_replay_rate(actor: Actor, job_id: UUID, *, seen: int, rate_per_s: float | None) -> ReplayJob:
    """Change how many items a second may begin; None = as fast as the consumers can.

    Raises:
        ActDenied, BadInput (the rate), StaleAct (it changed since, or has ended).
    """
    person = require(actor, Action.REPLAY_DEAD_LETTERS)
    with refusals("rate_per_s"):
        before = dlq.get_replay(job_id).rate_per_s
        job = dlq.set_replay_rate(job_id, rate_per_s=rate_per_s, expected_version=seen, actor=person.get_username())
    _record_job(person, AuditAction.REPLAY_RATE_SET, job, "", before=before, after=rate_per_s)
    return job


# -- Breakers ----------------------------------------------------------------------------------------------
@transaction.atomic
def close_breaker(actor: Actor, group: str, handler: str, *, seen: int, reason: str) -> None:
    """Let the records of a handler run again at once, in every process. `seen`: the version that the page showed.

    Raises:
        ActDenied, BadInput (no reason), StaleAct (it is closed, or was opened anew).
    """
    person, reason = require(actor, Action.CLOSE_BREAKER), require_reason(reason)
    try:
        dlq.close_breaker(group, handler, expected_version=seen, actor=person.get_username())
    except dlq.StaleBreaker as stale:
        raise StaleAct(str(stale)) from stale
    record_act(
        person, AuditAction.BREAKER_CLOSED, kind="breaker", object_id=f"{group}/{handler}", reason=reason, seen=seen
    )


# -- The second person -------------------------------------------------------------------------------------
@transaction.atomic
def confirm_second(actor: Actor, request_id: int, act: SecondAct) -> SecondRequest:
    """Do what another person asked for; who asked is its actor, and who confirms stands beside.

    Raises:
        ActDenied (no permission, the same person, or by a token), StaleAct (answered, expired, or no longer possible).
    """
    person = _require_second(actor, act)
    row = _lock(request_id, act)
    if row.asked_by_id == person.pk:
        raise ActDenied("You asked for this yourself: another person confirms it.")
    _require_asker(row, act)
    decide(row, SecondState.CONFIRMED, person, outcome=_carry_out(row, person))
    return row


@transaction.atomic
def refuse_second(actor: Actor, request_id: int, act: SecondAct, *, reason: str) -> SecondRequest:
    """Say no to what another person asked for.

    Raises:
        ActDenied (no permission, the same person, or by a token), BadInput (no reason), StaleAct.
    """
    person, reason = _require_second(actor, act), require_reason(reason)
    row = _lock(request_id, act)
    if row.asked_by_id == person.pk:
        raise ActDenied("You asked for this yourself: withdraw it instead.")
    decide(row, SecondState.REFUSED, person, answer=reason)
    record_request(person, AuditAction.SECOND_REFUSED, row, reason)
    return row


@transaction.atomic
def withdraw_second(actor: Actor, request_id: int, act: SecondAct) -> SecondRequest:
    """Take back what one asked for oneself.

    Raises:
        ActDenied (no permission, or somebody else asked), StaleAct (answered or expired).
    """
    person = require(actor, NEEDED[act])
    row = _lock(request_id, act)
    if row.asked_by_id != person.pk:
        raise ActDenied(f"{row.asked_by} asked for this: refuse it instead.")
    decide(row, SecondState.WITHDRAWN, person)
    record_request(person, AuditAction.SECOND_WITHDRAWN, row, "")
    return row


def _require_second(actor: Actor, act: SecondAct) -> User:
    person = require(actor, NEEDED[act])
    if token_scope(person) is not None:
        raise ActDenied("A second person answers signed in to the console: a token cannot stand for a person here.")
    return person


def _lock(request_id: int, act: SecondAct) -> SecondRequest:
    row = lock_waiting(request_id)
    if row is None or row.act != act:
        raise StaleAct("This request does not wait any more: it was answered, withdrawn, or has expired.")
    return row


def _require_asker(row: SecondRequest, act: SecondAct) -> None:
    asker = User.objects.filter(pk=row.asked_by_id).first()
    try:
        require(asker or AnonymousUser(), NEEDED[act])
    except ActDenied as denied:
        raise StaleAct(f"{row.asked_by}, who asked for this, may not do it any more.") from denied


def _carry_out(row: SecondRequest, person: User) -> str:
    if row.act == SecondAct.DISCARD:
        return carry_out_discard(row, person)
    with refusals():
        job = dlq.start_replay(
            UUID(row.preview),
            rate_per_s=row.options.get("rate_per_s"),
            reason=row.reason,
            actor=row.asked_by,
            second=person.get_username(),
        )
    _record_job(person, AuditAction.REPLAY_STARTED, job, row.reason, asked_by=row.asked_by, request=row.pk)
    return str(job.id)


# -- Parts -------------------------------------------------------------------------------------------------
def _start(
    person: User, preview: ReplayPreview, action: AuditAction, *, rate_per_s: float | None, reason: str
) -> Started | Asked:
    size = preview.runnable + preview.followers
    reason = require_reason(reason) if size > settings.DLQ_REASON_ABOVE else _optional_reason(reason)
    if preview.needs_second:
        return Asked(_ask(person, preview, rate_per_s=rate_per_s, reason=reason))
    with refusals():
        job = dlq.start_replay(preview.id, rate_per_s=rate_per_s, reason=reason, actor=person.get_username())
    _record_job(person, action, job, reason)
    return Started(job)


def _ask(person: User, preview: ReplayPreview, *, rate_per_s: float | None, reason: str) -> SecondRequest:
    if preview.expired or preview.job_id is not None:
        raise StaleAct("This preview was used, or has expired. Preview again.")
    wish = Wish(
        act=SecondAct.REPLAY,
        preview=str(preview.id),
        scope=scope_words(preview, rate_per_s),
        count=preview.runnable + preview.followers,
        options={"rate_per_s": rate_per_s},
        reason=reason,
        valid_until=preview.expires_at,
    )
    return ask_second(person, wish)


def _optional_reason(text: str) -> str:
    return require_reason(text) if text.strip() else ""


def _record_job(person: User, action: AuditAction, job: ReplayJob, reason: str, **detail: object) -> None:
    facts = {"group": job.group, "total": job.total, "rate_per_s": job.rate_per_s, "preview": str(job.preview_id)}
    record_act(person, action, kind="replay", object_id=str(job.id), reason=reason, **facts, **detail)
