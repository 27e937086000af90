"""Tables of the runtime: waiting records, breakers, calls that are made once."""

import django.contrib.postgres.fields
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dlq", "0008_quarantine_and_replay"),
    ]

    operations = [
        migrations.CreateModel(
            name="Breaker",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group", "handler", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("group", models.CharField(db_column="group_name", max_length=200)),
                ("handler", models.CharField(max_length=200)),
                (
                    "state",
                    models.CharField(
                        choices=[("closed", "closed"), ("open", "open")], db_default="closed", max_length=8
                    ),
                ),
                ("failures", models.PositiveIntegerField(db_default=0)),
                (
                    "culprits",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), db_default=[], size=None
                    ),
                ),
                ("error_class", models.CharField(db_default="", max_length=200)),
                ("opened_at", models.DateTimeField(null=True)),
                ("probes", models.PositiveIntegerField(db_default=0)),
                ("probe_at", models.DateTimeField(null=True)),
                ("probe_token", models.UUIDField(null=True)),
                ("probe_until", models.DateTimeField(null=True)),
                ("version", models.PositiveIntegerField(db_default=0)),
                ("changed_by", models.CharField(db_default="", max_length=150)),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "db_table": "dlq_breaker",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["closed", "open"])), name="dlq_breaker_known_state"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("opened_at__isnull", True), ("probe_at__isnull", True), ("state", "closed")),
                            models.Q(("opened_at__isnull", False), ("probe_at__isnull", False), ("state", "open")),
                            _connector="OR",
                        ),
                        name="dlq_breaker_open_has_times",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Once",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "event_id", "name", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("event_id", models.UUIDField()),
                ("name", models.CharField(max_length=200)),
                ("token", models.UUIDField()),
                ("claims", models.PositiveIntegerField(db_default=1)),
                ("lease_until", models.DateTimeField(null=True)),
                ("result", models.JSONField(null=True)),
                ("claimed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("finished_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "dlq_once",
                "indexes": [
                    models.Index(
                        condition=models.Q(("finished_at__isnull", False)), fields=["finished_at"], name="dlq_once_old"
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("finished_at__isnull", True), ("lease_until__isnull", False)),
                            models.Q(("finished_at__isnull", False), ("lease_until__isnull", True)),
                            _connector="OR",
                        ),
                        name="dlq_once_leased_or_finished",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Waiting",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("group", models.CharField(db_column="group_name", max_length=200)),
                ("topic", models.CharField(max_length=249)),
                ("partition", models.IntegerField()),
                ("offset", models.BigIntegerField(db_column="log_offset")),
                ("topic_id", models.CharField(max_length=40, null=True)),
                ("lane", models.BigIntegerField(null=True)),
                ("key_label", models.CharField(max_length=20)),
                ("handler", models.CharField(max_length=200)),
                ("event_id", models.UUIDField(null=True)),
                ("event_type", models.CharField(blank=True, max_length=200)),
                ("attempts", models.PositiveIntegerField(db_default=0)),
                ("unknown_attempts", models.PositiveIntegerField(db_default=0)),
                ("first_failed_at", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(null=True)),
                ("failure_class", models.CharField(blank=True, max_length=12)),
                ("error_class", models.CharField(blank=True, max_length=200)),
                ("error_message", models.CharField(blank=True, max_length=500)),
                ("fingerprint", models.CharField(blank=True, max_length=16)),
                ("stored", models.BooleanField(db_default=False)),
                ("leader_epoch", models.IntegerField(null=True)),
                ("timestamp_ms", models.BigIntegerField(null=True)),
                ("original_key", models.BinaryField(null=True)),
                ("original_value", models.BinaryField(null=True)),
                ("original_headers", models.BinaryField(null=True)),
                ("size_bytes", models.BigIntegerField(db_default=0)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "db_table": "dlq_waiting",
                "indexes": [
                    models.Index(
                        condition=models.Q(("lane__isnull", False), ("stored", True)),
                        fields=["group", "topic", "lane", "id"],
                        name="dlq_waiting_key",
                    ),
                    models.Index(
                        condition=models.Q(("due_at__isnull", False), ("stored", True)),
                        fields=["group", "due_at"],
                        name="dlq_waiting_due",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("group", "topic", "partition", "offset", "topic_id"),
                        name="dlq_waiting_once_a_record",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("partition__gte", 0), ("offset__gte", 0)),
                        name="dlq_waiting_has_coordinates",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("stored", True), ("due_at__isnull", False), _connector="OR"),
                        name="dlq_waiting_delivered_is_due",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("unknown_attempts__lte", models.F("attempts"))),
                        name="dlq_waiting_attempts_add_up",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("failure_class__in", ["", "transient", "permanent", "schema", "unknown"])),
                        name="dlq_waiting_known_class",
                    ),
                ],
            },
        ),
    ]
