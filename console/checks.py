"""System checks of the whole product."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register


@register(Tags.security, deploy=True)
def check_secret_key(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:  # noqa: ARG001
    """A deployment needs a secret of its own: sessions are signed and key labels are made with it."""
    if settings.SECRET_KEY != settings.SECRET_KEY_UNSET:
        return []
    return [
        Error(
            "SECRET_KEY is not set.",
            hint="Set SECRET_KEY to a long random text, the same in every process; `make up` makes one by itself.",
            id="console.E001",
        )
    ]
