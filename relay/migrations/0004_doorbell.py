"""The doorbell on the outbox, and an index for the oldest deferred rows."""

from django.db import migrations

# 7203001 and 16 are those of relay/bell.py. One expression: nothing may interrupt between the lock and its release.
RING = """
CREATE FUNCTION relay_outbox_ring() RETURNS trigger LANGUAGE plpgsql AS $$
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
ALTER TABLE relay_runner DROP COLUMN asleep_until, ADD COLUMN doorbell boolean NOT NULL DEFAULT false;
CREATE INDEX relay_deferred_position ON relay_deferred (position);
"""

NO_RING = """
DROP TRIGGER relay_outbox_ring ON relay_outbox;
DROP FUNCTION relay_outbox_ring;
ALTER TABLE relay_runner DROP COLUMN doorbell, ADD COLUMN asleep_until timestamptz;
DROP INDEX relay_deferred_position;
"""


class Migration(migrations.Migration):
    dependencies = [("relay", "0003_lag")]
    operations = [migrations.RunSQL(RING, NO_RING)]
