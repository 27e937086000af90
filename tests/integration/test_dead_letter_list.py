"""The list of dead letters: filters, pages in both directions, damaged links, and its plan with 50,000 rows."""

import base64
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dlq import queries
from dlq.facade import BadCursor, BadFilter, list_dead_letters
from dlq.models import DeadLetter
from dlq.triage import find_group_of, merge_group
from dlq.types import DeadLetterFilter, LetterSort

pytestmark = pytest.mark.django_db

FILL = """
INSERT INTO dlq_dead_letter (id, group_name, handler, topic, partition, log_offset, key_label, event_type,
  failure_class, error_class, error_message, stack, fingerprint, attempts, state, parked_at, original_value)
SELECT gen_random_uuid(), 'group-' || mod(n, %(groups)s), 'h', 'topic-' || mod(n, 7), 0, n, 'key#' || mod(n, 1000),
  'type-' || mod(n, 5), 'permanent', 'Error' || mod(n, 11), '', '', to_char(mod(n, 13), 'FM0000'), 1,
  CASE WHEN mod(n, %(every)s) = 0 THEN 'discarded' ELSE 'parked' END,
  timestamptz '2026-11-30 10:00+00' + make_interval(secs => n / 3), %(value)s
FROM generate_series(1, %(rows)s) n
"""


def fill(rows, *, groups=1, every=1_000_000, value=b"x"):
    with connection.cursor() as cursor:
        cursor.execute(FILL, {"rows": rows, "groups": groups, "every": every, "value": value})


def walk(wanted, limit, *, back=False, sort=LetterSort.NEWEST):
    """Follow the links of the pages; returns the offsets in the order of the list."""
    cursor, pages = None, []
    while True:
        page = list_dead_letters(wanted, cursor=cursor, limit=limit, sort=sort)
        pages.append(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    if not back:
        return [row.offset for page in pages for row in page.rows]
    backwards = [pages[-1]]
    while backwards[-1].previous_cursor:
        cursor = backwards[-1].previous_cursor
        backwards.append(list_dead_letters(wanted, cursor=cursor, limit=limit, sort=sort))
    return [row.offset for page in reversed(backwards) for row in page.rows]


def test_pages_cover_every_row_once_in_both_directions():
    fill(25)
    expected = [d.offset for d in DeadLetter.objects.order_by("-parked_at", "-id")]
    assert walk(DeadLetterFilter(), 4) == expected
    assert sorted(walk(DeadLetterFilter(), 4, back=True)) == sorted(expected)
    assert walk(DeadLetterFilter(), 25) == expected


def test_the_first_page_has_nothing_before_it_and_the_last_nothing_after_it():
    fill(10)
    first = list_dead_letters(DeadLetterFilter(), limit=5)
    last = list_dead_letters(DeadLetterFilter(), cursor=first.next_cursor, limit=5)
    assert (first.previous_cursor, last.next_cursor) == (None, None)
    back = list_dead_letters(DeadLetterFilter(), cursor=last.previous_cursor, limit=5)
    assert [r.id for r in back.rows] == [r.id for r in first.rows]
    assert back.previous_cursor is None


def test_a_row_that_is_parked_meanwhile_moves_no_page():
    fill(10)
    first = list_dead_letters(DeadLetterFilter(), limit=5)
    with connection.cursor() as cursor:
        cursor.execute(FILL.replace("generate_series(1, %(rows)s)", "generate_series(900, 902)"),
                       {"groups": 1, "every": 10**6, "value": b"x"})  # fmt: skip
    second = list_dead_letters(DeadLetterFilter(), cursor=first.next_cursor, limit=5)
    assert {r.id for r in first.rows} & {r.id for r in second.rows} == set()
    assert len(second.rows) == 5


@pytest.mark.parametrize(
    "wanted",
    [
        DeadLetterFilter(group="group-1"),
        DeadLetterFilter(topic="topic-3"),
        DeadLetterFilter(event_type="type-2"),
        DeadLetterFilter(error_class="Error4"),
        DeadLetterFilter(fingerprint="0005"),
        DeadLetterFilter(key_label="key#17"),
        DeadLetterFilter(state="discarded"),
        DeadLetterFilter(state="", topic="topic-1", group="group-2"),
    ],
)
def test_each_filter_shows_exactly_its_rows(wanted):
    fill(300, groups=3, every=10)
    kept = {
        name: value
        for name in ("group", "topic", "event_type", "error_class", "fingerprint", "state", "key_label")
        if (value := getattr(wanted, name))
    }
    expected = [d.offset for d in DeadLetter.objects.filter(**kept).order_by("-parked_at", "-id")]
    assert expected
    assert walk(wanted, 7) == expected


ORDERS = {
    LetterSort.NEWEST: ("-parked_at", "-id"),
    LetterSort.OLDEST: ("parked_at", "id"),
    LetterSort.TRIES: ("-attempts", "-parked_at", "-id"),
    LetterSort.PLACE: ("topic", "partition", "offset", "id"),
}


@pytest.mark.parametrize("sort", list(LetterSort))
@pytest.mark.parametrize("state", ["parked", ""])
def test_each_order_covers_every_row_once_in_both_directions(sort, state):
    fill(60, every=4)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE dlq_dead_letter SET attempts = 1 + mod(log_offset, 3)")
    kept = DeadLetter.objects.filter(**({"state": state} if state else {}))
    expected = [d.offset for d in kept.order_by(*ORDERS[sort])]
    assert walk(DeadLetterFilter(state=state), 7, sort=sort) == expected
    assert sorted(walk(DeadLetterFilter(state=state), 7, sort=sort, back=True)) == sorted(expected)


def test_a_link_of_another_order_is_refused_in_words():
    fill(10)
    page = list_dead_letters(DeadLetterFilter(), limit=5)
    with pytest.raises(BadCursor, match="another order"):
        list_dead_letters(DeadLetterFilter(), cursor=page.next_cursor, limit=5, sort=LetterSort.OLDEST)


def test_a_failure_group_lists_its_fingerprints_as_one_list():
    fill(300)
    merge_group(find_group_of("0003"), into=find_group_of("0005"), expected_version=0, actor="ada")
    expected = [
        d.offset for d in DeadLetter.objects.filter(fingerprint__in=["0003", "0005"]).order_by("-parked_at", "-id")
    ]
    wanted = DeadLetterFilter(failure_group=find_group_of("0005"))
    assert walk(wanted, 7) == expected
    assert walk(DeadLetterFilter(failure_group=find_group_of("0005"), state=""), 7) == expected
    assert walk(DeadLetterFilter(failure_group=find_group_of("0001")), 30) == walk(
        DeadLetterFilter(fingerprint="0001"), 30
    )
    assert walk(DeadLetterFilter(failure_group=10**12), 7) == []


def test_replays_need_of_a_person_and_an_end_of_time_narrow_the_list():
    fill(30)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE dlq_dead_letter SET replays = 3, needs_human = true WHERE log_offset = 7")
        cursor.execute("UPDATE dlq_dead_letter SET replays = 1 WHERE log_offset = 9")
    assert walk(DeadLetterFilter(replays=1), 5) == [9, 7]
    assert walk(DeadLetterFilter(replays=2), 5) == walk(DeadLetterFilter(needs_human=True), 5) == [7]
    middle = DeadLetter.objects.get(offset=12).parked_at
    assert set(walk(DeadLetterFilter(until=middle), 50)) | set(walk(DeadLetterFilter(since=middle), 50)) == set(
        range(1, 31)
    )
    assert not set(walk(DeadLetterFilter(until=middle), 50)) & set(walk(DeadLetterFilter(since=middle), 50))


def test_rows_since_a_time():
    fill(30)
    newest = DeadLetter.objects.order_by("-parked_at").first().parked_at
    shown = list_dead_letters(DeadLetterFilter(since=newest - timedelta(seconds=2)), limit=100).rows
    assert 0 < len(shown) < 30
    assert all(row.parked_at >= newest - timedelta(seconds=2) for row in shown)


@pytest.mark.parametrize(
    "text", ["x", "....", "bm9wZQ", "é", "A" * 5000, base64.urlsafe_b64encode(b'["newer"]').decode()]
)
def test_a_damaged_link_is_refused_in_words(text):
    with pytest.raises(BadCursor, match="start at the first page"):
        list_dead_letters(DeadLetterFilter(), cursor=text, limit=5)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.text(min_size=1) | st.binary(min_size=1).map(lambda b: base64.urlsafe_b64encode(b).decode()))
def test_no_link_whatever_makes_anything_else_than_a_clear_error(text):
    with pytest.raises(BadCursor):
        list_dead_letters(DeadLetterFilter(), cursor=text, limit=5)


def test_a_filter_that_cannot_be_is_refused_in_words():
    with pytest.raises(BadFilter, match="states are parked"):
        list_dead_letters(DeadLetterFilter(state="lost' OR true --"), limit=5)
    with pytest.raises(BadFilter, match="NUL"):
        list_dead_letters(DeadLetterFilter(topic="a\0"), limit=5)
    assert list_dead_letters(DeadLetterFilter(topic="' OR true --"), limit=5).rows == []


@pytest.fixture(scope="module")
def many(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock():
        fill(50_000, groups=5, every=20)
        merge_group(find_group_of("0003"), into=find_group_of("0005"), expected_version=0, actor="ada")
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE dlq_dead_letter")
        yield find_group_of("0005")
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE dlq_dead_letter CASCADE")
            cursor.execute("TRUNCATE dlq_failure_group")


MERGED = -1  # stands for the failure group of two fingerprints
FEW_BLOCKS = 600  # of about 1,800 that a scan would read


@pytest.mark.parametrize(
    "wanted",
    [
        DeadLetterFilter(),
        DeadLetterFilter(state=""),
        DeadLetterFilter(group="group-1"),
        DeadLetterFilter(topic="topic-1", group="group-1"),
        DeadLetterFilter(fingerprint="0005"),
        DeadLetterFilter(key_label="key#17"),
        DeadLetterFilter(error_class="Error4"),
        DeadLetterFilter(event_type="type-2"),
        DeadLetterFilter(group="nobody"),
        DeadLetterFilter(state="discarded", fingerprint="0005"),
        DeadLetterFilter(state="", topic="topic-1"),
        DeadLetterFilter(state="", failure_group=MERGED),
        DeadLetterFilter(failure_group=MERGED),
        DeadLetterFilter(replays=1),
        DeadLetterFilter(needs_human=True),
    ],
)
@pytest.mark.parametrize("place", [None, "on", "back"])
@pytest.mark.parametrize("sort", [LetterSort.NEWEST, LetterSort.OLDEST])
def test_a_page_of_50000_rows_stays_on_its_index_and_reads_few_blocks(many, wanted, place, sort):
    if wanted.failure_group == MERGED:
        wanted = replace(wanted, failure_group=many)
    cursor = None
    if place:
        middle = DeadLetter.objects.get(offset=25_000)
        cursor = queries._Cursor(sort, place == "back", (middle.parked_at, middle.id))
    sql, values = queries.build_list_query(wanted, cursor, 51, sort)
    plan, blocks = explain(sql, values)
    assert re.search(r"Index Scan.* dlq_dl_", plan), plan
    assert "Seq Scan" not in plan, plan
    assert blocks < FEW_BLOCKS, plan


@pytest.mark.parametrize("sort", [LetterSort.TRIES, LetterSort.PLACE])
@pytest.mark.parametrize("state", ["parked", ""])
def test_the_other_orders_of_50000_rows_stay_on_their_indexes_too(many, sort, state):
    sql, values = queries.build_list_query(DeadLetterFilter(state=state), None, 51, sort)
    plan, blocks = explain(sql, values)
    assert re.search(r"Index Scan.* dlq_dl_by_", plan), plan
    assert "Seq Scan" not in plan, plan
    assert blocks < FEW_BLOCKS, plan


def explain(sql, values=()):
    with connection.cursor() as db:
        db.execute("EXPLAIN (ANALYZE, BUFFERS) " + sql, values)
        plan = "\n".join(line for (line,) in db.fetchall())
    top = re.search(r"Buffers: shared (?:hit=(\d+))?(?: ?read=(\d+))?", plan)
    return plan, sum(int(n or 0) for n in top.groups())


def test_the_age_of_the_oldest_of_50000_rows_is_one_index_probe(many):
    plan, blocks = explain("SELECT min(parked_at) FROM dlq_dead_letter WHERE state = 'parked'")
    assert re.search(r"Index (Only )?Scan Backward using dlq_dl_", plan), plan
    assert blocks < 60, plan
