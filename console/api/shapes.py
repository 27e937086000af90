"""How values look in the API. These are a contract: a field may be added, none renamed or taken away."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from dlq.types import DeadLetterState, FailureClass, Origin

CURSOR = OpenApiParameter("cursor", str, description="The `next_cursor` or `previous_cursor` of a page.")
LIMIT = OpenApiParameter("limit", int, description="Rows of a page, 1 to 500; 50 when not given.")
LETTER_FILTER = [
    OpenApiParameter("state", str, enum=[*(s.value for s in DeadLetterState), "any"], default="parked"),
    *(OpenApiParameter(name, str) for name in ("group", "topic", "type", "error", "fingerprint", "key")),
    OpenApiParameter("since", str, description="A span such as 1h or 7d, or a time such as 2026-03-10T10:42:00Z."),
]


class Shape(serializers.Serializer[Any]):
    """What is read only: a value as the caller sees it."""


class ProblemShape(Shape):
    """An error (RFC 9457)."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField(help_text="What is wrong and what to do.")
    request_id = serializers.CharField(help_text="Quote it: the log has it too.")
    field = serializers.CharField(required=False)
    invalid = serializers.DictField(required=False, help_text="What is wrong with each value of the body.")


class LetterShape(Shape):
    """One line of the dead letters."""

    id = serializers.UUIDField()
    state = serializers.ChoiceField([s.value for s in DeadLetterState])
    origin = serializers.ChoiceField([o.value for o in Origin])
    topic = serializers.CharField()
    partition = serializers.IntegerField()
    offset = serializers.IntegerField()
    group = serializers.CharField()
    handler = serializers.CharField()
    event_id = serializers.UUIDField(allow_null=True)
    event_type = serializers.CharField()
    key_label = serializers.CharField(help_text="Stands for the key, which is never shown.")
    failure_class = serializers.ChoiceField([c.value for c in FailureClass])
    error_class = serializers.CharField()
    error_message = serializers.CharField()
    fingerprint = serializers.CharField()
    attempts = serializers.IntegerField()
    parked_at = serializers.DateTimeField()


class DigestShape(Shape):
    """What is shown of hidden bytes; both null = absent."""

    length = serializers.IntegerField(allow_null=True)
    sha256 = serializers.CharField(allow_null=True)


class LetterDetailShape(Shape):
    """One dead letter with what happened to it."""

    row = LetterShape()
    published_at = serializers.DateTimeField(allow_null=True)
    record_timestamp = serializers.DateTimeField(allow_null=True)
    topic_id = serializers.CharField(allow_null=True)
    leader_epoch = serializers.IntegerField(allow_null=True)
    stack = serializers.CharField()
    key = DigestShape()
    value = DigestShape()
    headers = serializers.SerializerMethodField()
    timeline = serializers.SerializerMethodField()
    similar = serializers.IntegerField()

    def get_headers(self, letter: Any) -> list[dict[str, object]]:
        """Header names in their order, with the digests of their values."""
        return [{"name": name, "value": DigestShape(digest).data} for name, digest in letter.headers]

    def get_timeline(self, letter: Any) -> list[dict[str, str]]:
        """What happened, oldest first."""
        return [{"at": at.isoformat(), "words": words} for at, words in letter.timeline]


class LetterPageShape(Shape):
    """Dead letters, newest first."""

    as_of = serializers.DateTimeField()
    rows = LetterShape(many=True)
    next_cursor = serializers.CharField(allow_null=True)
    previous_cursor = serializers.CharField(allow_null=True)
