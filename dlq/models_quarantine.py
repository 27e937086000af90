"""Tables of the quarantine: which keys have a parked head. The queue itself is dead letters with a `queue_number`."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now


class QuarantinedKey(models.Model):
    """A key whose records park behind its head until it is released; changed under the key's lock only.

    `lane` is what the lock is on (`dlq.domain.quarantine.lane_of`). `letters` counts the head and those behind it.
    """

    id = models.UUIDField(primary_key=True)
    lane = models.BigIntegerField(unique=True)
    group = models.CharField(max_length=200, db_column="group_name")
    topic = models.CharField(max_length=249)
    key_label = models.CharField(max_length=20)
    head_id = models.UUIDField()
    letters = models.IntegerField(default=1)
    quarantined_at = models.DateTimeField(db_default=Now())
    head_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_key"
        constraints = [models.CheckConstraint(condition=Q(letters__gte=1), name="dlq_key_has_a_head")]
        indexes = [
            models.Index(F("quarantined_at").desc(), F("id").desc(), name="dlq_key_recent"),
            models.Index(fields=["group", "topic"], name="dlq_key_group"),
            models.Index(fields=["head_id"], name="dlq_key_head"),
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.topic} {self.key_label}"
