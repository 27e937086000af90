"""What the watch reads of lag: the partitions that need somebody, and the largest lag; not every partition there is."""

import pytest
from django.db import connection
from django.utils import timezone

from relay.facade import get_lag_state, get_lag_troubles
from relay.models import LagGroup, LagLatest, LagPass
from relay.types import LagWord

pytestmark = pytest.mark.django_db


def add(group, partition, word, *, lag=0, error=""):
    LagGroup.objects.get_or_create(
        name=group, defaults={"state": "Stable", "protocol": "classic", "members": 1, "at": timezone.now()}
    )
    LagLatest.objects.create(
        group=group, topic="t", partition=partition, at=timezone.now(), committed=100, begin=0, end=100 + lag,
        error=error, word=word.value, reason="r", trend="steady", drain_words="now", first_seen_at=timezone.now(),
    )  # fmt: skip


@pytest.fixture
def a_pass(db):
    LagPass.objects.create(id=1, epoch=1, collector="w", finished_at=timezone.now(), pass_s=0.1, interval_s=600)


def places(overview):
    return {(g.group, p.partition) for g in overview.groups for p in g.partitions}


def test_calm_partitions_are_left_out_but_for_the_one_with_the_most_lag(a_pass):
    for partition in range(5):
        add("calm", partition, LagWord.OK, lag=partition)
    add("sick", 0, LagWord.STALLED, lag=3)
    add("sick", 1, LagWord.OK)
    add("sick", 2, LagWord.UNKNOWN, error="no leader")
    found = get_lag_troubles()
    assert places(found) == {("calm", 4), ("sick", 0), ("sick", 2)}
    verdicts = {g.group: g.verdict.word for g in found.groups}
    assert verdicts == {"calm": LagWord.OK, "sick": LagWord.STALLED}
    assert len(places(get_lag_state())) == 8


def test_every_word_that_opens_an_incident_is_read(a_pass):
    for partition, word in enumerate(LagWord):
        add("g", partition, word, lag=1 if word is LagWord.OK else 0)
    read = {p.verdict.word for g in get_lag_troubles().groups for p in g.partitions}
    assert read == set(LagWord) - {LagWord.IDLE, LagWord.UNKNOWN}


def test_with_many_calm_partitions_it_makes_no_row_of_them(a_pass, django_assert_num_queries):
    LagGroup.objects.create(name="wide", state="Stable", protocol="classic", members=1, at=timezone.now())
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_lag_latest (group_name, topic, partition, at, committed, begin_offset, end_offset,"
            " error, word, reason, trend, drain_words, time_lag_estimated, recent, first_seen_at)"
            " SELECT 'wide', 't', n, now(), 1, 0, 1, '', 'ok', 'r', 'steady', 'now', false, '[]', now()"
            " FROM generate_series(1, 2000) n"
        )
    with django_assert_num_queries(4):
        assert len(places(get_lag_troubles())) == 1
