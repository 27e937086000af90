"""Recorded tries of records that failed."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('dlq', '0005_triage'),
    ]

    operations = [
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('group', models.CharField(db_column='group_name', max_length=200)),
                ('topic', models.CharField(max_length=249)),
                ('partition', models.IntegerField()),
                ('offset', models.BigIntegerField(db_column='log_offset')),
                ('topic_id', models.CharField(max_length=40, null=True)),
                ('handler', models.CharField(blank=True, max_length=200)),
                ('event_id', models.UUIDField(null=True)),
                ('event_type', models.CharField(blank=True, max_length=200)),
                ('key_label', models.CharField(max_length=20)),
                ('number', models.PositiveIntegerField()),
                ('outcome', models.CharField(choices=[('waits', 'waits'), ('parked', 'parked'), ('applied', 'applied')], max_length=8)),
                ('failure_class', models.CharField(choices=[('transient', 'transient'), ('permanent', 'permanent'), ('schema', 'schema'), ('unknown', 'unknown')], max_length=12)),
                ('error_class', models.CharField(max_length=200)),
                ('fingerprint', models.CharField(max_length=16)),
                ('wait_s', models.FloatField(null=True)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'dlq_attempt',
            },
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(fields=['at'], name='dlq_attempt_at'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(fields=['group', 'at'], name='dlq_attempt_group'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(fields=['group', 'topic', 'partition', 'offset'], name='dlq_attempt_record'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(('outcome__in', ['waits', 'parked', 'applied'])), name='dlq_attempt_known_outcome'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(('failure_class__in', ['transient', 'permanent', 'schema', 'unknown'])), name='dlq_attempt_known_class'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(('number__gte', 1), ('partition__gte', 0), ('offset__gte', 0)), name='dlq_attempt_has_coordinates'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(('wait_s__gte', 0), ('wait_s__isnull', True), _connector='OR'), name='dlq_attempt_wait'),
        ),
    ]
