"""Quarantined keys and replay: who waits behind whom, frozen selections, jobs and what became of each item."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('dlq', '0007_loss_at_an_offset'),
    ]

    operations = [
        migrations.CreateModel(
            name='QuarantinedKey',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('lane', models.BigIntegerField(unique=True)),
                ('group', models.CharField(db_column='group_name', max_length=200)),
                ('topic', models.CharField(max_length=249)),
                ('key_label', models.CharField(max_length=20)),
                ('head_id', models.UUIDField()),
                ('letters', models.IntegerField(default=1)),
                ('quarantined_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('head_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'dlq_key',
            },
        ),
        migrations.CreateModel(
            name='Replay',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('group', models.CharField(db_column='group_name', max_length=200)),
                ('mode', models.CharField(choices=[('handler', 'handler'), ('topic', 'topic')], max_length=10)),
                ('state', models.CharField(choices=[('running', 'running'), ('paused', 'paused'), ('finished', 'finished'), ('cancelled', 'cancelled')], max_length=10)),
                ('phase', models.CharField(choices=[('canary', 'canary'), ('ramp', 'ramp'), ('rest', 'rest')], max_length=10)),
                ('why', models.CharField(blank=True, max_length=600)),
                ('filter', models.JSONField(null=True)),
                ('selection_id', models.UUIDField()),
                ('actor', models.CharField(max_length=150)),
                ('second', models.CharField(blank=True, max_length=150)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('started_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('version', models.IntegerField(default=1)),
                ('changed_by', models.CharField(max_length=150)),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('rate_per_s', models.FloatField(null=True)),
                ('total', models.IntegerField()),
                ('mark_tried', models.BigIntegerField(default=0)),
                ('mark_failed', models.BigIntegerField(default=0)),
                ('paid_until', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('served_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('window_at', models.DateTimeField(null=True)),
                ('window_settled', models.BigIntegerField(default=0)),
                ('measured_per_s', models.FloatField(null=True)),
            ],
            options={
                'db_table': 'dlq_replay',
            },
        ),
        migrations.CreateModel(
            name='ReplayCount',
            fields=[
                ('pk', models.CompositePrimaryKey('job', 'what', 'slot', blank=True, editable=False, primary_key=True, serialize=False)),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='counts', to='dlq.replay')),
                ('what', models.CharField(max_length=12)),
                ('slot', models.SmallIntegerField()),
                ('n', models.BigIntegerField(default=0)),
            ],
            options={
                'db_table': 'dlq_replay_count',
            },
        ),
        migrations.CreateModel(
            name='ReplayItem',
            fields=[
                ('pk', models.CompositePrimaryKey('job', 'number', blank=True, editable=False, primary_key=True, serialize=False)),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='items', to='dlq.replay')),
                ('number', models.BigIntegerField()),
                ('dead_letter_id', models.UUIDField()),
                ('lane', models.BigIntegerField(null=True)),
                ('outcome', models.CharField(choices=[('queued', 'queued'), ('running', 'running'), ('applied', 'applied'), ('deduplicated', 'deduplicated'), ('sent', 'sent'), ('failed', 'failed'), ('skipped', 'skipped')], max_length=12)),
                ('blocked', models.BooleanField(default=False)),
                ('follows', models.BooleanField(default=False)),
                ('why', models.CharField(blank=True, max_length=20)),
                ('error_class', models.CharField(blank=True, max_length=200)),
                ('same_error', models.BooleanField(null=True)),
                ('token', models.UUIDField(null=True)),
                ('taken_by', models.CharField(blank=True, max_length=120)),
                ('lease_until', models.DateTimeField(null=True)),
                ('settled_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'dlq_replay_item',
            },
        ),
        migrations.CreateModel(
            name='Selection',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('actor', models.CharField(max_length=150)),
                ('group', models.CharField(db_column='group_name', max_length=200)),
                ('mode', models.CharField(choices=[('handler', 'handler'), ('topic', 'topic')], max_length=10)),
                ('filter', models.JSONField(null=True)),
                ('as_of', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('rate_per_s', models.FloatField(null=True)),
                ('total', models.IntegerField()),
                ('followers', models.IntegerField()),
                ('counts', models.JSONField()),
                ('job_id', models.UUIDField(null=True, unique=True)),
            ],
            options={
                'db_table': 'dlq_selection',
            },
        ),
        migrations.CreateModel(
            name='SelectionItem',
            fields=[
                ('pk', models.CompositePrimaryKey('selection', 'number', blank=True, editable=False, primary_key=True, serialize=False)),
                ('selection', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='items', to='dlq.selection')),
                ('number', models.IntegerField()),
                ('dead_letter_id', models.UUIDField()),
                ('lane', models.BigIntegerField(null=True)),
                ('verdict', models.CharField(choices=[('eligible', 'eligible'), ('follows', 'follows'), ('hazard', 'hazard'), ('behind', 'behind'), ('applied', 'applied'), ('in_replay', 'in_replay'), ('loop_guard', 'loop_guard'), ('no_handler', 'no_handler'), ('no_topic', 'no_topic'), ('schema', 'schema'), ('no_payload', 'no_payload'), ('not_parked', 'not_parked')], max_length=12)),
            ],
            options={
                'db_table': 'dlq_selection_item',
            },
        ),
        migrations.RunSQL(
            "CREATE SEQUENCE dlq_queue_number",
            "DROP SEQUENCE dlq_queue_number",
        ),
        migrations.RemoveConstraint(
            model_name='deadletter',
            name='dlq_dead_letter_known_state',
        ),
        migrations.RemoveConstraint(
            model_name='deadletter',
            name='dlq_dead_letter_known_class',
        ),
        migrations.RemoveConstraint(
            model_name='deadletter',
            name='dlq_dead_letter_has_coordinates',
        ),
        migrations.AddField(
            model_name='counter',
            name='behind',
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='lane',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='last_failed_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='needs_human',
            field=models.BooleanField(db_default=False),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='queue_number',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='replays',
            field=models.PositiveIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='settled_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AlterField(
            model_name='deadletter',
            name='failure_class',
            field=models.CharField(choices=[('transient', 'transient'), ('permanent', 'permanent'), ('schema', 'schema'), ('unknown', 'unknown'), ('behind', 'behind')], max_length=12),
        ),
        migrations.AlterField(
            model_name='deadletter',
            name='state',
            field=models.CharField(choices=[('parked', 'parked'), ('applied', 'applied'), ('sent', 'sent'), ('discarded', 'discarded')], max_length=12),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('state', 'parked'), ('queue_number__isnull', False)), fields=['lane', 'queue_number'], name='dlq_dl_queue'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['parked', 'applied', 'sent', 'discarded'])), name='dlq_dead_letter_known_state'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(('failure_class__in', ['transient', 'permanent', 'schema', 'unknown', 'behind'])), name='dlq_dead_letter_known_class'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(('partition__gte', 0), ('offset__gte', 0)), name='dlq_dead_letter_has_coordinates'),
        ),
        migrations.AddIndex(
            model_name='quarantinedkey',
            index=models.Index(models.OrderBy(models.F('quarantined_at'), descending=True), models.OrderBy(models.F('id'), descending=True), name='dlq_key_recent'),
        ),
        migrations.AddIndex(
            model_name='quarantinedkey',
            index=models.Index(fields=['group', 'topic'], name='dlq_key_group'),
        ),
        migrations.AddIndex(
            model_name='quarantinedkey',
            index=models.Index(fields=['head_id'], name='dlq_key_head'),
        ),
        migrations.AddConstraint(
            model_name='quarantinedkey',
            constraint=models.CheckConstraint(condition=models.Q(('letters__gte', 1)), name='dlq_key_has_a_head'),
        ),
        migrations.AddIndex(
            model_name='replay',
            index=models.Index(models.OrderBy(models.F('created_at'), descending=True), models.OrderBy(models.F('id'), descending=True), name='dlq_replay_recent'),
        ),
        migrations.AddIndex(
            model_name='replay',
            index=models.Index(condition=models.Q(('state', 'running')), fields=['mode', 'group', 'served_at'], name='dlq_replay_due'),
        ),
        migrations.AddConstraint(
            model_name='replay',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['running', 'paused', 'finished', 'cancelled'])), name='dlq_replay_known_state'),
        ),
        migrations.AddConstraint(
            model_name='replay',
            constraint=models.CheckConstraint(condition=models.Q(('rate_per_s__isnull', True), ('rate_per_s__gt', 0), _connector='OR'), name='dlq_replay_rate_positive'),
        ),
        migrations.AddIndex(
            model_name='selection',
            index=models.Index(fields=['expires_at'], name='dlq_selection_expiry'),
        ),
        migrations.AddIndex(
            model_name='replayitem',
            index=models.Index(models.F('job'), models.OrderBy(models.F('follows'), descending=True), models.F('number'), condition=models.Q(('outcome', 'queued'), ('blocked', False)), name='dlq_ri_ready'),
        ),
        migrations.AddIndex(
            model_name='replayitem',
            index=models.Index(condition=models.Q(('outcome', 'queued'), ('blocked', True)), fields=['job', 'lane', 'number'], name='dlq_ri_blocked'),
        ),
        migrations.AddIndex(
            model_name='replayitem',
            index=models.Index(condition=models.Q(('outcome', 'running')), fields=['job', 'lease_until'], name='dlq_ri_running'),
        ),
        migrations.AddIndex(
            model_name='replayitem',
            index=models.Index(fields=['job', 'outcome', 'number'], name='dlq_ri_outcome'),
        ),
        migrations.AddIndex(
            model_name='replayitem',
            index=models.Index(fields=['dead_letter_id'], name='dlq_ri_letter'),
        ),
        migrations.AddConstraint(
            model_name='replayitem',
            constraint=models.UniqueConstraint(condition=models.Q(('outcome', 'queued'), ('outcome', 'running'), _connector='OR'), fields=('dead_letter_id',), name='dlq_replay_item_open'),
        ),
        migrations.AddConstraint(
            model_name='replayitem',
            constraint=models.CheckConstraint(condition=models.Q(('outcome__in', ['queued', 'running', 'applied', 'deduplicated', 'sent', 'failed', 'skipped'])), name='dlq_replay_item_known_outcome'),
        ),
        migrations.AddConstraint(
            model_name='selectionitem',
            constraint=models.UniqueConstraint(fields=('selection', 'dead_letter_id'), name='dlq_selection_item_once'),
        ),
    ]
