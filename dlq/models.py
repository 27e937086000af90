"""Tables of the consumers: what was applied, what was parked, exact counters, and how far each partition is."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from dlq.types import DeadLetterState, FailureClass, Family, LossChoice, Origin

GROUP_LIMIT = 200
TOPIC_LIMIT = 249


class Applied(models.Model):
    """The dedupe row: this group has applied this event. Written in the effect's own transaction, never updated later.

    `result` is None when the handler had nothing to keep. The index on `applied_at` serves the rate on Now and the
    retention sweep.
    """

    pk = models.CompositePrimaryKey("group", "event_id")
    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name")
    event_id = models.UUIDField()
    handler = models.CharField(max_length=200)
    topic = models.CharField(max_length=TOPIC_LIMIT)
    partition = models.IntegerField()
    offset = models.BigIntegerField(db_column="log_offset")
    outcome = models.CharField(max_length=40, db_default="done")
    result = models.JSONField(null=True)
    applied_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_applied"
        constraints = [
            models.CheckConstraint(
                condition=Q(partition__gte=0) & Q(offset__gte=0), name="dlq_applied_has_coordinates"
            ),
        ]
        indexes = [models.Index(fields=["applied_at"], name="dlq_applied_recent")]

    def __str__(self) -> str:
        return f"{self.group} {self.event_id}"


_HOT = Q(state=DeadLetterState.PARKED.value)


def _list_index(*fields: str, name: str, condition: Q | None = None) -> models.Index:
    newest = (F("parked_at").desc(), F("id").desc())
    return models.Index(*(F(f) for f in ("state", *fields)), *newest, name=name, condition=condition)


class DeadLetter(models.Model):
    """A record that was parked: see `dlq.types.DeadLetterState`.

    `lane` stands for its key (none = no order). `queue_number` is its place among the parked ones of a quarantined
    key; those behind the head were never tried (`attempts` 0). `replays` counts those that failed again; `settled_at`
    is when it left the state parked. The three `original_...` columns hold exact bytes and are touched by
    `dlq.originals` only, so that encryption has one place. Each index that begins with the state serves the list of
    one state narrowed by one field, or in one order.
    """

    id = models.UUIDField(primary_key=True)
    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name")
    handler = models.CharField(max_length=200, blank=True)
    topic = models.CharField(max_length=TOPIC_LIMIT)
    partition = models.IntegerField()
    offset = models.BigIntegerField(db_column="log_offset")
    topic_id = models.CharField(max_length=40, null=True)
    leader_epoch = models.IntegerField(null=True)
    record_timestamp = models.DateTimeField(null=True)
    original_key = models.BinaryField(null=True)
    original_value = models.BinaryField(null=True)
    original_headers = models.BinaryField(null=True)
    key_label = models.CharField(max_length=20)
    event_id = models.UUIDField(null=True)
    event_type = models.CharField(max_length=200, blank=True)
    published_at = models.DateTimeField(null=True)
    failure_class = models.CharField(max_length=12, choices=[(c.value, c.value) for c in FailureClass])
    error_class = models.CharField(max_length=200)
    error_message = models.CharField(max_length=500, blank=True)
    stack = models.TextField(blank=True)
    fingerprint = models.CharField(max_length=16)
    attempts = models.PositiveIntegerField()
    state = models.CharField(max_length=12, choices=[(s.value, s.value) for s in DeadLetterState])
    origin = models.CharField(
        max_length=12, choices=[(o.value, o.value) for o in Origin], db_default=Origin.CONSUMER.value
    )
    parked_at = models.DateTimeField(db_default=Now())
    lane = models.BigIntegerField(null=True)
    queue_number = models.BigIntegerField(null=True)
    replays = models.PositiveIntegerField(db_default=0)
    needs_human = models.BooleanField(db_default=False)
    last_failed_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "dlq_dead_letter"
        constraints = [
            models.CheckConstraint(
                condition=Q(origin__in=[o.value for o in Origin]), name="dlq_dead_letter_known_origin"
            ),
            models.UniqueConstraint(
                fields=["group", "topic", "partition", "offset", "topic_id"],
                nulls_distinct=False,
                name="dlq_dead_letter_once_a_record",
            ),
            models.UniqueConstraint(
                fields=["topic", "partition", "offset", "topic_id"],
                condition=Q(origin=Origin.FOREIGN.value),
                nulls_distinct=False,
                name="dlq_dead_letter_imported_once",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in DeadLetterState]), name="dlq_dead_letter_known_state"
            ),
            models.CheckConstraint(
                condition=Q(failure_class__in=[c.value for c in FailureClass]), name="dlq_dead_letter_known_class"
            ),
            models.CheckConstraint(
                condition=Q(partition__gte=0) & Q(offset__gte=0), name="dlq_dead_letter_has_coordinates"
            ),
        ]
        indexes = [
            _list_index(name="dlq_dl_state"),
            _list_index("group", name="dlq_dl_by_group"),
            _list_index("topic", name="dlq_dl_by_topic"),
            _list_index("event_type", name="dlq_dl_by_type"),
            _list_index("error_class", name="dlq_dl_by_error"),
            _list_index("fingerprint", name="dlq_dl_by_fingerprint"),
            _list_index("key_label", name="dlq_dl_by_key"),
            _list_index(name="dlq_dl_replayed", condition=Q(replays__gt=0)),
            _list_index(name="dlq_dl_needs_human", condition=Q(needs_human=True)),
            models.Index(
                F("state"), F("attempts").desc(), F("parked_at").desc(), F("id").desc(), name="dlq_dl_by_tries"
            ),
            models.Index(fields=["state", "topic", "partition", "offset", "id"], name="dlq_dl_by_place"),
            models.Index(fields=["group", "event_id"], condition=Q(event_id__isnull=False), name="dlq_dl_event"),
            models.Index(
                fields=["lane", "queue_number"], condition=_HOT & Q(queue_number__isnull=False), name="dlq_dl_queue"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.topic}/{self.partition}@{self.offset}"


class ForeignStop(models.Model):
    """Where a foreign dead letter failed, as its headers tell: number 0 is the first place, later ones follow.

    Each imported dead letter has at least one. The index finds the dead letters of one original record.
    """

    pk = models.CompositePrimaryKey("dead_letter", "number")
    dead_letter = models.ForeignKey(DeadLetter, on_delete=models.CASCADE, related_name="stops", db_index=False)
    number = models.SmallIntegerField()
    family = models.CharField(max_length=20, choices=[(f.value, f.value) for f in Family])
    topic = models.CharField(max_length=TOPIC_LIMIT, null=True)
    partition = models.IntegerField(null=True)
    offset = models.BigIntegerField(db_column="log_offset", null=True)
    timestamp = models.DateTimeField(db_column="record_timestamp", null=True)
    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name", blank=True)
    details = models.JSONField()
    complaints = models.JSONField()

    class Meta:
        db_table = "dlq_foreign_stop"
        constraints = [
            models.CheckConstraint(
                condition=Q(family__in=[f.value for f in Family]), name="dlq_foreign_stop_known_family"
            ),
            models.CheckConstraint(
                condition=Q(partition__gte=0) | Q(partition__isnull=True), name="dlq_foreign_stop_partition"
            ),
            models.CheckConstraint(condition=Q(offset__gte=0) | Q(offset__isnull=True), name="dlq_foreign_stop_offset"),
        ]
        indexes = [
            models.Index(
                fields=["topic", "partition", "offset"], condition=Q(offset__isnull=False), name="dlq_fs_place"
            )
        ]

    def __str__(self) -> str:
        return f"{self.family} {self.topic}/{self.partition}@{self.offset}"


class Counter(models.Model):
    """Exact counts, changed in the transaction of what they count; the sum over `slot` is the number.

    Slots spread the row locks over a process's threads, so one slot alone may be negative.
    """

    pk = models.CompositePrimaryKey("topic", "group", "slot")
    topic = models.CharField(max_length=TOPIC_LIMIT)
    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name")
    slot = models.SmallIntegerField()
    open = models.BigIntegerField(default=0)
    parked = models.BigIntegerField(default=0)
    duplicates = models.BigIntegerField(default=0)
    behind = models.BigIntegerField(db_default=0)

    class Meta:
        db_table = "dlq_counter"

    def __str__(self) -> str:
        return f"{self.topic} {self.group}"


class ParkedBucket(models.Model):
    """How many records were parked in one minute, in the parking transaction; older than two days is swept."""

    pk = models.CompositePrimaryKey("minute", "topic", "group")
    minute = models.DateTimeField()
    topic = models.CharField(max_length=TOPIC_LIMIT)
    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name")
    parked = models.BigIntegerField()

    class Meta:
        db_table = "dlq_parked_bucket"
        constraints = [models.CheckConstraint(condition=Q(parked__gt=0), name="dlq_parked_bucket_counts")]

    def __str__(self) -> str:
        return f"{self.minute} {self.topic}"


class Position(models.Model):
    """The last offset that Kafka took from us: Kafka forgets a group's offsets, and then this says what is lost."""

    pk = models.CompositePrimaryKey("group", "topic", "partition")
    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name")
    topic = models.CharField(max_length=TOPIC_LIMIT)
    partition = models.IntegerField()
    topic_id = models.CharField(max_length=40, null=True)
    next_offset = models.BigIntegerField()
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_position"
        constraints = [
            models.CheckConstraint(condition=Q(next_offset__gte=0), name="dlq_position_next_offset_not_negative")
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.topic}/{self.partition}"


class GroupSwitch(models.Model):
    """What a person wants of a group's consumers: stopped, or running again. They obey within a second or so."""

    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name", primary_key=True)
    stopped = models.BooleanField()
    reason = models.CharField(max_length=500, blank=True)
    set_by = models.CharField(max_length=150)
    set_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_group_switch"

    def __str__(self) -> str:
        return f"{self.group} {'stopped' if self.stopped else 'running'}"


class DataLoss(models.Model):
    """Records that were deleted before the group read them: found -> chosen -> settled; see `dlq.losses`."""

    id = models.BigAutoField(primary_key=True)
    group = models.CharField(max_length=GROUP_LIMIT, db_column="group_name")
    topic = models.CharField(max_length=TOPIC_LIMIT)
    partition = models.IntegerField()
    topic_id = models.CharField(max_length=40, null=True)
    first_lost = models.BigIntegerField()
    first_kept = models.BigIntegerField()
    counted = models.BooleanField()
    found_at = models.DateTimeField(db_default=Now())
    last_read_at = models.DateTimeField(null=True)
    choice = models.CharField(max_length=10, blank=True, choices=[(c.value, c.value) for c in LossChoice if c])
    chosen_offset = models.BigIntegerField(null=True)
    chosen_by = models.CharField(max_length=150, blank=True)
    chosen_at = models.DateTimeField(null=True)
    reason = models.CharField(max_length=500, blank=True)
    settled_at = models.DateTimeField(null=True)
    resumed_at = models.BigIntegerField(null=True)

    class Meta:
        db_table = "dlq_data_loss"
        constraints = [
            models.UniqueConstraint(
                fields=["group", "topic", "partition"],
                condition=Q(settled_at__isnull=True),
                name="dlq_data_loss_one_open",
            ),
            models.CheckConstraint(
                condition=Q(choice__in=[c.value for c in LossChoice]), name="dlq_data_loss_known_choice"
            ),
            models.CheckConstraint(
                condition=Q(choice=LossChoice.OFFSET.value, chosen_offset__gte=0)
                | ~Q(choice=LossChoice.OFFSET.value) & Q(chosen_offset__isnull=True),
                name="dlq_data_loss_chosen_offset",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.topic}/{self.partition}: {self.first_lost} to {self.first_kept}"


from dlq.models_attempt import Attempt  # noqa: E402, F401 - Django looks for models here
from dlq.models_copy import Copy  # noqa: E402, F401
from dlq.models_discard import Discard, DiscardItem  # noqa: E402, F401
from dlq.models_quarantine import QuarantinedKey  # noqa: E402, F401
from dlq.models_replay import Replay, ReplayCount, ReplayItem, Selection, SelectionItem  # noqa: E402, F401
from dlq.models_runtime import Breaker, Once, Waiting  # noqa: E402, F401
from dlq.models_triage import FailureGroup, GroupBucket, GroupCount  # noqa: E402, F401
