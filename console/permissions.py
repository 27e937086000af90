"""Who may do what: one table, one function that decides (`may`).

A permission is Django's (`console.<action>`); groups get theirs from the table by `manage.py sync_roles`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db.models import prefetch_related_objects

from console.words import join_words


class Group(StrEnum):
    """The groups that people are in; the value is the group's name."""

    VIEWER = "viewer"
    ON_CALL = "on-call"
    SUPPORT = "support"
    ADMIN = "admin"


class Action(StrEnum):
    """Everything that needs a permission; the value is the codename of Django's permission."""

    VIEW = "view_console"
    ACKNOWLEDGE_INCIDENT = "acknowledge_incident"
    PAUSE_RELAY = "pause_relay"
    RESUME_RELAY = "resume_relay"
    PAUSE_TOPIC = "pause_topic"
    RETRY_ROWS = "retry_rows"
    SKIP_ROW = "skip_row"
    SET_RELAY_POLICY = "set_relay_policy"
    SET_RETRY_POLICY = "set_retry_policy"
    SET_ALLOWED_LAG = "set_allowed_lag"
    REWIND_GROUP = "rewind_group"
    SWITCH_GROUP = "switch_group"
    SETTLE_DATA_LOSS = "settle_data_loss"
    REPLAY_DEAD_LETTERS = "replay_dead_letters"
    RELEASE_KEY = "release_key"
    DISCARD_DEAD_LETTERS = "discard_dead_letters"
    TRIAGE_GROUPS = "triage_groups"
    CLOSE_BREAKER = "close_breaker"
    MANAGE_API_TOKENS = "manage_api_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One line of the table: the action in words and the groups that have it."""

    action: Action
    words: str
    groups: frozenset[Group]

    @property
    def group_words(self) -> str:
        """The groups that have it, as a list in words."""
        return ", ".join(group.value for group in Group if group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """The person may. `reason` says by which group."""

    reason: str
    ok: Literal[True] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """The person may not; `reason` says why and who may."""

    reason: str
    ok: Literal[False] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScope:
    """What a token of the API may, of what its person may; `name` is what the audit says."""

    name: str
    actions: frozenset[Action]


GRANTS: tuple[Grant, ...] = (
    Grant(action=Action.VIEW, words="See every page and its live changes", groups=frozenset(Group)),
    Grant(
        action=Action.ACKNOWLEDGE_INCIDENT,
        words="Take an open incident",
        groups=frozenset({Group.ON_CALL, Group.SUPPORT, Group.ADMIN}),
    ),
    Grant(
        action=Action.PAUSE_RELAY,
        words="Pause the relay: nothing is published until it is resumed",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(action=Action.RESUME_RELAY, words="Resume the relay", groups=frozenset({Group.ON_CALL, Group.ADMIN})),
    Grant(
        action=Action.PAUSE_TOPIC,
        words="Pause and resume one topic, or one key of it, while the others go on",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(
        action=Action.RETRY_ROWS,
        words="Let the relay try waiting rows again now",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(
        action=Action.SKIP_ROW,
        words="Skip an outbox row for good, so that its key goes on without it",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(
        action=Action.SET_RELAY_POLICY,
        words="Set how failed rows of a topic are treated, and its ingress hold",
        groups=frozenset({Group.ADMIN}),
    ),
    Grant(
        action=Action.SET_RETRY_POLICY,
        words="Set how often and when consumers try failed records again",
        groups=frozenset({Group.ADMIN}),
    ),
    Grant(
        action=Action.SET_ALLOWED_LAG,
        words="Set the lag that a consumer group may have",
        groups=frozenset({Group.ADMIN}),
    ),
    Grant(
        action=Action.REWIND_GROUP,
        words="Rewind a consumer group: move its committed offsets",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(
        action=Action.SWITCH_GROUP,
        words="Stop and start the consumers of a group of Signalbox",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(
        action=Action.SETTLE_DATA_LOSS,
        words="Choose where a group goes on after records were lost to it",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(
        action=Action.REPLAY_DEAD_LETTERS,
        words="Preview and replay dead letters; pause, resume and cancel a replay; change its rate",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(
        action=Action.RELEASE_KEY,
        words="Release a quarantined key: replay its records in order",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(
        action=Action.DISCARD_DEAD_LETTERS,
        words="Discard dead letters, and restore them",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(
        action=Action.TRIAGE_GROUPS,
        words="Name, snooze, merge and split failure groups, and call them fixed",
        groups=frozenset({Group.ON_CALL, Group.SUPPORT, Group.ADMIN}),
    ),
    Grant(
        action=Action.CLOSE_BREAKER,
        words="Close the breaker of a handler: its records are tried again at once",
        groups=frozenset({Group.ON_CALL, Group.ADMIN}),
    ),
    Grant(
        action=Action.MANAGE_API_TOKENS,
        words="Make and revoke API tokens",
        groups=frozenset({Group.ADMIN}),
    ),
)
_BY_ACTION = {grant.action: grant for grant in GRANTS}
_SCOPE = "_signalbox_token_scope"


def may(user: User | AbstractBaseUser | AnonymousUser, action: Action) -> Allowed | Denied:
    """Decide whether `user` may do `action`; the only place that decides."""
    if not user.is_authenticated or not isinstance(user, User):
        return Denied(reason="Sign in first.")
    if not user.is_active:
        return Denied(reason="This account is switched off.")
    scope = token_scope(user)
    if scope is not None and action not in scope.actions:
        return Denied(reason=f"The token {scope.name} was not made for this: {action.value} is not among its actions.")
    if user.has_perm(f"console.{action.value}"):
        return Allowed(reason="Superuser." if user.is_superuser else f"Through {_through(user, action)}.")
    return Denied(reason=f"{_has(user)}; this needs {_needs(action)}.")


def limit_to(user: User, scope: TokenScope) -> None:
    """Let this object of a person, for one request, do no more than a token allows."""
    vars(user)[_SCOPE] = scope


def token_scope(user: User) -> TokenScope | None:
    """The token that the person comes by; None = signed in, or at the command line."""
    found = vars(user).get(_SCOPE)
    return found if isinstance(found, TokenScope) else None


def grant_of(action: Action) -> Grant:
    """The table's line of an action."""
    return _BY_ACTION[action]


def group_names(user: User) -> list[str]:
    """The names of the person's groups, sorted; read once a request."""
    prefetch_related_objects([user], "groups")
    return sorted(group.name for group in user.groups.all())


def _through(user: User, action: Action) -> str:
    groups = [name for name in group_names(user) if name in grant_of(action).groups]
    return f"the group {join_words(groups)}" if groups else "a permission of the account's own"


def _has(user: User) -> str:
    names = group_names(user)
    return f"You are in {join_words(names)}" if names else "You are in no group"


def _needs(action: Action) -> str:
    names = [group.value for group in Group if group in grant_of(action).groups]
    return " or ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} or {names[-1]}"
