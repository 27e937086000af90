"""The hot reads stay on their indexes with many old rows, whatever the planner believes of young partitions."""

import json

import pytest
from django.conf import settings
from django.db import connection, transaction

from relay import queries, store
from relay.domain.places import Place, Snapshot
from relay.facade import get_relay_status
from tests.relay_helpers import open_connection, skip_to_now

pytestmark = pytest.mark.django_db(transaction=True)

OLD_ROWS = 200_000


@pytest.fixture(scope="module")
def _old_rows(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock():
        insert_old(OLD_ROWS)


def insert_old(rows):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type, payload)"
            " SELECT 'old', convert_to('k' || n %% 1000, 'UTF8'), 't', convert_to(repeat('x', 100), 'UTF8')"
            " FROM generate_series(1, %s) n",
            [rows],
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
@pytest.mark.parametrize("statement", ["late", "fresh", "unseen"])
@pytest.mark.parametrize("analysed", [False, True])
def test_a_rounds_read_touches_few_pages_beside_many_old_rows(statement, analysed):
    skip_to_now()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE relay_outbox" if analysed else "SELECT 1")
        cursor.execute("INSERT INTO relay_outbox (topic, key, type) SELECT 'new', 'k', 't' FROM generate_series(1, 20)")
    text, params = {
        "late": (store._LATE, store._reader_params(readers(), 1_000)),
        "fresh": (store._FRESH, store._reader_params(readers(), 1_000)),
        "unseen": (store._UNSEEN, store._unseen_params(readers(), 1_000)),
    }[statement]
    outbox, touched, plan = explain(text, params)
    assert_on_indexes(outbox)
    assert touched < (2_500 if statement != "unseen" else 200)
    assert plan["Actual Rows"] == {"late": 0, "fresh": 16, "unseen": 20}[statement]  # 16 is a reader's quota here


@pytest.mark.usefixtures("_old_rows")
def test_a_read_beside_a_transaction_that_is_open_for_long_touches_few_pages():
    with open_connection() as idle:
        idle.execute("SELECT pg_current_xact_id()")
        insert_new(20_000, keys=1_000)
        skip_to_now()
        insert_new(20)
        params = store._reader_params(readers(), 1_000)
        assert params["xips"] == [] or len(params["xips"]) < 100
        statements = [
            (store._LATE, params),
            (store._FRESH, params),
            (store._UNSEEN, store._unseen_params(readers(), 1_000)),
        ]
        for statement, values in statements:
            outbox, touched, _ = explain(statement, values)
            assert_on_indexes(outbox)
            assert touched < 2_500
    skip_to_now()


@pytest.mark.usefixtures("_old_rows")
def test_the_rows_that_the_page_shows_are_looked_up_one_by_one():
    with connection.cursor() as cursor:
        cursor.execute("SELECT shard, position FROM relay_outbox WHERE topic = 'old' AND shard = 1 LIMIT 20")
        places = cursor.fetchall()
    shards, positions = [s for s, _ in places], [p for _, p in places]
    outbox, touched, plan = explain(
        queries.DETAILS,
        {"shards": shards, "positions": positions, "first": min(positions), "last": max(positions)},
    )
    assert_on_indexes(outbox)
    assert plan["Actual Rows"] == 20
    assert touched < 500


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.usefixtures("_old_rows")
def test_every_read_stays_on_its_indexes_with_ten_million_old_rows():
    for _ in range(98):  # beside the 200,000 that are there
        with connection.cursor() as cursor:
            cursor.execute("SELECT relay_outbox_ensure_partitions(%s, 8)", [settings.RELAY_PARTITION_ROWS])
        insert_old(100_000)
    skip_to_now()
    insert_new(20)
    params = store._reader_params(readers(), 1_000)
    for statement in (store._LATE, store._FRESH):
        outbox, touched, _ = explain(statement, params)
        assert_on_indexes(outbox)
        assert touched < 5_000
    outbox, touched, _ = waiting_plan()
    assert_on_indexes(outbox)
    assert touched < 3_000
    _, last = checkpoints()
    outbox, touched, _ = explain(queries.APPENDED, queries.appended_params(last))
    assert_on_indexes(outbox)
    assert touched < 6_000
    skip_to_now()


def checkpoints():
    with connection.cursor() as cursor:
        cursor.execute(queries._SHARDS)
        shards = cursor.fetchall()
        cursor.execute("SELECT last_value FROM relay_outbox_position")
        return shards, cursor.fetchone()[0]


def waiting_plan(most=157):
    shards, last = checkpoints()
    params = queries.waiting_params(shards, last, holds=(), most=dict.fromkeys(range(64), most))
    statement = queries.waiting_statement(params, has_holds=False, has_deferred=True)
    return explain(statement, params)


def insert_new(rows, keys=1):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_outbox (topic, key, type)"
            " SELECT 'new', convert_to('k' || n %% %s, 'UTF8'), 't' FROM generate_series(1, %s) n",
            [keys, rows],
        )


@pytest.mark.usefixtures("_old_rows")
@pytest.mark.parametrize("analysed", [False, True])
def test_counting_what_waits_touches_few_pages_and_one_partition_beside_many_old_rows(analysed):
    skip_to_now()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE relay_outbox" if analysed else "SELECT 1")
    outbox, touched, _ = waiting_plan()
    assert_on_indexes(outbox)
    assert touched < 200  # nothing waits: the late probe alone, in the partitions that exist
    insert_new(20)
    outbox, touched, plan = waiting_plan()
    assert_on_indexes(outbox)
    assert touched < 1_500
    assert plan["Actual Rows"] == 1 + 20  # one group, and the oldest rows
    looked_up = [n for n in outbox if "shard" in n.get("Index Cond", "") and n["Actual Loops"]]
    assert len({n["Relation Name"] for n in looked_up}) == 1


@pytest.mark.usefixtures("_old_rows")
def test_a_backlog_costs_its_cap_and_not_its_size():
    skip_to_now()
    insert_new(30_000, keys=500)
    outbox, touched, plan = waiting_plan()
    assert_on_indexes(outbox)
    assert touched < 30_000  # at most 157 rows a shard, whatever waits behind them
    assert sum(n["Actual Rows"] * n["Actual Loops"] for n in outbox) < 25_000
    assert plan["Actual Rows"] == 64 + 20
    skip_to_now()


@pytest.mark.usefixtures("_old_rows")
def test_the_rate_of_new_rows_is_read_from_the_newest_few_of_each_shard():
    insert_new(500, keys=500)
    _, last = checkpoints()
    outbox, touched, _ = explain(queries.APPENDED, queries.appended_params(last))
    assert_on_indexes(outbox)
    assert touched < 4_000
    skip_to_now()


@pytest.mark.usefixtures("_old_rows")
def test_a_key_that_waits_alone_is_counted_to_the_whole_cap():
    skip_to_now()
    insert_new(3_000)
    status = get_relay_status()
    assert (status.unsent.value, status.unsent.capped) == (3_000, False)
    assert [(t.topic, t.unsent.value) for t in status.unsent_by_topic] == [("new", 3_000)]
    assert [r.position for r in status.waiting] == sorted(r.position for r in status.waiting)
    assert len(status.waiting) == 20
    skip_to_now()


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
