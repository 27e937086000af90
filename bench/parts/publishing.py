"""`publish()` inside a transaction : the bare insert of the same row, through the same connection."""

import time
from statistics import median

from bench.parts.plan import Plan
from bench.parts.report import Report
from bench.parts.services import World

BLOCKS = 10
BARE = """
INSERT INTO relay_outbox (id, topic, key, partition, type, headers, payload, content_type)
VALUES (%s, %s, %s, %s, %s, %s::jsonb, %s, %s) RETURNING position
"""


def measure_publish(world: World, plan: Plan, report: Report) -> None:
    """In turns: a block of `publish()`, a block of bare inserts, each in a transaction."""
    import django

    django.setup()
    from django.db import connection

    from relay.facade import declare_topic
    from relay.types import TopicSpec

    topic = declare_topic(TopicSpec(name=world.make_topic("publish"))).name
    payload = {"n": 1, "text": "x" * 480}
    published, bare = [], []
    rows = max(1, plan.publish_rows // BLOCKS)
    _publish_block(topic, payload, rows)
    for _ in range(BLOCKS):
        published.append(_publish_block(topic, payload, rows))
        bare.append(_bare_block(topic, payload, rows))
    connection.close()
    report.at_most(
        "publish() inside a transaction : the bare insert",
        median(published) / median(bare),
        1.5,
        detail=f"{median(published) / rows * 1e6:.0f} and {median(bare) / rows * 1e6:.0f} microseconds, medians of"
        f" {BLOCKS} blocks of {rows:,}",
    )


def _publish_block(topic: str, payload: dict, rows: int) -> float:
    from django.db import transaction

    from relay.facade import publish

    with transaction.atomic():
        began = time.perf_counter()
        for n in range(rows):
            publish(topic, key=n, type="bench.row", payload=payload)
        return time.perf_counter() - began


def _bare_block(topic: str, payload: dict, rows: int) -> float:
    import json

    import uuid_utils.compat
    from django.db import connection, transaction

    body = json.dumps(payload).encode()
    ready = [
        (uuid_utils.compat.uuid7(), topic, str(n).encode(), None, "bench.row", "[]", body, "application/json")
        for n in range(rows)
    ]
    with transaction.atomic():
        began = time.perf_counter()
        for row in ready:
            with connection.cursor() as cursor:
                cursor.execute(BARE, row)
                cursor.fetchone()
        return time.perf_counter() - began
