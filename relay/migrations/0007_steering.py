"""What people do to the relay: pauses of topics and keys, skipped rows, policies; see relay/steering.py."""

import django.db.models.functions.datetime
from django.db import migrations, models

# A key may be longer than an index takes, so keys are looked up by their SHA-256.
STEERING = """
CREATE TABLE relay_revision (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    revision bigint NOT NULL
);
INSERT INTO relay_revision (revision) VALUES (0);

CREATE TABLE relay_pause (
    topic text NOT NULL,
    key bytea,
    paused_by text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason text NOT NULL
);
CREATE UNIQUE INDEX relay_pause_once ON relay_pause (topic, sha256(key)) NULLS NOT DISTINCT;

CREATE TABLE relay_skipped (
    position bigint PRIMARY KEY,
    shard integer NOT NULL,
    topic text NOT NULL,
    key bytea,
    event_id uuid NOT NULL,
    type text NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    skipped_by text NOT NULL,
    reason text NOT NULL,
    skipped_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    revision bigint NOT NULL,
    sent_anyway boolean NOT NULL DEFAULT false
);
CREATE INDEX relay_skipped_revision ON relay_skipped (revision);

ALTER TABLE relay_deferred ADD COLUMN revision bigint NOT NULL DEFAULT 0;
CREATE INDEX relay_deferred_revision ON relay_deferred (revision) WHERE revision > 0;
DROP INDEX relay_deferred_key;
CREATE INDEX relay_deferred_key ON relay_deferred (topic, sha256(key), position);
"""

NO_STEERING = """
DROP INDEX relay_deferred_key;
CREATE INDEX relay_deferred_key ON relay_deferred (topic, key, position);
ALTER TABLE relay_deferred DROP COLUMN revision;
DROP TABLE relay_skipped, relay_pause, relay_revision;
"""


class Migration(migrations.Migration):
    dependencies = [("relay", "0006_samples")]
    operations = [
        migrations.RunSQL(STEERING, NO_STEERING),
        migrations.CreateModel(
            name="PolicyVersion",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "scope", "subject", "version", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("consumer", "consumer"),
                            ("relay_topic", "relay_topic"),
                            ("saga_step", "saga_step"),
                        ],
                        max_length=20,
                    ),
                ),
                ("subject", models.CharField(max_length=300)),
                ("version", models.PositiveIntegerField()),
                ("document", models.JSONField()),
                ("actor", models.CharField(max_length=150)),
                ("reason", models.CharField(max_length=500)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "db_table": "relay_policy",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("version__gte", 1)), name="relay_policy_versions_from_1"
                    ),
                ],
            },
        ),
    ]
