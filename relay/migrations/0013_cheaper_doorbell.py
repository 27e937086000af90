"""The doorbell's test moves into the trigger's WHEN clause: a writer that wakes nobody calls no function."""

from django.db import migrations

# 7203001 and 16 are those of relay/bell.py. One expression: nothing may interrupt between the lock and its release.
RING = """
SET LOCAL lock_timeout = '5s';
DROP TRIGGER relay_outbox_ring ON relay_outbox;
CREATE OR REPLACE FUNCTION relay_outbox_ring() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NOTIFY relay_outbox;
    RETURN NULL;
END $$;
CREATE TRIGGER relay_outbox_ring AFTER INSERT ON relay_outbox FOR EACH STATEMENT
WHEN (NOT (CASE WHEN pg_try_advisory_lock(7203001, pg_backend_pid() % 16)
           THEN pg_advisory_unlock(7203001, pg_backend_pid() % 16) ELSE false END))
EXECUTE FUNCTION relay_outbox_ring();
"""

BEFORE = """
SET LOCAL lock_timeout = '5s';
DROP TRIGGER relay_outbox_ring ON relay_outbox;
CREATE OR REPLACE FUNCTION relay_outbox_ring() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    slot integer := pg_backend_pid() % 16;
BEGIN
    IF NOT (CASE WHEN pg_try_advisory_lock(7203001, slot) THEN pg_advisory_unlock(7203001, slot) ELSE false END) THEN
        NOTIFY relay_outbox;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER relay_outbox_ring AFTER INSERT ON relay_outbox
FOR EACH STATEMENT EXECUTE FUNCTION relay_outbox_ring();
"""


class Migration(migrations.Migration):
    dependencies = [("relay", "0012_kinds_without_choices")]
    operations = [migrations.RunSQL(RING, BEFORE)]
