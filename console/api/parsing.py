"""How a body is read: JSON, bounded. Named in settings, so it may not import `rest_framework.views`."""

from collections.abc import Mapping
from io import BytesIO
from typing import IO, Any

from django.conf import settings
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser


class TooLarge(APIException):
    """The body is over `API_BODY_BYTES`."""

    status_code = 413


class BoundedJsonParser(JSONParser):
    """JSON of at most `API_BODY_BYTES`."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The decoded body.

        Raises:
            TooLarge, ParseError (not JSON, or not an object).
        """
        body = stream.read(settings.API_BODY_BYTES + 1)
        if len(body) > settings.API_BODY_BYTES:
            raise TooLarge(f"At most {settings.API_BODY_BYTES:,} bytes are read.")
        found = super().parse(BytesIO(body), media_type, parser_context) if body.strip() else {}
        if not isinstance(found, dict):
            raise ParseError("The body is a JSON object, such as {}.")
        return found
