"""The table of recorded tries; see `dlq.attempt_log`."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from dlq.types import AttemptOutcome, FailureClass

_OUTCOMES = [(o.value, o.value) for o in AttemptOutcome]
_CLASSES = [(c.value, c.value) for c in FailureClass if c.value != "behind"]


class Attempt(models.Model):
    """One try that failed, or the one that succeeded after failures. Append-only; swept after `DLQ_ATTEMPT_RETENTION`.

    `number` counts from 1 over restarts. `failure_class` and what follows are of the failure, for an applied one of
    the failure before it. `wait_s`: how long it waits for the next try. Indexes: the sweep; the simulation of one
    group's policy; the timeline of one record.
    """

    id = models.BigAutoField(primary_key=True)
    group = models.CharField(max_length=200, db_column="group_name")
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    offset = models.BigIntegerField(db_column="log_offset")
    topic_id = models.CharField(max_length=40, null=True)
    handler = models.CharField(max_length=200, blank=True)
    event_id = models.UUIDField(null=True)
    event_type = models.CharField(max_length=200, blank=True)
    key_label = models.CharField(max_length=20)
    number = models.PositiveIntegerField()
    outcome = models.CharField(max_length=8, choices=_OUTCOMES)
    failure_class = models.CharField(max_length=12, choices=_CLASSES)
    error_class = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=16)
    wait_s = models.FloatField(null=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_attempt"
        constraints = [
            models.CheckConstraint(
                condition=Q(outcome__in=[o.value for o in AttemptOutcome]), name="dlq_attempt_known_outcome"
            ),
            models.CheckConstraint(
                condition=Q(failure_class__in=[value for value, _ in _CLASSES]), name="dlq_attempt_known_class"
            ),
            models.CheckConstraint(
                condition=Q(number__gte=1) & Q(partition__gte=0) & Q(offset__gte=0), name="dlq_attempt_has_coordinates"
            ),
            models.CheckConstraint(condition=Q(wait_s__gte=0) | Q(wait_s__isnull=True), name="dlq_attempt_wait"),
        ]
        indexes = [
            models.Index(fields=["at"], name="dlq_attempt_at"),
            models.Index(fields=["group", "at"], name="dlq_attempt_group"),
            models.Index(fields=["group", "topic", "partition", "offset"], name="dlq_attempt_record"),
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.topic}/{self.partition}@{self.offset} try {self.number}"
