"""Who calls the API: a bearer token, else the session of the console; and whether they may.

Named in settings, so nothing here may import `rest_framework.views`, which reads them.
"""

from typing import Any

from django.contrib.auth.models import User
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from console.permissions import Action, Denied, may, token_scope
from console.tokens import find_person

_BAD_TOKEN = "This token is not known, or it was revoked or has expired. Make one with manage.py api_token create."  # noqa: S105


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer sbx_...`. One that cannot be used is refused: it never falls back to the session."""

    def authenticate(self, request: Request) -> tuple[User, str] | None:
        """The token's person, limited to its actions; None = no such header.

        Raises:
            AuthenticationFailed: the token cannot be used.
        """
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != b"bearer":
            return None
        person = find_person(words[1].decode("ascii", "replace")) if len(words) == 2 else None
        if person is None:
            raise AuthenticationFailed(_BAD_TOKEN)
        scope = token_scope(person)
        return person, scope.name if scope else ""

    def authenticate_header(self, request: Request) -> str:
        """What a caller without credentials is told to bring."""
        del request
        return "Bearer"


class SignedIn(SessionAuthentication):
    """The session of the console; changes need its form token in `X-CSRFToken`."""


class Permitted(BasePermission):
    """Those who may what the view names in `action` (to see pages, unless it says more)."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Tell, or refuse with the reason.

        Raises:
            PermissionDenied: signed in, but not allowed.
        """
        action: Action = getattr(view, "action_needed", Action.VIEW)
        decision = may(request.user, action)
        if isinstance(decision, Denied) and request.user.is_authenticated:
            raise PermissionDenied(decision.reason)
        return decision.ok
