"""Failure groups: exact counts whoever writes dead letters, windows, what people say of a group, merge and split."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dlq.domain.triage import GroupFilter, GroupShow, GroupSort, GroupState
from dlq.triage import (
    BadGroupChange,
    BadGroupQuery,
    NoSuchGroup,
    StaleGroup,
    describe_group,
    find_group,
    get_failure_group,
    list_failure_groups,
    list_fingerprints,
    mark_group_fixed,
    merge_group,
    reopen_group,
    snooze_group,
    split_group,
)
from dlq.triage_counts import fold_counts

pytestmark = pytest.mark.django_db

FILL = """
INSERT INTO dlq_dead_letter (id, group_name, handler, topic, partition, log_offset, key_label, event_type,
  failure_class, error_class, error_message, stack, fingerprint, attempts, state, parked_at)
SELECT gen_random_uuid(), 'workers', 'triage', 'topic-' || mod(n, 2), 0, n, 'key#' || mod(n, 50), 'claim.opened',
  'permanent', 'Error' || mod(n, %(causes)s), '', '', to_char(mod(n, %(causes)s), 'FM0000'), 1, 'parked',
  clock_timestamp() - make_interval(secs => n * %(every_s)s)
FROM generate_series(%(first)s, %(last)s) n
"""


def fill(last, *, first=1, causes=3, every_s=1.0):
    with connection.cursor() as cursor:
        cursor.execute(FILL, {"first": first, "last": last, "causes": causes, "every_s": every_s})


def run(sql, values=()):
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall() if cursor.description else cursor.rowcount


COUNTED = "SELECT fingerprint, topic, state, sum(n)::int FROM dlq_group_count GROUP BY 1, 2, 3 HAVING sum(n) <> 0"
THERE = "SELECT fingerprint, topic, state, count(*)::int FROM dlq_dead_letter GROUP BY 1, 2, 3"
BUCKETED = "SELECT fingerprint, sum(n)::int FROM dlq_group_bucket GROUP BY 1 HAVING sum(n) <> 0"
PARKED = "SELECT fingerprint, count(*)::int FROM dlq_dead_letter GROUP BY 1"


def assert_counts_are_right():
    assert sorted(run(COUNTED)) == sorted(run(THERE))
    assert sorted(run(BUCKETED)) == sorted(run(PARKED))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE dlq_dead_letter SET state = 'applied' WHERE log_offset < 20",
        "UPDATE dlq_dead_letter SET state = 'discarded', attempts = attempts + 1 WHERE fingerprint = '0001'",
        "UPDATE dlq_dead_letter SET fingerprint = 'new' WHERE log_offset BETWEEN 5 AND 9",
        "UPDATE dlq_dead_letter SET parked_at = parked_at - interval '3 h' WHERE log_offset > 50",
        "UPDATE dlq_dead_letter SET event_type = 'x'",
        "UPDATE dlq_dead_letter SET state = 'applied' WHERE false",
        "DELETE FROM dlq_dead_letter WHERE mod(log_offset, 4) = 0",
        "TRUNCATE dlq_dead_letter CASCADE",
    ],
)
def test_counts_follow_whatever_is_done_to_dead_letters(change):
    fill(60)
    assert_counts_are_right()
    run(change)
    assert_counts_are_right()


# -- Folding -----------------------------------------------------------------------------------------------
def test_folding_changes_no_number_and_leaves_few_rows():
    fill(900, every_s=60)
    for first in range(901, 1_001):
        fill(first, first=first)
    before = list_failure_groups(GroupFilter(), limit=10).groups
    fold_counts()
    after = list_failure_groups(GroupFilter(), limit=10).groups
    assert [(g.number, g.open, [w.parked for w in g.windows], g.hours, g.last_seen_at) for g in before] == [
        (g.number, g.open, [w.parked for w in g.windows], g.hours, g.last_seen_at) for g in after
    ]
    assert_counts_are_right()
    assert run("SELECT count(*) FROM dlq_group_count")[0][0] == 6
    assert run("SELECT count(*) FROM dlq_group_bucket WHERE grain = 0")[0][0] == 0
    assert run("SELECT count(*) FROM dlq_group_bucket")[0][0] < 3 * (4 * 6 + 8 + 15)
    fold_counts()
    assert_counts_are_right()


def test_folding_in_bounded_steps_reaches_everything(settings):
    settings.DLQ_FOLD_ROWS = 3
    for n in range(1, 20):
        fill(n, first=n)
    fold_counts()
    assert run("SELECT count(*) FROM dlq_group_count WHERE NOT is_folded")[0][0] == 0
    assert_counts_are_right()


def test_buckets_beyond_their_retention_are_forgotten_and_totals_stay():
    fill(10, every_s=86_400)
    fold_counts()
    assert run("SELECT count(*) FROM dlq_group_bucket WHERE bucket < now() - interval '8 d'")[0][0] == 0
    assert list_failure_groups(GroupFilter(), limit=10).open == 10


# -- Windows -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fold", [False, True])
def test_each_number_of_the_windows_is_what_its_link_lists(fold):
    fill(2_000, every_s=400)
    run("UPDATE dlq_dead_letter SET state = 'discarded' WHERE mod(log_offset, 5) = 0")
    if fold:
        fold_counts()
    groups = list_failure_groups(GroupFilter(), limit=10).groups
    assert len(groups) == 3
    for group in groups:
        for window in group.windows:
            there = run(
                "SELECT count(*) FROM dlq_dead_letter WHERE fingerprint = %s AND parked_at >= %s",
                [group.fingerprint, window.since],
            )
            assert window.parked == there[0][0] > 0, (group.label, window.label)
        assert sum(n for _, n in group.hours) > 0


# -- The list ----------------------------------------------------------------------------------------------
def walk(wanted, limit):
    page = list_failure_groups(wanted, limit=limit)
    found = list(page.groups)
    while page.next_cursor:
        page = list_failure_groups(wanted, cursor=page.next_cursor, limit=limit)
        found += page.groups
    return found


@pytest.mark.parametrize("sort", list(GroupSort))
def test_every_order_lists_each_group_once_over_its_pages(sort):
    fill(200, causes=17)
    fill(230, first=201, causes=4)
    found = walk(GroupFilter(sort=sort), 5)
    assert len({g.number for g in found}) == len(found) == 17
    values = {
        GroupSort.OPEN: [g.open for g in found],
        GroupSort.TOTAL: [g.total for g in found],
        GroupSort.LAST: [g.last_seen_at for g in found],
        GroupSort.FIRST: [g.first_seen_at for g in found],
    }[sort]
    assert values == sorted(values, reverse=True)


def test_groups_with_nothing_open_are_listed_only_when_every_one_is_wanted():
    fill(9)
    run("UPDATE dlq_dead_letter SET state = 'applied' WHERE fingerprint = '0002'")
    assert {g.fingerprint for g in walk(GroupFilter(), 10)} == {"0000", "0001"}
    gone = next(g for g in walk(GroupFilter(show=GroupShow.ALL), 10) if g.fingerprint == "0002")
    assert (gone.state, gone.open, gone.applied, gone.total) == (GroupState.DONE, 0, 3, 3)


def test_topic_and_text_narrow_the_list():
    fill(12, causes=4)
    assert [g.open for g in walk(GroupFilter(topic="topic-1"), 10)] == [3, 3]
    assert [g.error_class for g in walk(GroupFilter(text="rror3"), 10)] == ["Error3"]
    assert walk(GroupFilter(text="%"), 10) == []
    assert walk(GroupFilter(group="nobody"), 10) == []


@pytest.mark.parametrize("text", ["x", "é", "A" * 90, "WyJvcGVuIiwgMSwgMV0x", "WyJsYXN0IiwgMSwgMV0"])
def test_a_damaged_link_of_the_list_is_refused_in_words(text):
    with pytest.raises(BadGroupQuery, match="start at the first page"):
        list_failure_groups(GroupFilter(), cursor=text, limit=5)


# -- What people say ---------------------------------------------------------------------------------------
def only():
    (group,) = list_failure_groups(GroupFilter(show=GroupShow.ALL), limit=10).groups
    return group


def test_what_is_said_of_a_group_is_kept_with_who_said_it():
    fill(2, causes=1)
    group = only()
    describe_group(
        group.number, name="Field missing", owner="t.wolski", note="see the change", expected_version=0, actor="ada"
    )
    changed = only()
    assert (changed.title, changed.owner, changed.note) == ("Field missing", "t.wolski", "see the change")
    assert (changed.version, changed.changed_by) == (1, "ada")


def test_a_change_made_from_an_old_look_is_refused_and_changes_nothing():
    fill(2, causes=1)
    number = only().number
    snooze_group(number, for_s=3_600, expected_version=0, actor="ada")
    with pytest.raises(StaleGroup, match="Look again"):
        mark_group_fixed(number, fixed_in="2.0", expected_version=0, actor="bob")
    assert only().state is GroupState.SNOOZED
    with pytest.raises(NoSuchGroup):
        reopen_group(number + 1_000, expected_version=0, actor="bob")


def test_a_snoozed_group_is_out_of_the_way_until_its_time_is_over():
    fill(4, causes=2)
    first, second = walk(GroupFilter(), 10)
    snooze_group(first.number, for_s=3_600, expected_version=0, actor="ada")
    page = list_failure_groups(GroupFilter(), limit=10)
    assert ([g.number for g in page.groups], page.snoozed) == ([second.number], 1)
    assert [g.number for g in walk(GroupFilter(show=GroupShow.SNOOZED), 10)] == [first.number]
    run("UPDATE dlq_failure_group SET snoozed_until = clock_timestamp() WHERE number = %s", [first.number])
    assert {g.number for g in walk(GroupFilter(), 10)} == {first.number, second.number}


def test_a_fixed_group_comes_back_when_something_fails_after_that_moment():
    fill(3, causes=1)
    number = only().number
    mark_group_fixed(number, fixed_in="2.14.1", expected_version=0, actor="ada")
    assert only().state is GroupState.FIXED
    run("UPDATE dlq_dead_letter SET event_type = 'other'")
    assert only().state is GroupState.FIXED
    fill(4, first=4, causes=1, every_s=0)
    assert only().state is GroupState.CAME_BACK
    mark_group_fixed(number, fixed_in="2.14.2", expected_version=1, actor="ada")
    assert only().state is GroupState.FIXED


def test_a_replay_that_fails_again_brings_a_fixed_group_back_and_one_that_is_restored_does_not():
    fill(3, causes=1)
    mark_group_fixed(only().number, fixed_in="2.14.1", expected_version=0, actor="ada")
    run("UPDATE dlq_dead_letter SET state = 'discarded' WHERE log_offset = 1")
    run("UPDATE dlq_dead_letter SET state = 'parked' WHERE log_offset = 1")
    assert only().state is GroupState.FIXED
    run("UPDATE dlq_dead_letter SET attempts = attempts + 1 WHERE log_offset = 2")
    assert only().state is GroupState.CAME_BACK
    assert only().open == 3


@pytest.mark.parametrize(("seconds", "is_fine"), [(30, False), (3_600, True), (40 * 86_400, False)])
def test_a_snooze_is_bounded(seconds, is_fine):
    fill(1, causes=1)
    if not is_fine:
        with pytest.raises(BadGroupChange, match="30 days at most"):
            snooze_group(only().number, for_s=seconds, expected_version=0, actor="ada")
    else:
        snooze_group(only().number, for_s=seconds, expected_version=0, actor="ada")


# -- Merge and split ---------------------------------------------------------------------------------------
def test_merged_groups_count_as_one_and_split_ones_as_before():
    fill(9, causes=3)
    a, b, _ = sorted(walk(GroupFilter(), 10), key=lambda g: g.number)
    describe_group(a.number, name="", owner="", note="a knows", expected_version=0, actor="ada")
    merge_group(a.number, into=b.number, expected_version=1, actor="ada")
    merged = get_failure_group(b.number)
    assert (merged.group.open, merged.group.merged, len(merged.members)) == (6, 1, 2)
    assert [m.note for m in merged.members if m.number == a.number] == ["a knows"]
    assert get_failure_group(a.number) is None
    assert find_group(a.number) == b.number
    assert len(walk(GroupFilter(), 10)) == 2
    with pytest.raises(StaleGroup, match=f"merged into G-{b.number}"):
        snooze_group(a.number, for_s=600, expected_version=2, actor="ada")
    split_group(a.number, of=b.number, expected_version=merged.group.version, actor="ada")
    assert get_failure_group(a.number).group.open == get_failure_group(b.number).group.open == 3
    assert get_failure_group(a.number).group.note == "a knows"


def test_a_merged_group_takes_its_own_members_along_and_stays_bounded(settings):
    fill(8, causes=4)
    a, b, c, d = sorted(g.number for g in walk(GroupFilter(), 10))
    merge_group(a, into=b, expected_version=0, actor="ada")
    merge_group(b, into=c, expected_version=1, actor="ada")
    assert get_failure_group(c).group.merged == 2
    assert len(list_fingerprints(c)) == 3
    settings.DLQ_GROUP_MEMBERS_MAX = 3
    with pytest.raises(BadGroupChange, match="at most 3"):
        merge_group(d, into=c, expected_version=0, actor="ada")
    with pytest.raises(BadGroupChange, match="no group of its own"):
        merge_group(d, into=a, expected_version=0, actor="ada")
    with pytest.raises(BadGroupChange, match="into itself"):
        merge_group(d, into=d, expected_version=0, actor="ada")
    assert get_failure_group(d).group.version == 0


# -- Cost --------------------------------------------------------------------------------------------------
def test_no_statement_of_the_groups_reads_dead_letters():
    fill(30)
    with CaptureQueriesContext(connection) as said:
        for sort in GroupSort:
            list_failure_groups(GroupFilter(sort=sort, text="Err", topic="topic-1"), limit=10)
        get_failure_group(walk(GroupFilter(), 10)[0].number)
    assert len(said) > 10
    assert not [query["sql"] for query in said if "dlq_dead_letter" in query["sql"]]


def test_what_only_waits_behind_another_record_brings_no_fixed_group_back():
    fill(2, causes=1)
    mark_group_fixed(only().number, fixed_in="2.14.1", expected_version=0, actor="ada")
    behind = FILL.replace("'permanent'", "'behind'")
    run(behind, {"first": 3, "last": 3, "causes": 1, "every_s": 0.0})
    assert (only().open, only().state) == (3, GroupState.FIXED)
    fill(4, first=4, causes=1, every_s=0)
    assert only().state is GroupState.CAME_BACK
