"""What the OpenAPI document says of the ways to sign in."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class _TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "console.api.auth.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        del auto_schema
        return {"type": "http", "scheme": "bearer"}


class _SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "console.api.auth.SignedIn"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        del auto_schema
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}
