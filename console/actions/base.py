"""What every operator act shares.

Errors (root `ActError`):
    ActDenied   the person may not; the reason says why and who may          -> 403
    BadInput    a field cannot be used; `field` and the text say what to do  -> 422
    StaleAct    somebody was faster; the text says what changed              -> 409
"""

import unicodedata

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db import connection

from console.permissions import Action, Denied, may

Actor = User | AbstractBaseUser | AnonymousUser
_TURNING = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


class ActError(Exception):
    """Base of what an act refuses; nothing was changed and no audit row written."""


class ActDenied(ActError):
    """The person may not do this."""


class BadInput(ActError):
    """A value of the form cannot be used."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class StaleAct(ActError):
    """What the form was made from has changed since."""


def require(actor: Actor, action: Action) -> User:
    """The actor as a user, or `ActDenied` with the reason."""
    decision = may(actor, action)
    if isinstance(decision, Denied) or not isinstance(actor, User):
        raise ActDenied(decision.reason)
    return actor


def require_reason(text: str) -> str:
    """The reason without the space around it.

    Raises:
        BadInput: it is empty, longer than `AUDIT_REASON_CHARS`, or holds a character that hides or turns text.
    """
    reason = text.strip()
    if not reason:
        raise BadInput("reason", "Say why: the next person on call reads it.")
    if len(reason) > settings.AUDIT_REASON_CHARS:
        raise BadInput("reason", f"At most {settings.AUDIT_REASON_CHARS} characters; this has {len(reason)}.")
    if any(_is_hidden(char) for char in reason):
        raise BadInput("reason", "It holds a character that cannot be shown. Type it again instead of pasting it.")
    return reason


def _is_hidden(char: str) -> bool:
    """Control characters (PostgreSQL keeps no NUL) and marks that turn the direction of what follows."""
    is_control = unicodedata.category(char) == "Cc" and char not in "\t\r\n"
    return is_control or unicodedata.bidirectional(char) in _TURNING


def take_turn(name: str) -> None:
    """Let acts on the same thing run one after the other: a lock by name until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"console.act:{name}"])
