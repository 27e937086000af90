"""Pages of dead letters with many of them: time in the server, and what their statements read.

Each page is asked for in this process, through every middleware and template. EXPLAIN ANALYZE of each of its statements
says how many dead letters it read, whether they were shown, counted or passed over.
"""

import json
import re
import time
from collections.abc import Iterator

from bench.parts.report import Report
from bench.parts.services import World

BAR_MS = 100
READ_ROWS = 15_000  # above every cap of the pages, far below a scan
GROUPS = 200
FILL = """
INSERT INTO dlq_dead_letter (id, group_name, handler, topic, partition, log_offset, key_label, event_id, event_type,
    failure_class, error_class, error_message, stack, fingerprint, attempts, state, parked_at)
SELECT gen_random_uuid(), 'group-' || n %% 7, 'bench.handler-' || n %% 20, 'topic-' || n %% 10, n %% 6, n,
    'key#' || lpad(to_hex(n %% 5000), 8, '0'), gen_random_uuid(), 'bench.type-' || n %% 5, 'permanent',
    'bench.Error' || n %% 40, 'raised at bench.py:' || n %% %(causes)s::int, 'bench.py:1 work',
    lpad(to_hex(n %% %(causes)s::int), 16, '0'), 1, CASE WHEN n %% 10 = 0 THEN 'applied' ELSE 'parked' END,
    clock_timestamp() - n * interval '0.6 s'
FROM generate_series(%(first)s::int, %(last)s::int) n
"""
CHUNK = 50_000
NEXT = re.compile(r'href="([^"]*after=[^"]*)"')


def measure_pages(world: World, plan, report: Report) -> None:
    """p95 of each kind of page, and the most dead letters that one of their statements read."""
    from django.test import Client

    _fill(world, plan.letters)
    client = Client(HTTP_HOST="127.0.0.1")
    client.force_login(_user())
    most, where = 0, ""
    for what, urls in _pages(client):
        times = sorted(_time(client, urls[n % len(urls)]) for n in range(plan.requests))
        report.at_most(
            f"{what} with {plan.letters:,} dead letters, p95",
            times[min(len(times) - 1, int(len(times) * 0.95))],
            BAR_MS,
            unit="ms",
            detail=f"median {times[len(times) // 2]:.0f}, most {times[-1]:.0f} ms of {len(times)} requests",
        )
        for url in urls:
            read, statement = _read_rows(client, url)
            if read > most:
                most, where = read, f"{url}: {statement}"
    report.at_most(
        f"dead letters that a statement of these pages read, of {plan.letters:,}", most, READ_ROWS, detail=where
    )


def _fill(world: World, count: int) -> None:
    from dlq.triage_counts import fold_counts

    for first in range(1, count + 1, CHUNK):
        world.sql(FILL, {"first": first, "last": min(first + CHUNK - 1, count), "causes": GROUPS})
        fold_counts()
    world.sql("VACUUM ANALYZE dlq_dead_letter")
    world.sql("ANALYZE")


def _user():
    from django.contrib.auth import get_user_model

    return get_user_model().objects.create_superuser("bench", password=None)


def _pages(client) -> list[tuple[str, list[str]]]:
    first = "/dead-letters/"
    narrowed = [
        f"{first}?group=group-3", f"{first}?topic=topic-4", f"{first}?error=bench.Error7",
        f"{first}?type=bench.type-2", f"{first}?state=applied", f"{first}?key=key%2300000007",
    ]  # fmt: skip
    page = client.get(first).content.decode()
    after = [url.replace("&amp;", "&") for url in NEXT.findall(page)][:1]
    after = [first.rstrip("/") + "/" + url if url.startswith("?") else url for url in after]
    from dlq.models import DeadLetter, FailureGroup

    letters = DeadLetter.objects.filter(state="parked").order_by("-parked_at")[:3]
    groups = FailureGroup.objects.order_by("number")[:3]
    return [
        ("list", [first, *after]),
        ("narrowed list", narrowed),
        ("failure groups", ["/dead-letters/groups/"]),
        ("page of a failure group", [f"/dead-letters/groups/{group.number}/" for group in groups]),
        ("page of a dead letter", [f"/dead-letters/{letter.pk}/" for letter in letters]),
    ]


def _time(client, url: str) -> float:
    began = time.perf_counter()
    answer = client.get(url)
    took = (time.perf_counter() - began) * 1000
    if answer.status_code != 200:
        raise RuntimeError(f"{url} answered {answer.status_code}")
    return took


def _read_rows(client, url: str) -> tuple[int, str]:
    """The most dead letters that one statement of the page read, and the statement's beginning."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        client.get(url)
    most, where = 0, ""
    for query in captured.captured_queries:
        sql = query["sql"]
        if "dlq_dead_letter" not in sql or not sql.lstrip().upper().startswith(("SELECT", "WITH")):
            continue
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql.replace("%", "%%"), [])
            told = cursor.fetchone()[0]
        plan = (json.loads(told) if isinstance(told, str) else told)[0]["Plan"]
        read = sum(_rows_of(node) for node in _nodes(plan))
        if read > most:
            most, where = read, " ".join(sql.split())[:160]
    return most, where


def _rows_of(node: dict) -> int:
    if not node.get("Relation Name", "").startswith("dlq_dead_letter"):
        return 0
    rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return round(rows * node["Actual Loops"])


def _nodes(plan: dict) -> Iterator[dict]:
    yield plan
    for below in plan.get("Plans", []):
        yield from _nodes(below)
