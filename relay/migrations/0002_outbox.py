"""The outbox, its checkpoints, runners, ranges, deferred keys and holds.

Plain SQL without Django models: the hot statements are SQL anyway (relay/queries.py, relay/services.py), and a
test's flush must not truncate an append-only log. What each column means: docs/outbox.md.
"""

from django.conf import settings
from django.db import migrations

OUTBOX = """
CREATE SEQUENCE relay_outbox_position AS bigint;

-- md5, not hashtext(): the value must stay the same across servers and major versions (a dump recomputes it).
CREATE FUNCTION relay_shard(topic text, key bytea, place bigint) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN key IS NULL THEN (place % 64)::integer
           ELSE get_byte(decode(left(md5(topic || ' ' || encode(key, 'hex')), 2), 'hex'), 0) & 63 END
$$;

CREATE TABLE relay_outbox (
    position bigint NOT NULL DEFAULT nextval('relay_outbox_position'),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    shard integer NOT NULL GENERATED ALWAYS AS (relay_shard(topic, key, position)) STORED,
    topic text NOT NULL CHECK (topic <> ''),
    key bytea,
    partition integer CHECK (partition >= 0),
    type text NOT NULL CHECK (type <> ''),
    headers jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(headers) = 'array'),
    payload bytea,
    content_type text NOT NULL DEFAULT 'application/json',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard, position)
) PARTITION BY RANGE (position);
CREATE INDEX relay_outbox_late ON relay_outbox (xid, shard, position);
CREATE INDEX relay_outbox_id ON relay_outbox (id);

CREATE FUNCTION relay_outbox_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'relay_outbox is append-only: % is refused', TG_OP
    USING HINT = 'Publish a new event instead; old partitions are removed by housekeeping.';
END $$;
CREATE TRIGGER relay_outbox_append_only BEFORE UPDATE OR DELETE ON relay_outbox
FOR EACH ROW EXECUTE FUNCTION relay_outbox_refuse();
CREATE TRIGGER relay_outbox_no_truncate BEFORE TRUNCATE ON relay_outbox
FOR EACH STATEMENT EXECUTE FUNCTION relay_outbox_refuse();

CREATE VIEW relay_outbox_partition AS
SELECT c.oid::regclass AS name,
       substring(pg_get_expr(c.relpartbound, c.oid) FROM $$FROM \\('(\\d+)'\\)$$)::bigint AS from_position,
       substring(pg_get_expr(c.relpartbound, c.oid) FROM $$TO \\('(\\d+)'\\)$$)::bigint AS to_position
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'relay_outbox'::regclass;

-- LIKE + ATTACH: PARTITION OF would queue behind an open writer and block every publish.
CREATE FUNCTION relay_outbox_ensure_partitions(partition_rows bigint, ahead integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    at_position bigint;
    next_from bigint;
    have integer;
    made integer := 0;
    part text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('relay_outbox_partitions'));
    SELECT last_value INTO at_position FROM relay_outbox_position;
    SELECT coalesce(max(to_position), 1), count(*) FILTER (WHERE from_position > at_position)
    INTO next_from, have FROM relay_outbox_partition;
    WHILE have < ahead LOOP
        part := 'relay_outbox_p' || next_from;
        EXECUTE format('CREATE TABLE %I (LIKE relay_outbox INCLUDING ALL)', part);
        EXECUTE format('CREATE TRIGGER relay_outbox_no_truncate BEFORE TRUNCATE ON %I'
                       ' FOR EACH STATEMENT EXECUTE FUNCTION relay_outbox_refuse()', part);
        EXECUTE format('ALTER TABLE relay_outbox ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                       part, next_from, next_from + partition_rows);
        IF next_from > at_position THEN
            have := have + 1;
        END IF;
        next_from := next_from + partition_rows;
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
"""

DROP_OUTBOX = """
DROP VIEW relay_outbox_partition;
DROP FUNCTION relay_outbox_ensure_partitions;
DROP TABLE relay_outbox;
DROP FUNCTION relay_outbox_refuse;
DROP FUNCTION relay_shard;
DROP SEQUENCE relay_outbox_position;
"""

PLACES = """
CREATE TABLE relay_runner (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('celery', 'process')),
    pid integer NOT NULL,
    host text NOT NULL,
    state text NOT NULL DEFAULT 'starting',
    leaving boolean NOT NULL DEFAULT false,
    sent_total bigint NOT NULL DEFAULT 0,
    unacked integer NOT NULL DEFAULT 0,
    circuit_open_since timestamptz,
    asleep_until timestamptz,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE relay_checkpoint (
    shard integer PRIMARY KEY CHECK (shard BETWEEN 0 AND 63),
    hw bigint NOT NULL,
    snapshot pg_snapshot NOT NULL,
    late_floor bigint NOT NULL DEFAULT 0,
    late_cursor bigint NOT NULL DEFAULT 0,
    late_snapshot pg_snapshot,
    epoch bigint NOT NULL DEFAULT 0,
    holder uuid,
    system_identifier bigint NOT NULL,
    moved_at timestamptz
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE relay_range (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic text NOT NULL,
    partition integer NOT NULL,
    from_position bigint NOT NULL,
    to_position bigint NOT NULL CHECK (to_position >= from_position),
    from_offset bigint NOT NULL,
    to_offset bigint NOT NULL CHECK (to_offset >= from_offset),
    sent integer NOT NULL,
    first_acked_at timestamptz NOT NULL,
    last_acked_at timestamptz NOT NULL
);
CREATE INDEX relay_range_offset ON relay_range (topic, partition, from_offset);
CREATE INDEX relay_range_old ON relay_range USING brin (last_acked_at);

CREATE TABLE relay_deferred (
    shard integer NOT NULL,
    position bigint NOT NULL,
    topic text NOT NULL,
    key bytea,
    event_id uuid NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    due_at timestamptz,
    failed boolean NOT NULL DEFAULT false,
    order_broken boolean NOT NULL DEFAULT false,
    error text NOT NULL DEFAULT '',
    deferred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard, position)
);
CREATE INDEX relay_deferred_key ON relay_deferred (topic, key, position);

CREATE TABLE relay_hold (
    shard integer NOT NULL,
    topic text NOT NULL,
    hw bigint NOT NULL,
    snapshot pg_snapshot NOT NULL,
    late_cursor bigint NOT NULL DEFAULT 0,
    late_snapshot pg_snapshot,
    reason text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard, topic)
);

CREATE TABLE relay_control (
    scope text PRIMARY KEY,
    paused_by text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason text NOT NULL
);

CREATE TABLE relay_stat (
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    runner uuid NOT NULL,
    sent integer NOT NULL,
    buckets integer[] NOT NULL
);
CREATE INDEX relay_stat_at ON relay_stat (at);
"""

FIRST_PLACE = """
INSERT INTO relay_checkpoint (shard, hw, snapshot, system_identifier)
SELECT shard, (SELECT coalesce(max(position), 0) FROM relay_outbox), pg_current_snapshot(),
       (SELECT system_identifier FROM pg_control_system())
FROM generate_series(0, 63) AS shard;
"""

DROP_PLACES = """
DROP TABLE relay_stat, relay_control, relay_hold, relay_deferred, relay_range, relay_checkpoint, relay_runner;
"""


def make_partitions(apps, schema_editor):  # noqa: ANN001, ANN201, ARG001
    """The first partitions, as many as housekeeping keeps ahead (and the current one)."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(
            "SELECT relay_outbox_ensure_partitions(%s, %s)",
            [settings.RELAY_PARTITION_ROWS, settings.RELAY_PARTITIONS_AHEAD],
        )


class Migration(migrations.Migration):
    dependencies = [("relay", "0001_ops")]
    operations = [
        migrations.RunSQL(OUTBOX, DROP_OUTBOX),
        migrations.RunPython(make_partitions, migrations.RunPython.noop),
        migrations.RunSQL(PLACES, DROP_PLACES),
        migrations.RunSQL(FIRST_PLACE, migrations.RunSQL.noop),
    ]
