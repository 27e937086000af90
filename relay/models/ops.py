"""What every app writes: incidents, process heartbeats, sweeps. It lies in the lowest app for that reason."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from relay.types import Role, Severity


class Incident(models.Model):
    """One thing that is wrong. open -> closed, by the code that knows; at most one open per (kind, cause)."""

    kind = models.CharField(max_length=40)  # an `IncidentKind`; without choices a new one needs no migration
    cause = models.CharField(max_length=200)
    severity = models.CharField(max_length=8, choices=[(s.value, s.value) for s in Severity])
    title = models.CharField(max_length=300)
    meaning = models.CharField(max_length=600)
    action = models.CharField(max_length=600)
    link = models.CharField(max_length=300, blank=True)
    opened_at = models.DateTimeField(db_default=Now())
    last_seen_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True)
    times = models.PositiveIntegerField(default=1)
    acknowledged_by = models.CharField(max_length=150, null=True)
    acknowledged_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "relay_incident"
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "cause"], condition=Q(closed_at__isnull=True), name="relay_incident_one_open"
            ),
            models.CheckConstraint(
                condition=Q(closed_at__isnull=True) | Q(closed_at__gte=models.F("opened_at")),
                name="relay_incident_closes_after_opening",
            ),
        ]
        indexes = [models.Index(fields=["-opened_at"], name="relay_incident_recent")]

    def __str__(self) -> str:
        return f"{self.kind} {self.cause}"


class ProcessHeartbeat(models.Model):
    """One row a process, written by it every second. Lost = no beat for `PROCESS_LOST_AFTER_S`."""

    name = models.CharField(max_length=120, primary_key=True)
    role = models.CharField(max_length=20, choices=[(r.value, r.value) for r in Role])
    pid = models.IntegerField()
    host = models.CharField(max_length=120)
    version = models.CharField(max_length=40)
    doing = models.CharField(max_length=200, blank=True)
    facts = models.JSONField(default=list)
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())
    stopped_at = models.DateTimeField(null=True)
    crashes = models.PositiveIntegerField(default=0)
    crashed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "relay_process"

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


class Sweep(models.Model):
    """When a repeated job last ran, by whom and how long it took; its row lock makes it run once at a time."""

    name = models.CharField(max_length=60, primary_key=True)
    last_started_at = models.DateTimeField(null=True)
    last_finished_at = models.DateTimeField(null=True)
    runner = models.CharField(max_length=120, blank=True)
    took_ms = models.PositiveIntegerField(null=True)
    error = models.CharField(max_length=300, blank=True)

    class Meta:
        db_table = "relay_sweep"

    def __str__(self) -> str:
        return self.name
