"""Policies: one table for every scope, a row a version; see relay/policies.py."""

from django.db import models
from django.db.models.functions import Now

from relay.types import PolicyScope


class PolicyVersion(models.Model):
    """One version of one policy, never changed; the highest version of (scope, subject) is in force."""

    pk = models.CompositePrimaryKey("scope", "subject", "version")
    scope = models.CharField(max_length=20, choices=[(s.value, s.value) for s in PolicyScope])
    subject = models.CharField(max_length=1500)
    version = models.PositiveIntegerField()
    document = models.JSONField()
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=500)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "relay_policy"
        constraints = [models.CheckConstraint(condition=models.Q(version__gte=1), name="relay_policy_versions_from_1")]

    def __str__(self) -> str:
        return f"{self.scope} {self.subject} v{self.version}"
