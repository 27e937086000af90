import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('dlq', '0009_runtime'),
    ]

    operations = [
        migrations.CreateModel(
            name='Copy',
            fields=[
                ('dead_letter', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='copy', serialize=False, to='dlq.deadletter')),
                ('topic', models.CharField(max_length=249)),
                ('family', models.CharField(choices=[('spring', 'spring'), ('connect', 'connect')], max_length=20)),
                ('event_id', models.UUIDField(null=True, unique=True)),
                ('payload', models.CharField(choices=[('copied', 'copied'), ('none', 'none'), ('withheld', 'withheld'), ('shed', 'shed')], max_length=12)),
                ('shed', models.CharField(blank=True, max_length=300)),
                ('failure', models.CharField(blank=True, max_length=300)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('failed_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'dlq_copy',
                'indexes': [models.Index(condition=models.Q(('failed_at__isnull', False)), fields=['topic', 'failed_at'], name='dlq_copy_failed')],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('payload__in', ['copied', 'none', 'withheld', 'shed'])), name='dlq_copy_known_payload'),
                    models.CheckConstraint(condition=models.Q(models.Q(('event_id__isnull', False), ('failed_at__isnull', True), ('failure', '')), models.Q(('failed_at__isnull', False), models.Q(('failure', ''), _negated=True)), _connector='OR'), name='dlq_copy_sent_or_failed'),
                ],
            },
        ),
    ]
