"""How far the outbox was looked through for repeated event ids; see relay/housekeeping.py."""

from django.db import migrations

SCAN = """
CREATE TABLE relay_duplicate_scan (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    xid xid8 NOT NULL,
    shard integer NOT NULL,
    position bigint NOT NULL,
    repeats bigint NOT NULL DEFAULT 0
);
INSERT INTO relay_duplicate_scan (xid, shard, position)
SELECT pg_snapshot_xmin(pg_current_snapshot()), 0, 0;
"""


class Migration(migrations.Migration):
    dependencies = [("relay", "0004_doorbell")]
    operations = [migrations.RunSQL(SCAN, "DROP TABLE relay_duplicate_scan")]
