"""Lag: the latest readings, allowed lag, and samples with two roll-ups, each partitioned by day.

The day partitions are made and dropped by the collector (relay/lag_days.py), because only it knows the date. A roll-up
row keeps the reading with the greatest lag of its minute or hour, so that a short peak stays visible.
"""

import django.db.models.functions.datetime
from django.db import migrations, models

SAMPLES = """
CREATE TABLE {table} (
    series bigint NOT NULL,
    bucket timestamptz NOT NULL,
    at timestamptz NOT NULL,
    committed bigint,
    begin_offset bigint,
    end_offset bigint,
    PRIMARY KEY (series, bucket)
) PARTITION BY RANGE (bucket);
"""
TABLES = ("relay_lag_sample", "relay_lag_minute", "relay_lag_hour")

# Every pass rewrites each row once: room on the page keeps the updates off the indexes.
TUNE = """
ALTER TABLE relay_lag_latest SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
ALTER TABLE relay_lag_group SET (fillfactor = 50, autovacuum_vacuum_threshold = 500);
"""


class Migration(migrations.Migration):

    dependencies = [
        ('relay', '0002_outbox'),
    ]

    operations = [
        migrations.CreateModel(
            name='LagGroup',
            fields=[
                ('name', models.TextField(primary_key=True, serialize=False)),
                ('state', models.CharField(max_length=40)),
                ('protocol', models.CharField(max_length=40)),
                ('members', models.PositiveIntegerField()),
                ('no_member_since', models.DateTimeField(null=True)),
                ('at', models.DateTimeField()),
                ('error', models.TextField(blank=True)),
            ],
            options={
                'db_table': 'relay_lag_group',
            },
        ),
        migrations.CreateModel(
            name='AllowedLag',
            fields=[
                ('group', models.TextField(db_column='group_name', primary_key=True, serialize=False)),
                ('value', models.BigIntegerField()),
                ('set_by', models.CharField(max_length=150)),
                ('set_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'relay_lag_allowed',
                'constraints': [models.CheckConstraint(condition=models.Q(('value__gte', 0)), name='relay_lag_allowed_positive')],
            },
        ),
        migrations.CreateModel(
            name='LagLatest',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('group', models.TextField(db_column='group_name')),
                ('topic', models.TextField()),
                ('partition', models.IntegerField()),
                ('at', models.DateTimeField()),
                ('committed', models.BigIntegerField(null=True)),
                ('begin', models.BigIntegerField(db_column='begin_offset', null=True)),
                ('end', models.BigIntegerField(db_column='end_offset', null=True)),
                ('error', models.TextField(blank=True)),
                ('owner', models.TextField(null=True)),
                ('word', models.CharField(max_length=20)),
                ('reason', models.TextField(blank=True)),
                ('trend', models.CharField(max_length=10)),
                ('in_per_min', models.FloatField(null=True)),
                ('out_per_min', models.FloatField(null=True)),
                ('drain_s', models.FloatField(null=True)),
                ('drain_words', models.CharField(max_length=40)),
                ('time_lag_s', models.FloatField(null=True)),
                ('time_lag_estimated', models.BooleanField(default=True)),
                ('recent', models.JSONField(default=list)),
                ('first_seen_at', models.DateTimeField()),
                ('committed_at', models.DateTimeField(null=True)),
                ('appended_at', models.DateTimeField(null=True)),
                ('waiting_since', models.DateTimeField(null=True)),
                ('rising_since', models.DateTimeField(null=True)),
                ('rewound_from', models.BigIntegerField(null=True)),
            ],
            options={
                'db_table': 'relay_lag_latest',
                'constraints': [models.UniqueConstraint(fields=('group', 'topic', 'partition'), name='relay_lag_latest_place'), models.CheckConstraint(condition=models.Q(('partition__gte', 0)), name='relay_lag_latest_partition')],
            },
        ),
        migrations.CreateModel(
            name='LagPass',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('epoch', models.BigIntegerField(default=0)),
                ('collector', models.CharField(blank=True, max_length=120)),
                ('lease_until', models.DateTimeField(null=True)),
                ('finished_at', models.DateTimeField(null=True)),
                ('pass_s', models.FloatField(null=True)),
                ('interval_s', models.FloatField()),
                ('errors', models.JSONField(default=list)),
            ],
            options={
                'db_table': 'relay_lag_pass',
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='relay_lag_pass_is_one_row')],
            },
        ),
        migrations.RunSQL(TUNE, migrations.RunSQL.noop),
        *(migrations.RunSQL(SAMPLES.format(table=t), f"DROP TABLE {t}") for t in TABLES),
    ]
