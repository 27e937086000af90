"""Find the range of a position, and say which runner sent it; see relay/events.py.

Ranges are written in nearly the order of their positions, so a BRIN index finds a position in a few pages and costs
almost nothing to keep. The runner is the name of its database session: the statement that writes a range stays as it is.
"""

from django.db import migrations

LOOKUP = """
CREATE INDEX relay_range_position ON relay_range USING brin (from_position int8_minmax_multi_ops,
    to_position int8_minmax_multi_ops) WITH (pages_per_range = 8, autosummarize = on);
ALTER TABLE relay_range ADD COLUMN runner text NOT NULL DEFAULT '';
ALTER TABLE relay_range ALTER COLUMN runner SET DEFAULT
    regexp_replace(current_setting('application_name', true), '^relay ', '');
"""
NO_LOOKUP = "DROP INDEX relay_range_position; ALTER TABLE relay_range DROP COLUMN runner;"


class Migration(migrations.Migration):
    dependencies = [("relay", "0007_steering")]
    operations = [migrations.RunSQL(LOOKUP, NO_LOOKUP)]
