"""Tokens of the API: how they look, how one is found again. Only a digest is stored; the database clock decides."""

import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q
from django.db.models.functions import Now

from console.models import ApiToken
from console.permissions import Action, TokenScope, limit_to

_LOOKS_RIGHT = re.compile(r"sbx_[0-9a-f]{8}_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeToken:
    """A new token; `secret` is shown once and kept nowhere."""

    row: ApiToken
    secret: str


def make_token(person: User, *, name: str, actions: Collection[Action], lasts: timedelta, made_by: str) -> MadeToken:
    """Store a new token of `person` in the caller's transaction."""
    prefix = f"sbx_{secrets.token_hex(4)}"
    secret = f"{prefix}_{secrets.token_urlsafe(32)}"
    row = ApiToken.objects.create(
        name=name,
        prefix=prefix,
        digest=_digest(secret),
        person=person,
        actions=sorted(action.value for action in actions),
        made_by=made_by,
        expires_at=Now() + lasts,
    )
    row.refresh_from_db()
    return MadeToken(row=row, secret=secret)


def find_person(secret: str) -> User | None:
    """The person of a token that is valid now, limited to what the token may; None = it is not one, or no longer.

    Notes the use, at most once in `API_TOKEN_USE_NOTED_S`.
    """
    if not _LOOKS_RIGHT.fullmatch(secret):
        return None
    living = ApiToken.objects.filter(revoked_at__isnull=True, expires_at__gt=Now(), person__is_active=True)
    row = living.select_related("person").filter(digest=_digest(secret)).first()
    if row is None:
        return None
    _note_use(row)
    known = frozenset(action for action in Action if action.value in row.actions)
    limit_to(row.person, TokenScope(name=f"{row.prefix} {row.name}", actions=known))
    return row.person


def revoke_token(prefix: str) -> ApiToken | None:
    """End a token in the caller's transaction; None = there is no such one that still lives."""
    row = ApiToken.objects.select_for_update().filter(prefix=prefix, revoked_at__isnull=True).first()
    if row is None:
        return None
    ApiToken.objects.filter(pk=row.pk).update(revoked_at=Now())
    row.refresh_from_db()
    return row


def list_tokens(*, limit: int) -> list[ApiToken]:
    """The newest tokens, ended ones too."""
    return list(ApiToken.objects.select_related("person").order_by("-id")[:limit])


def _note_use(row: ApiToken) -> None:
    seldom = Now() - timedelta(seconds=settings.API_TOKEN_USE_NOTED_S)
    unnoted = ApiToken.objects.filter(Q(used_at__isnull=True) | Q(used_at__lt=seldom), pk=row.pk)
    unnoted.update(used_at=Now())


def _digest(secret: str) -> str:
    # 256 random bits need no slow hash: there is nothing to guess.
    return hashlib.sha256(secret.encode()).hexdigest()
