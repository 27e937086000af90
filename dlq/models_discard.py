"""Tables of discards: who ended which dead letters, why, until when they can be restored, and what was restored."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Discard(models.Model):
    """One act of discarding: one dead letter, or a frozen selection of them. Times by the database clock."""

    id = models.UUIDField(primary_key=True)
    actor = models.CharField(max_length=150)
    second = models.CharField(max_length=150, blank=True)
    reason = models.CharField(max_length=500)
    letters = models.IntegerField()
    discarded_at = models.DateTimeField(db_default=Now())
    restorable_until = models.DateTimeField()

    class Meta:
        db_table = "dlq_discard"
        constraints = [models.CheckConstraint(condition=Q(letters__gte=1), name="dlq_discard_has_letters")]

    def __str__(self) -> str:
        return f"{self.letters} by {self.actor}"


class DiscardItem(models.Model):
    """One dead letter of a discard. The partial index finds the discard that a discarded one may be restored from."""

    pk = models.CompositePrimaryKey("discard", "dead_letter_id")
    discard = models.ForeignKey(Discard, on_delete=models.CASCADE, related_name="items", db_index=False)
    dead_letter_id = models.UUIDField()
    restored_at = models.DateTimeField(null=True)
    restored_by = models.CharField(max_length=150, db_default="")
    restore_reason = models.CharField(max_length=500, db_default="")

    class Meta:
        db_table = "dlq_discard_item"
        constraints = [
            models.UniqueConstraint(
                fields=["dead_letter_id"], condition=Q(restored_at__isnull=True), name="dlq_discard_item_in_force"
            )
        ]
        indexes = [models.Index(fields=["dead_letter_id"], name="dlq_di_letter")]

    def __str__(self) -> str:
        return f"{self.dead_letter_id}"
