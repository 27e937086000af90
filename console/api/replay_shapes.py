"""How replays, quarantined keys, breakers and requests look in the API, and what is sent to act on them."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from console.api.shapes import LetterShape, Shape
from console.letter_filter import STATES
from console.models import SecondAct, SecondState
from console.replay_words import scope_words
from dlq.types import (
    VERDICT_WORDS,
    BreakerState,
    ReplayMode,
    ReplayOutcome,
    ReplayPhase,
    ReplayPreview,
    ReplayState,
    ReplayVerdict,
)


class Given(serializers.Serializer[Any]):
    """What a call sends."""


class FilterGiven(Given):
    """The filter of the list, by the same names."""

    state = serializers.ChoiceField(STATES, required=False)
    failure = serializers.CharField(required=False, help_text="The number of a failure group, such as G-118.")
    group = serializers.CharField(required=False)
    topic = serializers.CharField(required=False)
    type = serializers.CharField(required=False)
    error = serializers.CharField(required=False)
    fingerprint = serializers.CharField(required=False)
    key = serializers.CharField(required=False, help_text="A key's label.")
    since = serializers.CharField(required=False)
    until = serializers.CharField(required=False)
    replays = serializers.CharField(required=False)
    needs_human = serializers.ChoiceField(["1"], required=False)


class PreviewGiven(Given):
    """A selection: ids, or a filter; exactly one of them."""

    ids = serializers.ListField(child=serializers.UUIDField(), required=False)
    filter = FilterGiven(required=False)
    rate_per_s = serializers.FloatField(required=False, allow_null=True)


class StartGiven(Given):
    """Start the replay of a preview."""

    preview_id = serializers.UUIDField()
    rate_per_s = serializers.FloatField(required=False, allow_null=True)
    reason = serializers.CharField(required=False, allow_blank=True, default="")


class HoldGiven(Given):
    """`version` is that of the job as it was seen: when it has changed since, nothing is done (409)."""

    version = serializers.IntegerField(min_value=0)
    reason = serializers.CharField(required=False, allow_blank=True, default="")


class RateGiven(Given):
    """A new rate; null = as fast as the consumers can."""

    version = serializers.IntegerField(min_value=0)
    rate_per_s = serializers.FloatField(allow_null=True)


class RetryGiven(Given):
    """The rate that the preview reckons with; null = as fast as the consumers can."""

    rate_per_s = serializers.FloatField(required=False, allow_null=True)


class ReasonGiven(Given):
    """Why."""

    reason = serializers.CharField()


class BreakerGiven(Given):
    """A breaker as it was seen."""

    group = serializers.CharField()
    handler = serializers.CharField()
    version = serializers.IntegerField(min_value=0)
    reason = serializers.CharField()


class NothingGiven(Given):
    """No value."""


class CountShape(Shape):
    """How many have a verdict, and what it means."""

    verdict = serializers.ChoiceField([v.value for v in ReplayVerdict])
    count = serializers.IntegerField()
    words = serializers.CharField()


class SampleShape(Shape):
    """One of the selection."""

    dead_letter = LetterShape()
    verdict = serializers.ChoiceField([v.value for v in ReplayVerdict])


class PreviewShape(Shape):
    """A frozen selection, and what a replay of it would do. Its id is the token that starts it, once."""

    id = serializers.UUIDField()
    scope = serializers.SerializerMethodField()
    group = serializers.CharField()
    mode = serializers.ChoiceField([m.value for m in ReplayMode])
    as_of = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    expired = serializers.BooleanField()
    total = serializers.IntegerField()
    runnable = serializers.IntegerField(help_text="How many would be replayed.")
    followers = serializers.IntegerField(help_text="How many wait behind selected heads and follow in order.")
    counts = serializers.SerializerMethodField()
    late = serializers.IntegerField(help_text="Matches since the preview: no part of it.")
    rate_per_s = serializers.FloatField(allow_null=True)
    duration_s = serializers.FloatField(allow_null=True)
    needs_second = serializers.BooleanField()
    samples = serializers.SerializerMethodField()
    job_id = serializers.UUIDField(allow_null=True)

    def get_scope(self, found: ReplayPreview) -> str:
        """What would be replayed and how long it would take, in words."""
        return scope_words(found, found.rate_per_s)

    @extend_schema_field(CountShape(many=True))
    def get_counts(self, found: ReplayPreview) -> list[dict[str, Any]]:
        """How many have which verdict."""
        return [{"verdict": v.value, "count": n, "words": VERDICT_WORDS[v]} for v, n in found.counts.items()]

    @extend_schema_field(SampleShape(many=True))
    def get_samples(self, found: ReplayPreview) -> list[dict[str, Any]]:
        """Some of them, each with its verdict."""
        return [{"dead_letter": LetterShape(row).data, "verdict": v.value} for row, v in found.samples]


class JobShape(Shape):
    """One replay. Counts are of committed outcomes."""

    id = serializers.UUIDField()
    group = serializers.CharField()
    mode = serializers.ChoiceField([m.value for m in ReplayMode])
    state = serializers.ChoiceField([s.value for s in ReplayState])
    phase = serializers.ChoiceField([p.value for p in ReplayPhase])
    why = serializers.CharField()
    waiting_for = serializers.CharField()
    actor = serializers.CharField()
    second = serializers.CharField()
    reason = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    as_of = serializers.DateTimeField()
    version = serializers.IntegerField(help_text="Send it with the next act on this replay.")
    changed_by = serializers.CharField()
    changed_at = serializers.DateTimeField()
    rate_per_s = serializers.FloatField(allow_null=True)
    total = serializers.IntegerField()
    followed = serializers.IntegerField()
    queued = serializers.IntegerField()
    running = serializers.IntegerField()
    applied = serializers.IntegerField()
    deduplicated = serializers.IntegerField()
    sent = serializers.IntegerField()
    failed = serializers.IntegerField()
    failed_same = serializers.IntegerField()
    skipped = serializers.IntegerField()
    measured_per_s = serializers.FloatField(allow_null=True)
    eta_s = serializers.FloatField(allow_null=True)
    preview_id = serializers.UUIDField(allow_null=True)


class JobPageShape(Shape):
    """Replays, newest first."""

    as_of = serializers.DateTimeField()
    jobs = JobShape(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class ItemShape(Shape):
    """One dead letter's part in a replay."""

    number = serializers.IntegerField()
    dead_letter_id = serializers.UUIDField()
    topic = serializers.CharField()
    partition = serializers.IntegerField()
    offset = serializers.IntegerField()
    event_type = serializers.CharField()
    key_label = serializers.CharField()
    outcome = serializers.ChoiceField([o.value for o in ReplayOutcome])
    why = serializers.CharField()
    error_class = serializers.CharField()
    same_error = serializers.BooleanField(allow_null=True)
    joined = serializers.BooleanField()
    taken_by = serializers.CharField()
    settled_at = serializers.DateTimeField(allow_null=True)


class ItemPageShape(Shape):
    """Items in their order."""

    as_of = serializers.DateTimeField()
    items = ItemShape(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class RequestShape(Shape):
    """What a second person is asked for. Nothing is done before another person confirms."""

    id = serializers.IntegerField(source="row.pk")
    act = serializers.ChoiceField(SecondAct.values, source="row.act")
    preview = serializers.CharField(source="row.preview")
    scope = serializers.CharField(source="row.scope")
    count = serializers.IntegerField(source="row.count")
    reason = serializers.CharField(source="row.reason")
    asked_by = serializers.CharField(source="row.asked_by")
    asked_at = serializers.DateTimeField(source="row.asked_at")
    expires_at = serializers.DateTimeField(source="row.expires_at")
    expired = serializers.BooleanField(source="is_expired")
    state = serializers.ChoiceField(SecondState.values, source="row.state")
    decided_by = serializers.CharField(source="row.decided_by")
    decided_at = serializers.DateTimeField(source="row.decided_at", allow_null=True)
    answer = serializers.CharField(source="row.answer")
    outcome = serializers.CharField(source="row.outcome")


class RequestListShape(Shape):
    """The newest requests."""

    requests = RequestShape(many=True)


class DoneShape(Shape):
    """What a start became: a replay (201), or a request that another person has to confirm (202)."""

    replay = JobShape(allow_null=True)
    second_request = RequestShape(allow_null=True)


class KeyShape(Shape):
    """A quarantined key. `letters` counts the head and those behind it."""

    id = serializers.UUIDField()
    group = serializers.CharField()
    topic = serializers.CharField()
    key_label = serializers.CharField()
    head = LetterShape()
    letters = serializers.IntegerField()
    quarantined_at = serializers.DateTimeField()
    head_since = serializers.DateTimeField()
    job_id = serializers.UUIDField(allow_null=True)


class KeyPageShape(Shape):
    """Quarantined keys, newest first; `total` counts up to `total_limit`."""

    as_of = serializers.DateTimeField()
    keys = KeyShape(many=True)
    next_cursor = serializers.CharField(allow_null=True)
    total = serializers.IntegerField()
    total_limit = serializers.IntegerField()


class BreakerShape(Shape):
    """One handler's breaker."""

    group = serializers.CharField()
    handler = serializers.CharField()
    state = serializers.ChoiceField([s.value for s in BreakerState])
    failures = serializers.IntegerField()
    error_class = serializers.CharField()
    opened_at = serializers.DateTimeField(allow_null=True)
    probe_in_s = serializers.FloatField(allow_null=True)
    probes = serializers.IntegerField()
    version = serializers.IntegerField()
    changed_by = serializers.CharField()
    changed_at = serializers.DateTimeField()


class BreakerListShape(Shape):
    """The breakers that ever counted a failure, open ones first."""

    breakers = BreakerShape(many=True)
