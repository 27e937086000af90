"""Discards that can be taken back; a record that only waits behind another one is no failure of its group."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

FUNCTION = """
CREATE OR REPLACE FUNCTION dlq_tally() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        DELETE FROM dlq_group_count;
        DELETE FROM dlq_group_bucket;
        RETURN NULL;
    END IF;

    IF TG_OP = 'DELETE' THEN
        INSERT INTO dlq_group_count (fingerprint, topic, group_name, state, n)
        SELECT fingerprint, topic, group_name, state, -count(*) FROM old_rows GROUP BY 1, 2, 3, 4;
        INSERT INTO dlq_group_bucket (fingerprint, bucket, n)
        SELECT fingerprint, date_bin('10 minutes', parked_at, '2000-01-01+00'), -count(*) FROM old_rows GROUP BY 1, 2;
        RETURN NULL;
    END IF;

    INSERT INTO dlq_failure_group (fingerprint, handler, failure_class, error_class, error_message, first_seen_at)
    SELECT DISTINCT ON (fingerprint) fingerprint, handler, failure_class, error_class, error_message, parked_at
    FROM new_rows
    WHERE NOT EXISTS (SELECT FROM dlq_failure_group g WHERE g.fingerprint = new_rows.fingerprint)
    ORDER BY fingerprint, parked_at
    ON CONFLICT (fingerprint) DO NOTHING;

    IF TG_OP = 'INSERT' THEN
        INSERT INTO dlq_group_count (fingerprint, topic, group_name, state, n, last_at)
        SELECT fingerprint, topic, group_name, state, count(*), max(parked_at) FILTER (WHERE failure_class <> 'behind')
        FROM new_rows GROUP BY 1, 2, 3, 4;
        INSERT INTO dlq_group_bucket (fingerprint, bucket, n)
        SELECT fingerprint, date_bin('10 minutes', parked_at, '2000-01-01+00'), count(*) FROM new_rows GROUP BY 1, 2;
        RETURN NULL;
    END IF;

    INSERT INTO dlq_group_count (fingerprint, topic, group_name, state, n, last_at)
    SELECT side.fingerprint, side.topic, side.group_name, side.state, sum(side.n), max(side.last_at)
    FROM old_rows o JOIN new_rows w ON w.id = o.id
    CROSS JOIN LATERAL (VALUES
        (o.fingerprint, o.topic, o.group_name, o.state, -1, NULL::timestamptz),
        (w.fingerprint, w.topic, w.group_name, w.state, 1,
         CASE WHEN w.attempts > o.attempts THEN clock_timestamp()
              WHEN w.failure_class <> 'behind' THEN w.parked_at END)
    ) side (fingerprint, topic, group_name, state, n, last_at)
    WHERE (o.fingerprint, o.topic, o.group_name, o.state, o.attempts, o.parked_at)
        IS DISTINCT FROM (w.fingerprint, w.topic, w.group_name, w.state, w.attempts, w.parked_at)
    GROUP BY 1, 2, 3, 4;
    INSERT INTO dlq_group_bucket (fingerprint, bucket, n)
    SELECT side.fingerprint, date_bin('10 minutes', side.parked_at, '2000-01-01+00'), sum(side.n)
    FROM old_rows o JOIN new_rows w ON w.id = o.id
    CROSS JOIN LATERAL (VALUES (o.fingerprint, o.parked_at, -1), (w.fingerprint, w.parked_at, 1))
        side (fingerprint, parked_at, n)
    WHERE (o.fingerprint, o.parked_at) IS DISTINCT FROM (w.fingerprint, w.parked_at)
    GROUP BY 1, 2 HAVING sum(side.n) <> 0;
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('dlq', '0011_list_indexes'),
    ]

    operations = [
        migrations.CreateModel(
            name='Discard',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('actor', models.CharField(max_length=150)),
                ('second', models.CharField(blank=True, max_length=150)),
                ('reason', models.CharField(max_length=500)),
                ('letters', models.IntegerField()),
                ('discarded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('restorable_until', models.DateTimeField()),
            ],
            options={
                'db_table': 'dlq_discard',
                'constraints': [models.CheckConstraint(condition=models.Q(('letters__gte', 1)), name='dlq_discard_has_letters')],
            },
        ),
        migrations.CreateModel(
            name='DiscardItem',
            fields=[
                ('pk', models.CompositePrimaryKey('discard', 'dead_letter_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('dead_letter_id', models.UUIDField()),
                ('restored_at', models.DateTimeField(null=True)),
                ('restored_by', models.CharField(db_default='', max_length=150)),
                ('restore_reason', models.CharField(db_default='', max_length=500)),
                ('discard', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='items', to='dlq.discard')),
            ],
            options={
                'db_table': 'dlq_discard_item',
                'indexes': [models.Index(fields=['dead_letter_id'], name='dlq_di_letter')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('restored_at__isnull', True)), fields=('dead_letter_id',), name='dlq_discard_item_in_force')],
            },
        ),
        migrations.RunSQL(FUNCTION, migrations.RunSQL.noop),
    ]
