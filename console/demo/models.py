"""Tables of the returns pipeline. They belong to the demo: nothing of the product reads them.

    Claim: opened -> triaged -> approved | rejected

Nothing here refuses a second effect of one event: tests, drills and the smoke run count effects, and a constraint
would hide what they look for.
"""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Customer(models.Model):
    """An invented customer. Its row lock puts the writers of one key in line."""

    number = models.CharField(max_length=20, primary_key=True)
    name = models.CharField(max_length=120)
    email = models.EmailField()
    phone = models.CharField(max_length=30)
    street = models.CharField(max_length=120)
    town = models.CharField(max_length=80)
    postcode = models.CharField(max_length=12)
    card = models.CharField(max_length=30)
    claims_opened = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.number


class ClaimState(models.TextChoices):
    """Where a claim stands."""

    OPENED = "opened"
    TRIAGED = "triaged"
    APPROVED = "approved"
    REJECTED = "rejected"


class Claim(models.Model):
    """A customer wants money back for a returned item."""

    number = models.CharField(max_length=30, primary_key=True)
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="claims")
    amount_cents = models.PositiveIntegerField()
    reason = models.CharField(max_length=40)
    state = models.CharField(max_length=10, choices=ClaimState.choices, default=ClaimState.OPENED)
    opened_at = models.DateTimeField(db_default=Now())

    class Meta:
        # Serves the purge of the oldest claims.
        indexes = [models.Index(fields=["opened_at"], name="demo_claim_opened_at")]

    def __str__(self) -> str:
        return self.number


class Refund(models.Model):
    """What triage proposed for a claim, and what became of it."""

    claim = models.ForeignKey(Claim, on_delete=models.CASCADE, related_name="refunds")
    amount_cents = models.PositiveIntegerField()
    confidence = models.FloatField()
    tokens = models.PositiveIntegerField()
    is_paid = models.BooleanField(null=True)
    proposed_at = models.DateTimeField(db_default=Now())
    decided_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"refund of {self.claim_id}"


class Notice(models.Model):
    """A mail that was (not really) sent to a customer."""

    claim = models.ForeignKey(Claim, on_delete=models.CASCADE, related_name="notices")
    to = models.EmailField()
    text = models.TextField(max_length=600)
    sent_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"notice about {self.claim_id}"


class Effect(models.Model):
    """One row each time a handler did its work, written in the handler's transaction; ids ascend in effect order.

    `sequence` is the publisher's own count within the key where it keeps one (the smoke run), else null.
    """

    group = models.CharField(max_length=120)
    event_id = models.UUIDField()
    event_type = models.CharField(max_length=120)
    key = models.CharField(max_length=120)
    sequence = models.PositiveIntegerField(null=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            # Serves "how often was this event applied?".
            models.Index(fields=["event_id"], name="demo_effect_event"),
            # Serves the purge of the oldest effects.
            models.Index(fields=["at"], name="demo_effect_at"),
        ]

    def __str__(self) -> str:
        return f"{self.event_type} in {self.group}"


class Rates(models.Model):
    """How the demo's traffic runs now: one row, read every second by the traffic and by each handler.

    `claims_per_s` is claims a second; shares are of those claims, 0 to 1.
    """

    claims_per_s = models.FloatField(default=4)
    poison_share = models.FloatField(default=0.005)
    malformed_share = models.FloatField(default=0.001)
    duplicate_share = models.FloatField(default=0.02)
    slow_share = models.FloatField(default=0.02)
    rollback_share = models.FloatField(default=0.05)
    triage_ms = models.PositiveIntegerField(default=300)
    seed = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(pk=1), name="demo_rates_one_row"),
            models.CheckConstraint(condition=Q(claims_per_s__gte=0), name="demo_rates_not_negative"),
            *[
                models.CheckConstraint(condition=Q((f"{share}__gte", 0), (f"{share}__lte", 1)), name=f"demo_{share}")
                for share in (
                    "poison_share",
                    "malformed_share",
                    "duplicate_share",
                    "slow_share",
                    "rollback_share",
                )
            ],
        ]

    def __str__(self) -> str:
        return f"{self.claims_per_s:g} claims/s"


class SmokeKey(models.Model):
    """A key of the smoke run; `sequence` is raised under its row lock, in the publishing transaction."""

    name = models.CharField(max_length=40, primary_key=True)
    sequence = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class SmokeEvent(models.Model):
    """What a committed transaction of the smoke run published: Kafka and the effects are held against it."""

    event_id = models.UUIDField()
    key = models.ForeignKey(SmokeKey, on_delete=models.CASCADE)
    sequence = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key", "sequence"], name="demo_smoke_sequence"),
            models.CheckConstraint(condition=Q(sequence__gt=0), name="demo_smoke_sequence_from_one"),
        ]

    def __str__(self) -> str:
        return f"{self.key_id} {self.sequence}"
