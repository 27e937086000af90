"""Policies: what counts where, one policy with its history, the editor with its preview, and how errors are classified.

The editor asks by GET: the address holds the draft, and the page shows what it changes and what it would have done.
Only the POST below the preview changes something.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.actions import policies as acts
from console.actions.base import ActDenied, BadInput, StaleAct, require
from console.asks import Ask
from console.permissions import Action, Allowed, may
from console.policy_scopes import (
    SCOPES,
    TREATMENT_WORDS,
    Change,
    Document,
    PolicyView,
    Scope,
    compare,
    read_whole,
    schedule_words,
    simulate_document,
    source_words,
)
from console.policy_words import Said, say_simulation
from console.views.acts import refuse_act
from console.views.asking import answer_ask, asks
from console.views.lists import refuse_filter
from console.views.page import permitted, render_page, see_other
from console.words import duration_words, number_words
from dlq import facade as dlq
from dlq.facade import PolicyLine, PolicySimulation
from relay import facade as relay
from relay.types import PolicyScope, PolicyVersion

BY_ERROR_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a draft changes, and what it would have done; `simulation` is None where tries are not recorded."""

    changes: Sequence[Change]
    schedule: str = ""
    simulation: PolicySimulation | None = None
    said: Said | None = None

    @property
    def is_same(self) -> bool:
        """Tell whether nothing differs."""
        return not any(change.is_changed for change in self.changes)

    @property
    def by_error(self) -> Sequence[tuple[str, str, dlq.Tally]]:
        """The errors with the most parked records: class, handler, counts."""
        found = self.simulation.result.by_error.items() if self.simulation else ()
        return [(error, handler, tally) for (error, handler), tally in found][:BY_ERROR_SHOWN]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the list: the name within its level, and what counts."""

    name: str
    level: str
    address: str
    source: str
    line: PolicyLine
    gives_up: str
    gives_up_unknown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version as the history shows it: what it changed against the one before."""

    version: PolicyVersion
    is_in_force: bool
    is_withdrawn: bool
    changed: Sequence[Change]


# -- What counts -------------------------------------------------------------------------------------------
@require_safe
@permitted(Action.VIEW)
def policies(request: HttpRequest) -> HttpResponse:
    """Every policy of every scope."""
    found = [_line(line) for line in dlq.list_retry_policies()]
    context = {
        "as_of": timezone.now(),
        "consumer_lines": found,
        "is_cut": len(found) >= settings.DLQ_POLICY_LINES,
        "relay_lines": [(SCOPES["relay-topic"].address(p.topic), p) for p in relay.list_relay_policies()],
        "groups": sorted({line.line.target.group for line in found if line.line.target.group}),
        "topics": sorted({line.line.target.topic for line in found if line.line.target.topic}),
        "types": sorted({line.line.target.event_type for line in found if line.line.target.event_type}),
    }
    return render_page(request, "policies/list.html", context)


@require_safe
@permitted(Action.VIEW)
def policy(request: HttpRequest, slug: str) -> HttpResponse:
    """One policy: what counts, when a failing record is tried, every version, and two versions compared."""
    scope = _scope(slug)
    try:
        view = scope.view(scope.read_subject(request.GET))
        compared = _compared(scope, view, request.GET)
    except BadInput as bad:
        return refuse_filter(request, str(bad), page="Policies", back=reverse("policies"))
    versions = scope.versions(view.subject)
    context = {
        "as_of": timezone.now(),
        "scope": scope,
        "view": view,
        "words": scope.describe(view.document),
        "schedule": schedule_words(view.document) if scope.kept_as is PolicyScope.CONSUMER else "",
        "versions": _history(scope, versions),
        "is_cut": len(versions) >= settings.POLICY_VERSIONS_SHOWN,
        "compared": compared,
        "wider": _wider_words(scope, view),
    }
    return render_page(request, "policies/policy.html", context)


@require_safe
@permitted(Action.VIEW)
def policy_errors(request: HttpRequest) -> HttpResponse:
    """How errors are classified: the table that the consumers use."""
    kinds = [
        (kind, TREATMENT_WORDS[kind.found], [dlq.shown_name(name) for name in kind.names]) for kind in dlq.ERROR_KINDS
    ]
    context = {
        "kinds": kinds,
        "statuses": sorted(dlq.TRANSIENT_HTTP),
        "errnos": sorted(errno.errorcode[number] for number in dlq.TRANSIENT_ERRNO),
        "chain": dlq.CHAIN_LIMIT,
    }
    return render_page(request, "policies/errors.html", context)


# -- The editor --------------------------------------------------------------------------------------------
@asks
@permitted(Action.VIEW)
def policy_edit(request: HttpRequest, slug: str) -> HttpResponse:
    """GET: the draft and its preview. POST: set it, with a reason; 409 when stale, 422 when it cannot be."""
    scope = _scope(slug)
    given = request.POST if request.method == "POST" else request.GET
    try:
        view = scope.view(scope.read_subject(given))
    except BadInput as bad:
        return refuse_filter(request, str(bad), page="Policies", back=reverse("policies"))
    if request.method != "POST":
        return _editor(request, scope, view, given)
    try:
        require(request.user, scope.action)
        document = scope.read(view.subject, given)
        seen = read_whole(given, "seen", "The version")
        version = acts.set_policy(
            request.user, scope, view.subject, document, seen=seen, reason=given.get("reason", "")
        )
    except ActDenied as denied:
        raise PermissionDenied(str(denied)) from denied
    except StaleAct as stale:
        return refuse_act(request, 409, "It has changed since you looked", stale, scope.address(view.subject))
    except BadInput as bad:
        return _editor(request, scope, view, given, wrong=bad)
    messages.success(request, f"Version {version} of the policy of {view.title} is in force. {scope.obeyed}")
    return see_other(scope.address(view.subject))


def _editor(
    request: HttpRequest, scope: Scope, view: PolicyView, given: QueryDict, wrong: BadInput | None = None
) -> HttpResponse:
    is_draft = any(name in given for name in scope.fields)
    texts = {name: given.get(name, "") for name in scope.fields} if is_draft else scope.as_form(view.document)
    preview = None
    if is_draft:
        try:
            preview = _preview(scope, view, given)
        except BadInput as bad:
            wrong = wrong or bad
    context = {
        "scope": scope,
        "view": view,
        "fields": scope.ask(texts),
        "texts": texts,
        "days": given.get("days", str(settings.DLQ_SIMULATION_DAYS)),
        "days_most": settings.DLQ_ATTEMPT_RETENTION.days,
        "preview": preview,
        "seen": given.get("seen") or str(view.version),
        "next_version": view.version + 1,
        "reason": request.POST.get("reason", ""),
        "error": str(wrong) if wrong else "",
        "error_field": wrong.field if wrong else "",
        "allowed": may(request.user, scope.action),
        "drafting": Allowed(reason="A draft changes nothing."),
        "can_simulate": scope.kept_as is PolicyScope.CONSUMER,
    }
    return render_page(request, "policies/editor.html", context, status=422 if wrong else 200)


def _preview(scope: Scope, view: PolicyView, given: QueryDict) -> Preview:
    document = scope.read(view.subject, given)
    changes = compare(scope, view.document, document)
    if scope.kept_as is not PolicyScope.CONSUMER:
        return Preview(changes=changes)
    found = _simulate(view.subject, document, given)
    return Preview(
        changes=changes,
        schedule=schedule_words(document),
        simulation=found,
        said=say_simulation(found),
    )


def _simulate(subject: str, document: Mapping[str, object], given: QueryDict) -> PolicySimulation:
    text = given.get("days", "").strip() or str(settings.DLQ_SIMULATION_DAYS)
    return simulate_document(subject, document, int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0)


# -- Back, or to the wider one -----------------------------------------------------------------------------
@asks
@permitted(Action.VIEW)
def policy_roll_back(request: HttpRequest) -> HttpResponse:
    """Put an older version in force again."""
    scope = _named_scope(request)

    def ask(query: QueryDict) -> Ask:
        view = scope.view(scope.read_subject(query))
        old = _version(scope, view.subject, query)
        changed = [c for c in compare(scope, view.document, _own(old)) if c.is_changed and c.after]
        facts = [(c.what, f"{c.before or 'none'} → {c.after}") for c in changed]
        return Ask(
            title=f"Roll {view.title} back to version {old.version}",
            words=[
                (
                    f"Version {old.version} of {old.actor} becomes version {view.version + 1}. Nothing is lost: every"
                    " version stays in the history."
                ),
                scope.obeyed,
            ],
            action=scope.action,
            button="Roll back",
            hidden={
                "scope": scope.slug,
                "subject": view.subject,
                "version": str(old.version),
                "seen": query.get("seen", str(view.version)),
            },
            facts=facts or [("Changes", "nothing that counts")],
            needs_reason=True,
        )

    def act(given: QueryDict) -> str:
        subject = scope.read_subject(given)
        acts.roll_back_policy(
            request.user,
            scope,
            subject,
            read_whole(given, "version", "The version"),
            seen=read_whole(given, "seen", "The version that you saw"),
            reason=given.get("reason", ""),
        )
        return scope.address(subject)

    return _ask(request, scope, ask, act, done=f"The older version is in force again. {scope.obeyed}")


@asks
@permitted(Action.VIEW)
def policy_withdraw(request: HttpRequest) -> HttpResponse:
    """Let the next wider policy count again."""
    scope = _named_scope(request)
    if not scope.may_withdraw:
        raise Http404

    def ask(query: QueryDict) -> Ask:
        view = scope.view(scope.read_subject(query))
        if not view.is_own:
            raise StaleAct(f"{view.title} has no policy of its own any more: somebody has withdrawn it already.")
        wider = dlq.wider_retry_policy(dlq.target_of(view.subject))
        said = say_simulation(_simulate(view.subject, wider.as_json(), query))
        return Ask(
            title=f"Withdraw the policy of {view.title}",
            words=[
                f"Then {_wider_words(scope, view)} counts for it. It stays in the history and can be rolled back to.",
                scope.obeyed,
            ],
            action=scope.action,
            button="Withdraw the policy",
            hidden={"scope": scope.slug, "subject": view.subject, "seen": query.get("seen", str(view.version))},
            facts=[("What that would have done", said.headline)],
            needs_reason=True,
        )

    def act(given: QueryDict) -> str:
        subject = scope.read_subject(given)
        acts.withdraw_policy(
            request.user,
            scope,
            subject,
            seen=read_whole(given, "seen", "The version that you saw"),
            reason=given.get("reason", ""),
        )
        return scope.address(subject)

    return _ask(request, scope, ask, act, done=f"The policy is withdrawn. {scope.obeyed}")


def _ask(
    request: HttpRequest,
    scope: Scope,
    ask: Callable[[QueryDict], Ask],
    act: Callable[[QueryDict], str],
    *,
    done: str,
) -> HttpResponse:
    return answer_ask(
        request,
        scope.action,
        ask,
        act,
        done=done,
        area="Policies",
        home="policies",
        lead=str,
    )


# -- Reading -----------------------------------------------------------------------------------------------
def _scope(slug: str) -> Scope:
    try:
        return SCOPES[slug]
    except KeyError:
        raise Http404 from None


def _named_scope(request: HttpRequest) -> Scope:
    return _scope((request.POST if request.method == "POST" else request.GET).get("scope", ""))


def _line(line: PolicyLine) -> Line:
    target = line.target
    level = "type" if target.event_type else "topic" if target.topic else "group" if target.group else "all"
    return Line(
        name=target.event_type or target.topic or target.group or "Everything",
        level=level,
        address=SCOPES["consumer"].address(dlq.subject_of(target)),
        source=source_words(line),
        line=line,
        gives_up=_after(dlq.horizon_s(line.policy)),
        gives_up_unknown=_after(dlq.horizon_s(line.policy, line.policy.unknown_attempts)),
    )


def _after(seconds: float) -> str:
    return duration_words(seconds) if seconds else "at once"


def _wider_words(scope: Scope, view: PolicyView) -> str:
    """Whose policy would count without the subject's own; "" where there is no wider one."""
    if not scope.may_withdraw:
        return ""
    wider = dlq.wider_retry_policy(dlq.target_of(view.subject))
    if wider.version == 0:
        return "the settings' values"
    return f"the policy of {dlq.target_of(wider.subject)}, version {wider.version},"


def _own(version: PolicyVersion | None) -> Document | None:
    """The document of a version; None = no policy of its own."""
    if version is None or dlq.is_withdrawn(version.document):
        return None
    return version.document


def _history(scope: Scope, versions: Sequence[PolicyVersion]) -> list[Version]:
    older: list[PolicyVersion | None] = [*versions[1:], None][: len(versions)]
    return [
        Version(
            version=version,
            is_in_force=number == 0,
            is_withdrawn=dlq.is_withdrawn(version.document),
            changed=[c for c in compare(scope, _own(before), _own(version)) if c.is_changed] if before else [],
        )
        for number, (version, before) in enumerate(zip(versions, older, strict=True))
    ]


def _version(scope: Scope, subject: str, query: QueryDict, name: str = "version") -> PolicyVersion:
    number = read_whole(query, name, "The version")
    found = relay.get_policy_version(scope.kept_as, subject, min(number, 2**31 - 1))
    if found is None:
        raise BadInput(name, f"There is no version {number_words(number)} of this policy.")
    return found


def _compared(scope: Scope, view: PolicyView, query: QueryDict) -> Mapping[str, object] | None:
    """Two versions that the address names, line by line."""
    if not query.get("from") or not query.get("to"):
        return None
    before = _version(scope, view.subject, query, "from")
    after = _version(scope, view.subject, query, "to")
    return {
        "before_words": f"Version {before.version}",
        "after_words": f"Version {after.version}",
        "changes": compare(scope, _own(before), _own(after)),
    }
