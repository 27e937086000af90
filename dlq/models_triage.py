"""Tables of triage: failure groups with what people say of them, and how many dead letters each has.

`dlq_group_count` and `dlq_group_bucket` are written by triggers on `dlq_dead_letter` (see its migration), whoever
changes it: each statement appends what it changed, and no statement waits for another. `dlq.triage_counts` folds the
appended rows; a sum over all rows is the number, folded or not.
"""

from django.db import models
from django.db.models import F, Q

GROUP_LIMIT = 200
TOPIC_LIMIT = 249
FINGERPRINT_LIMIT = 16


class FailureGroup(models.Model):
    """One fingerprint, and what people say of the failures that have it. Written when the first of them is parked.

    Merged into another one it is a member there: `merged_into` names a row that is itself in no other. What was said
    of it before is kept for when it is split off again.
    """

    number = models.BigAutoField(primary_key=True)
    fingerprint = models.CharField(max_length=FINGERPRINT_LIMIT, unique=True)
    merged_into = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="members")
    handler = models.CharField(max_length=200, blank=True)
    failure_class = models.CharField(max_length=12)
    error_class = models.CharField(max_length=200)
    error_message = models.CharField(max_length=500, blank=True)
    first_seen_at = models.DateTimeField()
    name = models.CharField(max_length=120, db_default="")
    owner = models.CharField(max_length=150, db_default="")
    note = models.CharField(max_length=2_000, db_default="")
    snoozed_until = models.DateTimeField(null=True)
    fixed_in = models.CharField(max_length=80, db_default="")
    fixed_at = models.DateTimeField(null=True)
    version = models.PositiveIntegerField(db_default=0)
    changed_by = models.CharField(max_length=150, db_default="")
    changed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "dlq_failure_group"
        constraints = [
            models.CheckConstraint(
                condition=Q(merged_into__isnull=True) | ~Q(merged_into=F("number")), name="dlq_failure_group_not_itself"
            ),
            models.CheckConstraint(
                condition=Q(fixed_at__isnull=True, fixed_in="") | Q(fixed_at__isnull=False) & ~Q(fixed_in=""),
                name="dlq_failure_group_fixed_somewhere",
            ),
        ]

    def __str__(self) -> str:
        return f"G-{self.number}"


class GroupCount(models.Model):
    """How many dead letters of a fingerprint are in a state; `n` of an appended row may be negative.

    `last_at`: when the newest of them failed. The index finds what is not folded yet.
    """

    id = models.BigAutoField(primary_key=True)
    fingerprint = models.CharField(max_length=FINGERPRINT_LIMIT)
    topic = models.CharField(max_length=TOPIC_LIMIT)
    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name")
    state = models.CharField(max_length=20)
    n = models.BigIntegerField()
    last_at = models.DateTimeField(null=True)
    is_folded = models.BooleanField(db_default=False)

    class Meta:
        db_table = "dlq_group_count"
        constraints = [
            models.UniqueConstraint(
                fields=["fingerprint", "topic", "group", "state"],
                condition=Q(is_folded=True),
                name="dlq_gc_folded_once",
            )
        ]
        indexes = [
            models.Index(fields=["id"], condition=Q(is_folded=False), name="dlq_gc_tail"),
            models.Index(fields=["fingerprint"], name="dlq_gc_fingerprint"),
        ]

    def __str__(self) -> str:
        return f"{self.fingerprint} {self.state} {self.n}"


class GroupBucket(models.Model):
    """How many dead letters of a fingerprint were parked in ten minutes (grain 0: appended, 1: folded) or an hour (2).

    A bucket is named by its beginning; days later it is forgotten. The index serves the windows of a page of groups.
    """

    id = models.BigAutoField(primary_key=True)
    fingerprint = models.CharField(max_length=FINGERPRINT_LIMIT)
    bucket = models.DateTimeField()
    grain = models.SmallIntegerField(db_default=0)
    n = models.BigIntegerField()

    class Meta:
        db_table = "dlq_group_bucket"
        constraints = [
            models.CheckConstraint(condition=Q(grain__in=[0, 1, 2]), name="dlq_group_bucket_known_grain"),
            models.UniqueConstraint(
                fields=["fingerprint", "grain", "bucket"], condition=Q(grain__gt=0), name="dlq_gb_folded_once"
            ),
        ]
        indexes = [
            models.Index(fields=["fingerprint", "bucket"], include=["n"], name="dlq_gb_windows"),
            models.Index(fields=["bucket"], condition=Q(grain=0), name="dlq_gb_tail"),
            models.Index(fields=["bucket"], condition=Q(grain=1), name="dlq_gb_ten_minutes"),
        ]

    def __str__(self) -> str:
        return f"{self.fingerprint} {self.bucket} {self.n}"
