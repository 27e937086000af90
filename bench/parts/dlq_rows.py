"""A million dead letters for measuring the pages: written by SQL, so that loading is not what takes the time.

They look as an installation does after two bad weeks: a few causes have most of them, many have a few; most are parked,
the rest was applied, sent or discarded. The triggers count them, as they count what is parked.
"""

import psycopg
import psycopg.sql

CHUNK_ROWS = 50_000
CAUSES = 200
KEYS = 50_000

_FILL = """
INSERT INTO dlq_dead_letter (id, group_name, handler, topic, partition, log_offset, topic_id, record_timestamp,
    original_key, original_value, original_headers, key_label, event_id, event_type, published_at, failure_class,
    error_class, error_message, stack, fingerprint, attempts, state, origin, parked_at, replays, needs_human)
SELECT gen_random_uuid(), 'bench-group-' || mod(n, 5), 'handler_' || mod(cause, 12), 'bench-topic-' || mod(n, 9),
    mod(n, 12), n, 'bench', at, decode(md5(mod(n, %(keys)s::int)::text), 'hex'),
    decode(repeat(md5(n::text), 12), 'hex'), NULL,
    'key#' || left(md5(mod(n, %(keys)s::int)::text), 8), gen_random_uuid(), 'bench.type.' || mod(n, 20), at,
    (ARRAY['permanent', 'transient', 'schema', 'unknown'])[1 + mod(cause, 4)], 'bench.Error' || mod(cause, 40),
    'raised at bench/handlers.py:' || cause || ' handle; its text is hidden until redaction rules can be applied to it',
    'bench/handlers.py:' || cause || ' handle',
    lpad(to_hex(cause), 16, 'b'), 1 + mod(n, 10),
    (ARRAY['parked', 'parked', 'parked', 'parked', 'parked', 'parked', 'applied', 'applied', 'sent', 'discarded'])
        [1 + mod(n / 7, 10)],
    'consumer', at, CASE WHEN mod(n, 50) = 0 THEN mod(n, 4)::int ELSE 0 END, mod(n, 997) = 0
FROM (
    SELECT n, floor(%(causes)s::int * power(random(), 3))::int AS cause,
        clock_timestamp() - make_interval(secs => 1209600.0 * n / %(rows)s::int) AS at
    FROM generate_series(%(first)s::int, %(last)s::int) n
) rows
"""
_OPEN = """
INSERT INTO dlq_counter (topic, group_name, slot, open, parked, duplicates)
SELECT topic, group_name, 0, count(*) FILTER (WHERE state = 'parked'), count(*), 0 FROM dlq_dead_letter
WHERE topic_id = 'bench' GROUP BY 1, 2
ON CONFLICT (topic, group_name, slot) DO UPDATE
SET open = dlq_counter.open + excluded.open, parked = dlq_counter.parked + excluded.parked
"""
_INDEXES = """
SELECT indexname, indexdef FROM pg_indexes
WHERE tablename = 'dlq_dead_letter' AND indexdef NOT LIKE 'CREATE UNIQUE%' ORDER BY 1
"""


def load_dead_letters(database_url: str, rows: int, *, causes: int = CAUSES, keys: int = KEYS) -> None:
    """Write so many dead letters with their counters; the caller's database is empty of them before.

    The indexes of the list are made after the rows: that takes a fraction of the time.
    """
    values = {"rows": rows, "causes": causes, "keys": keys}
    with psycopg.connect(database_url, autocommit=True) as db:
        indexes = db.execute(_INDEXES).fetchall()
        for name, _ in indexes:
            db.execute(psycopg.sql.SQL("DROP INDEX {}").format(psycopg.sql.Identifier(name)))
        for first in range(1, rows + 1, CHUNK_ROWS):
            db.execute(_FILL, {**values, "first": first, "last": min(rows, first + CHUNK_ROWS - 1)})
        db.execute("SET maintenance_work_mem = '256MB'")
        for _, made_by in indexes:
            db.execute(made_by)
        db.execute(_OPEN)
        db.execute("VACUUM ANALYZE dlq_dead_letter")
        db.execute("ANALYZE dlq_group_count")
        db.execute("ANALYZE dlq_group_bucket")


def page_addresses(database_url: str) -> dict[str, str]:
    """What is asked for when the pages are measured, by name; one of each kind that the list can be narrowed to."""
    with psycopg.connect(database_url, autocommit=True) as db:
        number, fingerprint = db.execute(
            "SELECT number, fingerprint FROM dlq_failure_group ORDER BY number LIMIT 1"
        ).fetchone()
        letter, key = db.execute(
            "SELECT id, key_label FROM dlq_dead_letter WHERE state = 'parked' ORDER BY parked_at LIMIT 1"
        ).fetchone()
    key = key.replace("#", "%23")
    return {
        "groups": "/dead-letters/groups/",
        "groups, every one, last seen": "/dead-letters/groups/?show=all&sort=last",
        "one group": f"/dead-letters/groups/{number}/",
        "list": "/dead-letters/",
        "list, any state": "/dead-letters/?state=any",
        "list, oldest": "/dead-letters/?sort=oldest",
        "list, most tries": "/dead-letters/?sort=tries",
        "list, by place": "/dead-letters/?sort=place&topic=bench-topic-3",
        "list of a group": f"/dead-letters/?failure={number}",
        "list of a group, 7 d, any state": f"/dead-letters/?failure={number}&state=any&since=7d",
        "list of a fingerprint": f"/dead-letters/?fingerprint={fingerprint}",
        "list of a topic and consumer group": "/dead-letters/?topic=bench-topic-3&group=bench-group-2",
        "list of a key": f"/dead-letters/?key={key}",
        "list of an error and a type": "/dead-letters/?error=bench.Error7&type=bench.type.3",
        "list, failed again twice": "/dead-letters/?replays=2",
        "list, needs a person": "/dead-letters/?needs_human=1",
        "list, nothing matches": "/dead-letters/?topic=nothing&error=bench.Error7",
        "one dead letter": f"/dead-letters/{letter}/",
    }
