"""Tables of replay: frozen selections, jobs, their items, and the counts of outcomes."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from dlq.types import ReplayMode, ReplayOutcome, ReplayPhase, ReplayState, ReplayVerdict

_OUTCOMES = [(o.value, o.value) for o in ReplayOutcome]
_QUEUED = Q(outcome=ReplayOutcome.QUEUED.value)
_RUNNING = Q(outcome=ReplayOutcome.RUNNING.value)


class Selection(models.Model):
    """A frozen set of dead letters with a verdict each: what a preview shows and a replay starts from, once."""

    id = models.UUIDField(primary_key=True)
    actor = models.CharField(max_length=150)
    group = models.CharField(max_length=200, db_column="group_name")
    mode = models.CharField(max_length=10, choices=[(m.value, m.value) for m in ReplayMode])
    filter = models.JSONField(null=True)
    as_of = models.DateTimeField()
    expires_at = models.DateTimeField()
    rate_per_s = models.FloatField(null=True)
    total = models.IntegerField()
    followers = models.IntegerField()
    counts = models.JSONField()
    job_id = models.UUIDField(null=True, unique=True)

    class Meta:
        db_table = "dlq_selection"
        indexes = [models.Index(fields=["expires_at"], name="dlq_selection_expiry")]

    def __str__(self) -> str:
        return f"{self.group}: {self.total}"


class SelectionItem(models.Model):
    """One dead letter of a selection; `number` is the order in which it is replayed."""

    pk = models.CompositePrimaryKey("selection", "number")
    selection = models.ForeignKey(Selection, on_delete=models.CASCADE, related_name="items", db_index=False)
    number = models.IntegerField()
    dead_letter_id = models.UUIDField()
    lane = models.BigIntegerField(null=True)
    verdict = models.CharField(max_length=12, choices=[(v.value, v.value) for v in ReplayVerdict])

    class Meta:
        db_table = "dlq_selection_item"
        constraints = [models.UniqueConstraint(fields=["selection", "dead_letter_id"], name="dlq_selection_item_once")]

    def __str__(self) -> str:
        return f"{self.number}: {self.verdict}"


class Replay(models.Model):
    """A replay: running <-> paused -> (finished | cancelled). Every act raises `version`.

    `mark_...` are the counts at the start of the window that the failure ratio is judged in; `paid_until` is where the
    rate has been used up to; `window_...` measure the speed. All by the database clock.
    """

    id = models.UUIDField(primary_key=True)
    group = models.CharField(max_length=200, db_column="group_name")
    mode = models.CharField(max_length=10, choices=[(m.value, m.value) for m in ReplayMode])
    state = models.CharField(max_length=10, choices=[(s.value, s.value) for s in ReplayState])
    phase = models.CharField(max_length=10, choices=[(p.value, p.value) for p in ReplayPhase])
    why = models.CharField(max_length=600, blank=True)
    filter = models.JSONField(null=True)
    selection_id = models.UUIDField()
    actor = models.CharField(max_length=150)
    second = models.CharField(max_length=150, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    version = models.IntegerField(default=1)
    changed_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField(db_default=Now())
    rate_per_s = models.FloatField(null=True)
    total = models.IntegerField()
    mark_tried = models.BigIntegerField(default=0)
    mark_failed = models.BigIntegerField(default=0)
    paid_until = models.DateTimeField(db_default=Now())
    served_at = models.DateTimeField(db_default=Now())
    window_at = models.DateTimeField(null=True)
    window_settled = models.BigIntegerField(default=0)
    measured_per_s = models.FloatField(null=True)

    class Meta:
        db_table = "dlq_replay"
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in ReplayState]), name="dlq_replay_known_state"
            ),
            models.CheckConstraint(
                condition=Q(rate_per_s__isnull=True) | Q(rate_per_s__gt=0), name="dlq_replay_rate_positive"
            ),
        ]
        indexes = [
            models.Index(F("created_at").desc(), F("id").desc(), name="dlq_replay_recent"),
            models.Index(
                fields=["mode", "group", "served_at"],
                condition=Q(state=ReplayState.RUNNING.value),
                name="dlq_replay_due",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.state}"


class ReplayItem(models.Model):
    """One dead letter in one replay: queued -> running -> an outcome; see `dlq.types.ReplayOutcome`.

    `running` is a lease: whoever settles it shows `token`. `blocked`: an earlier one of its key in this replay is not
    settled. A dead letter is in one open replay at most. Numbers above `dlq.domain.replay_plan.JOINED_FROM` joined
    behind a released head.
    """

    pk = models.CompositePrimaryKey("job", "number")
    job = models.ForeignKey(Replay, on_delete=models.CASCADE, related_name="items", db_index=False)
    number = models.BigIntegerField()
    dead_letter_id = models.UUIDField()
    lane = models.BigIntegerField(null=True)
    outcome = models.CharField(max_length=12, choices=_OUTCOMES)
    blocked = models.BooleanField(default=False)
    follows = models.BooleanField(default=False)
    why = models.CharField(max_length=20, blank=True)
    error_class = models.CharField(max_length=200, blank=True)
    same_error = models.BooleanField(null=True)
    token = models.UUIDField(null=True)
    taken_by = models.CharField(max_length=120, blank=True)
    lease_until = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "dlq_replay_item"
        constraints = [
            models.UniqueConstraint(
                fields=["dead_letter_id"], condition=_QUEUED | _RUNNING, name="dlq_replay_item_open"
            ),
            models.CheckConstraint(
                condition=Q(outcome__in=[o.value for o in ReplayOutcome]), name="dlq_replay_item_known_outcome"
            ),
        ]
        indexes = [
            models.Index(
                "job", F("follows").desc(), "number", condition=_QUEUED & Q(blocked=False), name="dlq_ri_ready"
            ),
            models.Index(fields=["job", "lane", "number"], condition=_QUEUED & Q(blocked=True), name="dlq_ri_blocked"),
            models.Index(fields=["job", "lease_until"], condition=_RUNNING, name="dlq_ri_running"),
            models.Index(fields=["job", "outcome", "number"], name="dlq_ri_outcome"),
            models.Index(fields=["dead_letter_id"], name="dlq_ri_letter"),
        ]

    def __str__(self) -> str:
        return f"{self.number}: {self.outcome}"


class ReplayCount(models.Model):
    """Exact counts of a replay, written in the transaction of what they count; the sum over `slot` is the number.

    `what` is an outcome, `failed_same`, or `followed` (joined behind a released head).
    """

    pk = models.CompositePrimaryKey("job", "what", "slot")
    job = models.ForeignKey(Replay, on_delete=models.CASCADE, related_name="counts", db_index=False)
    what = models.CharField(max_length=12)
    slot = models.SmallIntegerField()
    n = models.BigIntegerField(default=0)

    class Meta:
        db_table = "dlq_replay_count"

    def __str__(self) -> str:
        return f"{self.what} {self.n}"
