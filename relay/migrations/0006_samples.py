"""The relay's history: samples, minutes and hours in one small table; see relay/samples.py."""

from django.db import migrations

SAMPLES = """
CREATE TABLE relay_sample (
    unit text NOT NULL CHECK (unit IN ('sample', 'minute', 'hour')),
    bucket timestamptz NOT NULL,
    at timestamptz NOT NULL,
    span_s double precision NOT NULL CHECK (span_s >= 0),
    unsent integer NOT NULL,
    unsent_capped boolean NOT NULL,
    oldest_age_s double precision,
    written double precision NOT NULL,
    sent bigint NOT NULL,
    buckets bigint[] NOT NULL,
    PRIMARY KEY (unit, bucket)
);
"""


class Migration(migrations.Migration):
    dependencies = [("relay", "0005_duplicates")]
    operations = [migrations.RunSQL(SAMPLES, "DROP TABLE relay_sample")]
