"""Whoever deletes a dead letter, by SQL too, deletes where it failed elsewhere and what became of its copy."""

from django.db import migrations

FORWARD = """
DO $$
DECLARE
    child text;
    found text;
BEGIN
    FOREACH child IN ARRAY ARRAY['dlq_foreign_stop', 'dlq_copy'] LOOP
        SELECT conname INTO STRICT found FROM pg_constraint
        WHERE conrelid = child::regclass AND contype = 'f' AND confrelid = 'dlq_dead_letter'::regclass;
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', child, found);
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (dead_letter_id) REFERENCES dlq_dead_letter (id)'
                       ' {action} DEFERRABLE INITIALLY DEFERRED', child, found);
    END LOOP;
END $$
"""


class Migration(migrations.Migration):

    dependencies = [("dlq", "0012_discards")]

    operations = [
        migrations.RunSQL(FORWARD.replace("{action}", "ON DELETE CASCADE"), FORWARD.replace("{action}", "")),
    ]
