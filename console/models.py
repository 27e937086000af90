"""The console's own tables: the audit of operator acts and the throttle of sign-ins."""

from django.db import models
from django.db.models.functions import Now

from console.permissions import GRANTS


class AuditAction(models.TextChoices):
    """The closed list of audited acts; renaming a value is a breaking change."""

    RELAY_PAUSED = "relay.paused", "Paused the relay"
    RELAY_RESUMED = "relay.resumed", "Resumed the relay"
    TOPIC_PAUSED = "relay.topic_paused", "Paused a topic"
    TOPIC_RESUMED = "relay.topic_resumed", "Resumed a topic"
    KEY_PAUSED = "relay.key_paused", "Paused a key"
    KEY_RESUMED = "relay.key_resumed", "Resumed a key"
    KEY_RETRIED = "relay.key_retried", "Retried a key"
    TOPIC_RETRIED = "relay.topic_retried", "Retried a topic's waiting keys"
    ROW_SKIPPED = "relay.row_skipped", "Skipped an outbox row"
    RELAY_POLICY_SET = "relay.policy_set", "Set a topic's relay policy"
    INGRESS_HOLD_SET = "relay.ingress_set", "Set a topic's ingress hold"
    RETRY_POLICY_SET = "policy.set", "Set a retry policy"
    RETRY_POLICY_WITHDRAWN = "policy.withdrawn", "Withdrew a retry policy"
    POLICY_ROLLED_BACK = "policy.rolled_back", "Rolled a policy back"
    LAG_ALLOWED_SET = "lag.allowed_set", "Set the allowed lag"
    GROUP_REWOUND = "lag.rewound", "Ordered a rewind"
    GROUP_REWIND_FAILED = "lag.rewind_failed", "A rewind failed in part"
    GROUP_STOPPED = "lag.group_stopped", "Stopped the consumers"
    GROUP_STARTED = "lag.group_started", "Started the consumers"
    DATA_LOSS_SETTLED = "lag.data_loss_settled", "Chose where to go on after a data loss"
    REPLAY_STARTED = "dlq.replay_started", "Started a replay"
    REPLAY_PAUSED = "dlq.replay_paused", "Paused a replay"
    REPLAY_RESUMED = "dlq.replay_resumed", "Resumed a replay"
    REPLAY_CANCELLED = "dlq.replay_cancelled", "Cancelled a replay"
    REPLAY_RATE_SET = "dlq.replay_rate_set", "Changed the rate of a replay"
    KEY_RELEASED = "dlq.key_released", "Released a quarantined key"
    DEAD_LETTERS_DISCARDED = "dlq.discarded", "Discarded dead letters"
    DEAD_LETTER_RESTORED = "dlq.restored", "Restored a dead letter"
    GROUP_DESCRIBED = "dlq.group_described", "Described a failure group"
    GROUP_SNOOZED = "dlq.group_snoozed", "Snoozed a failure group"
    GROUP_FIXED = "dlq.group_fixed", "Called a failure group fixed"
    GROUP_REOPENED = "dlq.group_reopened", "Reopened a failure group"
    GROUP_MERGED = "dlq.group_merged", "Merged a failure group into another"
    GROUP_SPLIT = "dlq.group_split", "Split a failure group"
    BREAKER_CLOSED = "dlq.breaker_closed", "Closed a breaker"
    SECOND_ASKED = "dlq.second_asked", "Asked a second person"
    SECOND_REFUSED = "dlq.second_refused", "Refused as the second person"
    SECOND_WITHDRAWN = "dlq.second_withdrawn", "Withdrew what a second person was asked"
    API_TOKEN_MADE = "api.token_made", "Made an API token"
    API_TOKEN_REVOKED = "api.token_revoked", "Revoked an API token"
    INCIDENT_ACKNOWLEDGED = "incident.acknowledged", "Took an incident"


class AuditEntry(models.Model):
    """One act of a person, written in the act's own transaction.

    Append-only: triggers (migration 0001) refuse UPDATE, DELETE and TRUNCATE for every role.

    `detail` holds the facts of the act (numbers, names), at most `AUDIT_DETAIL_BYTES`, never payload, keys or headers.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    actor_name = models.CharField(max_length=150)
    # A plain number: the entry outlives the account.
    actor_id = models.BigIntegerField(null=True)
    action = models.CharField(max_length=60, choices=AuditAction.choices)
    object_kind = models.CharField(max_length=40)
    object_id = models.CharField(max_length=200)
    reason = models.CharField(max_length=500, blank=True)
    detail = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, blank=True)

    class Meta:
        default_permissions = ()
        permissions = [(grant.action.value, grant.words) for grant in GRANTS]
        indexes = [
            # The audit page narrowed by actor or by action, newest first.
            models.Index(fields=["actor_name", "-id"], name="console_audit_actor"),
            models.Index(fields=["action", "-id"], name="console_audit_action"),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor_name} {self.action} {self.object_kind} {self.object_id}"


class SignInThrottle(models.Model):
    """Failed sign-ins of one account from one address, or of one address, in the current window.

    `key` is a digest, so that a password typed into the name field is not kept.
    """

    key = models.CharField(max_length=64, primary_key=True)
    failures = models.IntegerField(default=0)
    window_started_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        # The sweep of old windows.
        indexes = [models.Index(fields=["window_started_at"], name="console_throttle_age")]

    def __str__(self) -> str:
        return f"{self.key[:8]}: {self.failures}"


class StationSample(models.Model):
    """One number of one station of the line (`console.stations.Station`), for its sparkline. Kept two days."""

    id = models.BigAutoField(primary_key=True)
    station = models.CharField(max_length=20)
    at = models.DateTimeField(db_default=Now())
    value = models.FloatField()

    class Meta:
        default_permissions = ()
        indexes = [
            # The sparkline of one station, and the sweep of old samples.
            models.Index(fields=["station", "at"], name="console_station_at"),
        ]

    def __str__(self) -> str:
        return f"{self.station} {self.value}"


class SecondAct(models.TextChoices):
    """What a second person can be asked for."""

    REPLAY = "replay", "Replay dead letters"
    DISCARD = "discard", "Discard dead letters"


class SecondState(models.TextChoices):
    """waiting -> confirmed | refused | withdrawn. One that nobody answered until `expires_at` is expired, unwritten."""

    WAITING = "waiting", "waits for a second person"
    CONFIRMED = "confirmed", "confirmed"
    REFUSED = "refused", "refused"
    WITHDRAWN = "withdrawn", "withdrawn"


class SecondRequest(models.Model):
    """An act over the threshold that waits for another person: what exactly, why, who asked, until when.

    `preview` is the id of the frozen selection. The act and the answer are one transaction; times are by the
    database clock.
    """

    id = models.BigAutoField(primary_key=True)
    act = models.CharField(max_length=10, choices=SecondAct.choices)
    preview = models.CharField(max_length=40)
    scope = models.CharField(max_length=500)
    count = models.PositiveIntegerField()
    options = models.JSONField(default=dict)
    reason = models.CharField(max_length=500)
    asked_by = models.CharField(max_length=150)
    # Plain numbers: the row outlives the accounts.
    asked_by_id = models.BigIntegerField()
    asked_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    state = models.CharField(max_length=10, choices=SecondState.choices, default=SecondState.WAITING)
    decided_by = models.CharField(max_length=150, blank=True)
    decided_by_id = models.BigIntegerField(null=True)
    decided_at = models.DateTimeField(null=True)
    answer = models.CharField(max_length=500, blank=True)
    outcome = models.CharField(max_length=40, blank=True)

    class Meta:
        default_permissions = ()
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=SecondState.values), name="console_second_known_state"),
            models.CheckConstraint(
                condition=models.Q(state="waiting", decided_by_id__isnull=True)
                | ~models.Q(state="waiting") & models.Q(decided_by_id__isnull=False),
                name="console_second_decided_by_somebody",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=["waiting", "withdrawn"])
                | ~models.Q(decided_by_id=models.F("asked_by_id")),
                name="console_second_is_another_person",
            ),
        ]
        # The list of what was asked, newest first, is the primary key; what waits is few.
        indexes = [models.Index(fields=["expires_at"], condition=models.Q(state="waiting"), name="console_second_due")]

    def __str__(self) -> str:
        return f"{self.act} of {self.count}, {self.state}"


class ApiToken(models.Model):
    """A person's token for the API: only its digest is kept. It may what `actions` names and the person may.

    `prefix` is the part that people see. Times by the database clock.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    person = models.ForeignKey("auth.User", on_delete=models.CASCADE, related_name="+")
    actions = models.JSONField()
    made_by = models.CharField(max_length=150)
    made_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.prefix} {self.name}"
