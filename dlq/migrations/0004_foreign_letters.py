"""Foreign dead letters: who parked them, once a place, and where their headers say that they failed."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('dlq', '0003_switch_and_loss'),
    ]

    operations = [
        migrations.CreateModel(
            name='ForeignStop',
            fields=[
                ('pk', models.CompositePrimaryKey('dead_letter', 'number', blank=True, editable=False, primary_key=True, serialize=False)),
                ('dead_letter', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='stops', to='dlq.deadletter')),
                ('number', models.SmallIntegerField()),
                ('family', models.CharField(choices=[('signalbox', 'signalbox'), ('share-group', 'share-group'), ('connect', 'connect'), ('streams', 'streams'), ('spring', 'spring'), ('spring-retry', 'spring-retry'), ('spring-cloud-stream', 'spring-cloud-stream'), ('karafka', 'karafka'), ('smallrye', 'smallrye'), ('django-kafka', 'django-kafka'), ('unknown', 'unknown')], max_length=20)),
                ('topic', models.CharField(max_length=249, null=True)),
                ('partition', models.IntegerField(null=True)),
                ('offset', models.BigIntegerField(db_column='log_offset', null=True)),
                ('timestamp', models.DateTimeField(db_column='record_timestamp', null=True)),
                ('group', models.CharField(blank=True, db_column='group_name', max_length=200)),
                ('details', models.JSONField()),
                ('complaints', models.JSONField()),
            ],
            options={
                'db_table': 'dlq_foreign_stop',
            },
        ),
        migrations.RemoveConstraint(
            model_name='deadletter',
            name='dlq_dead_letter_known_origin',
        ),
        migrations.AlterField(
            model_name='deadletter',
            name='origin',
            field=models.CharField(choices=[('consumer', 'consumer'), ('relay', 'relay'), ('foreign', 'foreign')], db_default='consumer', max_length=12),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(('origin__in', ['consumer', 'relay', 'foreign'])), name='dlq_dead_letter_known_origin'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.UniqueConstraint(condition=models.Q(('origin', 'foreign')), fields=('topic', 'partition', 'offset', 'topic_id'), name='dlq_dead_letter_imported_once', nulls_distinct=False),
        ),
        migrations.AddIndex(
            model_name='foreignstop',
            index=models.Index(condition=models.Q(('offset__isnull', False)), fields=['topic', 'partition', 'offset'], name='dlq_fs_place'),
        ),
        migrations.AddConstraint(
            model_name='foreignstop',
            constraint=models.CheckConstraint(condition=models.Q(('family__in', ['signalbox', 'share-group', 'connect', 'streams', 'spring', 'spring-retry', 'spring-cloud-stream', 'karafka', 'smallrye', 'django-kafka', 'unknown'])), name='dlq_foreign_stop_known_family'),
        ),
        migrations.AddConstraint(
            model_name='foreignstop',
            constraint=models.CheckConstraint(condition=models.Q(('partition__gte', 0), ('partition__isnull', True), _connector='OR'), name='dlq_foreign_stop_partition'),
        ),
        migrations.AddConstraint(
            model_name='foreignstop',
            constraint=models.CheckConstraint(condition=models.Q(('offset__gte', 0), ('offset__isnull', True), _connector='OR'), name='dlq_foreign_stop_offset'),
        ),
    ]
