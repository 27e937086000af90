"""Failure groups, and their counts: triggers append what every statement on dead letters changes."""

import django.db.models.deletion
from django.db import migrations, models

FUNCTION = """
CREATE FUNCTION dlq_tally() RETURNS trigger LANGUAGE plpgsql AS $$
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
        SELECT fingerprint, topic, group_name, state, count(*), max(parked_at) FROM new_rows GROUP BY 1, 2, 3, 4;
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
         CASE WHEN w.attempts > o.attempts THEN clock_timestamp() ELSE w.parked_at END)
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

CREATE TRIGGER dlq_tally_inserted AFTER INSERT ON dlq_dead_letter
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION dlq_tally();
CREATE TRIGGER dlq_tally_updated AFTER UPDATE ON dlq_dead_letter
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION dlq_tally();
CREATE TRIGGER dlq_tally_deleted AFTER DELETE ON dlq_dead_letter
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION dlq_tally();
CREATE TRIGGER dlq_tally_truncated AFTER TRUNCATE ON dlq_dead_letter
    FOR EACH STATEMENT EXECUTE FUNCTION dlq_tally();

-- What is here already, once.
INSERT INTO dlq_failure_group (fingerprint, handler, failure_class, error_class, error_message, first_seen_at)
SELECT DISTINCT ON (fingerprint) fingerprint, handler, failure_class, error_class, error_message, parked_at
FROM dlq_dead_letter ORDER BY fingerprint, parked_at;
INSERT INTO dlq_group_count (fingerprint, topic, group_name, state, n, last_at, is_folded)
SELECT fingerprint, topic, group_name, state, count(*), max(parked_at), true FROM dlq_dead_letter GROUP BY 1, 2, 3, 4;
INSERT INTO dlq_group_bucket (fingerprint, bucket, n, grain)
SELECT fingerprint, date_bin('10 minutes', parked_at, '2000-01-01+00'), count(*), 1 FROM dlq_dead_letter GROUP BY 1, 2;
"""
DROP = """
DROP TRIGGER dlq_tally_inserted ON dlq_dead_letter;
DROP TRIGGER dlq_tally_updated ON dlq_dead_letter;
DROP TRIGGER dlq_tally_deleted ON dlq_dead_letter;
DROP TRIGGER dlq_tally_truncated ON dlq_dead_letter;
DROP FUNCTION dlq_tally();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('dlq', '0004_foreign_letters'),
    ]

    operations = [
        migrations.CreateModel(
            name='FailureGroup',
            fields=[
                ('number', models.BigAutoField(primary_key=True, serialize=False)),
                ('fingerprint', models.CharField(max_length=16, unique=True)),
                ('handler', models.CharField(blank=True, max_length=200)),
                ('failure_class', models.CharField(max_length=12)),
                ('error_class', models.CharField(max_length=200)),
                ('error_message', models.CharField(blank=True, max_length=500)),
                ('first_seen_at', models.DateTimeField()),
                ('name', models.CharField(db_default='', max_length=120)),
                ('owner', models.CharField(db_default='', max_length=150)),
                ('note', models.CharField(db_default='', max_length=2000)),
                ('snoozed_until', models.DateTimeField(null=True)),
                ('fixed_in', models.CharField(db_default='', max_length=80)),
                ('fixed_at', models.DateTimeField(null=True)),
                ('version', models.PositiveIntegerField(db_default=0)),
                ('changed_by', models.CharField(db_default='', max_length=150)),
                ('changed_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'dlq_failure_group',
            },
        ),
        migrations.CreateModel(
            name='GroupBucket',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('fingerprint', models.CharField(max_length=16)),
                ('bucket', models.DateTimeField()),
                ('grain', models.SmallIntegerField(db_default=0)),
                ('n', models.BigIntegerField()),
            ],
            options={
                'db_table': 'dlq_group_bucket',
            },
        ),
        migrations.CreateModel(
            name='GroupCount',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('fingerprint', models.CharField(max_length=16)),
                ('topic', models.CharField(max_length=249)),
                ('group', models.CharField(db_column='group_name', max_length=200)),
                ('state', models.CharField(max_length=20)),
                ('n', models.BigIntegerField()),
                ('last_at', models.DateTimeField(null=True)),
                ('is_folded', models.BooleanField(db_default=False)),
            ],
            options={
                'db_table': 'dlq_group_count',
            },
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='merged_into',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='members', to='dlq.failuregroup'),
        ),
        migrations.AddIndex(
            model_name='groupbucket',
            index=models.Index(fields=['fingerprint', 'bucket'], include=('n',), name='dlq_gb_windows'),
        ),
        migrations.AddIndex(
            model_name='groupbucket',
            index=models.Index(condition=models.Q(('grain', 0)), fields=['bucket'], name='dlq_gb_tail'),
        ),
        migrations.AddIndex(
            model_name='groupbucket',
            index=models.Index(condition=models.Q(('grain', 1)), fields=['bucket'], name='dlq_gb_ten_minutes'),
        ),
        migrations.AddConstraint(
            model_name='groupbucket',
            constraint=models.CheckConstraint(condition=models.Q(('grain__in', [0, 1, 2])), name='dlq_group_bucket_known_grain'),
        ),
        migrations.AddConstraint(
            model_name='groupbucket',
            constraint=models.UniqueConstraint(condition=models.Q(('grain__gt', 0)), fields=('fingerprint', 'grain', 'bucket'), name='dlq_gb_folded_once'),
        ),
        migrations.AddIndex(
            model_name='groupcount',
            index=models.Index(condition=models.Q(('is_folded', False)), fields=['id'], name='dlq_gc_tail'),
        ),
        migrations.AddIndex(
            model_name='groupcount',
            index=models.Index(fields=['fingerprint'], name='dlq_gc_fingerprint'),
        ),
        migrations.AddConstraint(
            model_name='groupcount',
            constraint=models.UniqueConstraint(condition=models.Q(('is_folded', True)), fields=('fingerprint', 'topic', 'group', 'state'), name='dlq_gc_folded_once'),
        ),
        migrations.AddConstraint(
            model_name='failuregroup',
            constraint=models.CheckConstraint(condition=models.Q(('merged_into__isnull', True), models.Q(('merged_into', models.F('number')), _negated=True), _connector='OR'), name='dlq_failure_group_not_itself'),
        ),
        migrations.AddConstraint(
            model_name='failuregroup',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('fixed_at__isnull', True), ('fixed_in', '')), models.Q(('fixed_at__isnull', False), models.Q(('fixed_in', ''), _negated=True)), _connector='OR'), name='dlq_failure_group_fixed_somewhere'),
        ),
        migrations.RunSQL(FUNCTION, DROP),
    ]

