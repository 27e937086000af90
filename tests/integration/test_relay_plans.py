"""The hot reads stay on their indexes with many old rows, whatever the planner believes of young partitions."""

import json

import pytest
from django.db import connection, transaction

from relay import queries, store
from relay.domain.places import Place, Snapshot
from relay.facade import get_relay_status
from tests.relay_helpers import skip_to_now

pytestmark = pytest.mark.django_db(transaction=True)

OLD_ROWS = 50_000


@pytest.fixture(scope="module")
def _old_rows(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type, payload)"
            " SELECT 'old', convert_to('k' || n %% 1000, 'UTF8'), 't', convert_to(repeat('x', 100), 'UTF8')"
            " FROM generate_series(1, %s) n",
            [OLD_ROWS],
        )


def nodes(plan):
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def explain(statement, params):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params)
        answer = cursor.fetchone()[0]
    plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
    touched = sum(plan.get(f"Shared {kind} Blocks", 0) for kind in ("Hit", "Read"))
    outbox = [n for n in nodes(plan) if n.get("Relation Name", "").startswith("relay_outbox")]
    return outbox, touched, plan


def assert_on_indexes(outbox):
    assert outbox
    assert {n["Node Type"] for n in outbox} <= {"Index Scan", "Index Only Scan"}


def readers():
    with connection.cursor() as cursor:
        cursor.execute("SELECT shard, hw, snapshot::text FROM relay_checkpoint ORDER BY shard")
        return [
            store.Reader(n=shard, shard=shard, place=Place(hw=hw, snapshot=Snapshot.parse(snapshot)), quota=16)
            for shard, hw, snapshot in cursor.fetchall()
        ]


@pytest.mark.usefixtures("_old_rows")
@pytest.mark.parametrize("statement", ["late", "fresh"])
@pytest.mark.parametrize("analysed", [False, True])
def test_a_rounds_read_touches_few_pages_beside_many_old_rows(statement, analysed):
    skip_to_now()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE relay_outbox" if analysed else "SELECT 1")
        cursor.execute("INSERT INTO relay_outbox (topic, key, type) SELECT 'new', 'k', 't' FROM generate_series(1, 20)")
    outbox, touched, _ = explain(
        {"late": store._LATE, "fresh": store._FRESH}[statement], store._reader_params(readers(), 1_000)
    )
    assert_on_indexes(outbox)
    assert touched < 2_500


@pytest.mark.usefixtures("_old_rows")
@pytest.mark.parametrize("statement", ["oldest", "by_topic"])
def test_the_probe_for_the_oldest_unsent_row_touches_few_pages(statement):
    skip_to_now()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO relay_outbox (topic, key, type) SELECT 'new', 'k', 't' FROM generate_series(1, 20)")
    outbox, touched, plan = explain(
        {"oldest": queries.OLDEST, "by_topic": queries.BY_TOPIC}[statement], queries._limits(a_shard=20)
    )
    assert_on_indexes(outbox)
    assert touched < 4_000
    assert plan["Actual Rows"] > 0


@pytest.mark.usefixtures("_old_rows")
def test_a_backlog_is_counted_to_its_cap_and_says_so(settings):
    skip_to_now()
    settings.RELAY_UNSENT_COUNT_CAP = 100
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type) SELECT 'new', 'k', 't' FROM generate_series(1, 300)"
        )
    status = get_relay_status()
    assert (status.unsent.value, status.unsent.capped) == (100, True)
    assert status.oldest.age_s >= status.waiting[-1].age_s
    skip_to_now()
