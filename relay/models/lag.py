"""Lag: what is shown now (`LagGroup`, `LagLatest`), who collects (`LagPass`) and what people allow.

The samples lie in `relay_lag_sample`, `relay_lag_minute` and `relay_lag_hour` (migration 0003): one row a series
(`LagLatest.id`) and time, range-partitioned by day, written and read with SQL, dropped a day at a time.
"""

from django.db import models
from django.db.models.functions import Now


class LagPass(models.Model):
    """The one row of the collector: whose turn it is (`epoch`, `lease_until`) and what the last pass said."""

    id = models.SmallIntegerField(primary_key=True)
    epoch = models.BigIntegerField(default=0)
    collector = models.CharField(max_length=120, blank=True)
    lease_until = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    pass_s = models.FloatField(null=True)
    interval_s = models.FloatField()
    errors = models.JSONField(default=list)

    class Meta:
        db_table = "relay_lag_pass"
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="relay_lag_pass_is_one_row")]

    def __str__(self) -> str:
        return f"pass {self.epoch} by {self.collector}"


class LagGroup(models.Model):
    """A consumer group as the last pass saw it; `error` = it could not be read, and since `at` nothing is known."""

    name = models.TextField(primary_key=True)
    state = models.CharField(max_length=40)
    protocol = models.CharField(max_length=40)
    members = models.PositiveIntegerField()
    no_member_since = models.DateTimeField(null=True)
    at = models.DateTimeField()
    error = models.TextField(blank=True)

    class Meta:
        db_table = "relay_lag_group"

    def __str__(self) -> str:
        return self.name


class LagLatest(models.Model):
    """The newest reading and verdict of one partition of one group; `id` is the series of its samples.

    `recent` holds the readings of the rules' window as [ms since 1970, committed, begin, end], oldest first;
    the times below it are the memory of the rules (`relay.domain.lag.Memory`).
    """

    id = models.BigAutoField(primary_key=True)
    group = models.TextField(db_column="group_name")
    topic = models.TextField()
    partition = models.IntegerField()
    at = models.DateTimeField()
    committed = models.BigIntegerField(null=True)
    begin = models.BigIntegerField(null=True, db_column="begin_offset")
    end = models.BigIntegerField(null=True, db_column="end_offset")
    error = models.TextField(blank=True)
    owner = models.TextField(null=True)
    word = models.CharField(max_length=20)
    reason = models.TextField(blank=True)
    trend = models.CharField(max_length=10)
    in_per_min = models.FloatField(null=True)
    out_per_min = models.FloatField(null=True)
    drain_s = models.FloatField(null=True)
    drain_words = models.CharField(max_length=40)
    time_lag_s = models.FloatField(null=True)
    time_lag_estimated = models.BooleanField(default=True)
    recent = models.JSONField(default=list)
    first_seen_at = models.DateTimeField()
    committed_at = models.DateTimeField(null=True)
    appended_at = models.DateTimeField(null=True)
    waiting_since = models.DateTimeField(null=True)
    rising_since = models.DateTimeField(null=True)
    rewound_from = models.BigIntegerField(null=True)

    class Meta:
        db_table = "relay_lag_latest"
        constraints = [
            models.UniqueConstraint(fields=["group", "topic", "partition"], name="relay_lag_latest_place"),
            models.CheckConstraint(condition=models.Q(partition__gte=0), name="relay_lag_latest_partition"),
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.topic} {self.partition}"


class AllowedLag(models.Model):
    """The lag that a person allows a group; without a row it is `LAG_ALLOWED_DEFAULT`. Outlives the group."""

    group = models.TextField(primary_key=True, db_column="group_name")
    value = models.BigIntegerField()
    set_by = models.CharField(max_length=150)
    set_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "relay_lag_allowed"
        constraints = [models.CheckConstraint(condition=models.Q(value__gte=0), name="relay_lag_allowed_positive")]

    def __str__(self) -> str:
        return f"{self.group} {self.value}"
