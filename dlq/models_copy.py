"""The table of copies on dead-letter topics."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from dlq.types import CopiedPayload, Family

_FAMILIES = (Family.SPRING, Family.CONNECT)


class Copy(models.Model):
    """What became of a dead letter's copy: written to the outbox, or failed (there, or at the relay).

    `event_id` is the copy's own event id, by which its outbox row is found; null = it could not even be written.
    """

    dead_letter = models.OneToOneField(
        "dlq.DeadLetter", on_delete=models.CASCADE, primary_key=True, related_name="copy"
    )
    topic = models.CharField(max_length=249)
    family = models.CharField(max_length=20, choices=[(f.value, f.value) for f in _FAMILIES])
    event_id = models.UUIDField(null=True, unique=True)
    payload = models.CharField(max_length=12, choices=[(p.value, p.value) for p in CopiedPayload])
    shed = models.CharField(max_length=300, blank=True)
    failure = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    failed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "dlq_copy"
        constraints = [
            models.CheckConstraint(
                condition=Q(payload__in=[p.value for p in CopiedPayload]), name="dlq_copy_known_payload"
            ),
            models.CheckConstraint(
                condition=Q(failed_at__isnull=True, failure="", event_id__isnull=False)
                | Q(failed_at__isnull=False) & ~Q(failure=""),
                name="dlq_copy_sent_or_failed",
            ),
        ]
        # Which topics had failures lately: asked by every consumer twice a minute.
        indexes = [
            models.Index(fields=["topic", "failed_at"], condition=Q(failed_at__isnull=False), name="dlq_copy_failed")
        ]

    def __str__(self) -> str:
        return f"{self.dead_letter_id} to {self.topic}"
