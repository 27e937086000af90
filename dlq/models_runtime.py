"""Tables of the runtime: records that wait, breakers, and results of calls that are made once."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from dlq.types import BreakerState, FailureClass

GROUP_LIMIT = 200
TOPIC_LIMIT = 249
_CLASSES = [c.value for c in FailureClass if c is not FailureClass.BEHIND]


class Waiting(models.Model):
    """A record that waits for its next try; deleted in the transaction that applies or parks it. See `dlq.retrying`.

    `stored`: its bytes are here and its offset has moved on; otherwise Kafka delivers it again. `lane` stands for the
    key, None without one. `due_at` is None for a stored one behind another of its key. `attempts` counts failed tries
    that were spent, `unknown_attempts` those of them that nobody can classify. Indexes: the stored ones of a key, in
    order; those that are due.
    """

    id = models.BigAutoField(primary_key=True)
    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name")
    topic = models.CharField(max_length=TOPIC_LIMIT)
    partition = models.IntegerField()
    offset = models.BigIntegerField(db_column="log_offset")
    topic_id = models.CharField(max_length=40, null=True)
    lane = models.BigIntegerField(null=True)
    key_label = models.CharField(max_length=20)
    handler = models.CharField(max_length=200)
    event_id = models.UUIDField(null=True)
    event_type = models.CharField(max_length=200, blank=True)
    attempts = models.PositiveIntegerField(db_default=0)
    unknown_attempts = models.PositiveIntegerField(db_default=0)
    first_failed_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    failure_class = models.CharField(max_length=12, blank=True)
    error_class = models.CharField(max_length=200, blank=True)
    error_message = models.CharField(max_length=500, blank=True)
    fingerprint = models.CharField(max_length=16, blank=True)
    stored = models.BooleanField(db_default=False)
    leader_epoch = models.IntegerField(null=True)
    timestamp_ms = models.BigIntegerField(null=True)
    original_key = models.BinaryField(null=True)
    original_value = models.BinaryField(null=True)
    original_headers = models.BinaryField(null=True)
    size_bytes = models.BigIntegerField(db_default=0)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_waiting"
        constraints = [
            models.UniqueConstraint(
                fields=["group", "topic", "partition", "offset", "topic_id"],
                nulls_distinct=False,
                name="dlq_waiting_once_a_record",
            ),
            models.CheckConstraint(
                condition=Q(partition__gte=0) & Q(offset__gte=0), name="dlq_waiting_has_coordinates"
            ),
            models.CheckConstraint(
                condition=Q(stored=True) | Q(due_at__isnull=False), name="dlq_waiting_delivered_is_due"
            ),
            models.CheckConstraint(
                condition=Q(unknown_attempts__lte=F("attempts")), name="dlq_waiting_attempts_add_up"
            ),
            models.CheckConstraint(condition=Q(failure_class__in=["", *_CLASSES]), name="dlq_waiting_known_class"),
        ]
        indexes = [
            models.Index(
                fields=["group", "topic", "lane", "id"],
                condition=Q(stored=True, lane__isnull=False),
                name="dlq_waiting_key",
            ),
            models.Index(
                fields=["group", "due_at"], condition=Q(stored=True, due_at__isnull=False), name="dlq_waiting_due"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.topic}/{self.partition}@{self.offset}"


class Breaker(models.Model):
    """Whether what a handler needs is down: closed -> open -> closed, one row for all processes. See `dlq.breaker`.

    `failures` counts transient failures since the last success; `culprits` are the waiting rows that they were counted
    on, each as often. While open, whoever writes `probe_token` may make the next try until `probe_until`.
    """

    pk = models.CompositePrimaryKey("group", "handler")
    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name")
    handler = models.CharField(max_length=200)
    state = models.CharField(
        max_length=8, choices=[(s.value, s.value) for s in BreakerState], db_default=BreakerState.CLOSED.value
    )
    failures = models.PositiveIntegerField(db_default=0)
    culprits = ArrayField(models.BigIntegerField(), db_default=[])
    error_class = models.CharField(max_length=200, db_default="")
    opened_at = models.DateTimeField(null=True)
    probes = models.PositiveIntegerField(db_default=0)
    probe_at = models.DateTimeField(null=True)
    probe_token = models.UUIDField(null=True)
    probe_until = models.DateTimeField(null=True)
    version = models.PositiveIntegerField(db_default=0)
    changed_by = models.CharField(max_length=150, db_default="")
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_breaker"
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in BreakerState]), name="dlq_breaker_known_state"
            ),
            models.CheckConstraint(
                condition=Q(state=BreakerState.CLOSED.value, opened_at__isnull=True, probe_at__isnull=True)
                | Q(state=BreakerState.OPEN.value, opened_at__isnull=False, probe_at__isnull=False),
                name="dlq_breaker_open_has_times",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.handler} {self.state}"


class Once(models.Model):
    """A call that is made once an event and name: claimed -> finished. See `dlq.once`.

    `token` fences: only its holder writes the result, and until `lease_until` nobody else claims.
    """

    pk = models.CompositePrimaryKey("event_id", "name")
    event_id = models.UUIDField()
    name = models.CharField(max_length=200)
    token = models.UUIDField()
    claims = models.PositiveIntegerField(db_default=1)
    lease_until = models.DateTimeField(null=True)
    result = models.JSONField(null=True)
    claimed_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "dlq_once"
        constraints = [
            models.CheckConstraint(
                condition=Q(finished_at__isnull=True, lease_until__isnull=False)
                | Q(finished_at__isnull=False, lease_until__isnull=True),
                name="dlq_once_leased_or_finished",
            ),
        ]
        indexes = [models.Index(fields=["finished_at"], condition=Q(finished_at__isnull=False), name="dlq_once_old")]

    def __str__(self) -> str:
        return f"{self.event_id} {self.name}"
