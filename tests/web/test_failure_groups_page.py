"""Failure groups: the table of windows whose numbers are links, what people say of a group, and who may say it."""

import re

import pytest
from django.db import connection

from console.models import AuditEntry
from dlq.facade import find_group_of
from tests.integration.test_failure_groups import fill
from tests.web.pages import EVIL, words_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(as_role):
    return as_role("viewer")


@pytest.fixture
def on_call(as_role):
    return as_role("on-call")


def group_of(fingerprint):
    return f"/dead-letters/groups/{find_group_of(fingerprint)}/"


def links(response):
    """The numbers of the table with where they lead."""
    found = re.findall(
        r'num-link[^"]*"\s+href="([^"]+)">(?:<span class="vh">[^<]*</span>)?(?:<b>)?([\d,]+)', response.content.decode()
    )
    return [(url.replace("&amp;", "&"), int(count.replace(",", ""))) for url, count in found]


def listed(response):
    return len(re.findall(r"data-row", response.content.decode()))


def test_every_number_of_the_table_opens_a_list_of_as_many(viewer, settings):
    settings.LIST_PAGE_ROWS = 100
    fill(90, every_s=1_500)
    found = links(viewer.get("/dead-letters/groups/"))
    assert len(found) == 3 * 6
    for url, count in found:
        assert listed(viewer.get(url)) == count, url


def test_no_groups_at_all_says_what_that_means(viewer):
    assert "Nothing is open" in words_of(viewer.get("/dead-letters/groups/"))


def test_the_page_of_a_group_has_its_cause_and_where_its_open_ones_are(viewer):
    fill(10, causes=1)
    words = words_of(viewer.get(group_of("0000")))
    assert "10 open of 10" in words
    assert "topic-0 workers" in words
    assert words_of(viewer.get("/dead-letters/groups/999999999/")).startswith("Failure groups / one")


@pytest.mark.parametrize(
    ("act", "data", "said"),
    [
        ("describe", {"name": "Field missing", "owner": "t.wolski", "note": "see the change"}, "Field missing"),
        ("snooze", {"for": "14400"}, "snoozed"),
        ("fixed", {"fixed_in": "2.14.1"}, "fixed"),
        ("reopen", {}, "Reopen"),
    ],
)
def test_an_act_is_done_once_audited_and_refused_from_an_old_page(on_call, act, data, said):
    fill(3, causes=1)
    url = group_of("0000")
    assert act == "describe" or on_call.get(f"{url}{act}/").status_code == 200
    assert on_call.post(f"{url}{act}/", {"seen": "0", **data}).status_code == 303
    assert AuditEntry.objects.get().object_id == f"G-{find_group_of('0000')}"
    assert act == "reopen" or said in words_of(on_call.get(url))
    assert on_call.post(f"{url}{act}/", {"seen": "0", **data}).status_code == 409
    assert AuditEntry.objects.count() == 1


def test_a_viewer_may_look_but_not_say(viewer):
    fill(3, causes=1)
    url = group_of("0000")
    assert "this needs on-call, support or admin" in words_of(viewer.get(url))
    for act in ("describe", "snooze", "fixed", "reopen", "merge", "split"):
        assert viewer.post(f"{url}{act}/", {"seen": "0"}).status_code == 403
    assert not AuditEntry.objects.exists()


def test_two_groups_are_merged_and_split_again(on_call):
    fill(6, causes=2)
    a, b = find_group_of("0000"), find_group_of("0001")
    answer = on_call.post(f"/dead-letters/groups/{a}/merge/", {"seen": "0", "into": f"g-{b}"})
    assert answer["Location"] == f"/dead-letters/groups/{b}/"
    assert on_call.get(f"/dead-letters/groups/{a}/")["Location"] == f"/dead-letters/groups/{b}/"
    assert "2 fingerprints count as one" in words_of(on_call.get(f"/dead-letters/groups/{b}/"))
    assert on_call.get(f"/dead-letters/groups/{b}/split/?part={a}").status_code == 200
    on_call.post(f"/dead-letters/groups/{b}/split/", {"seen": "1", "part": str(a)})
    assert on_call.get(f"/dead-letters/groups/{a}/").status_code == 200


@pytest.mark.parametrize(
    ("act", "data", "said"),
    [
        ("fixed", {"fixed_in": " "}, "Name the version"),
        ("snooze", {"for": "5"}, "Choose for how long"),
        ("merge", {"into": "the other"}, "for example G-118"),
        ("merge", {"into": "G-99999999"}, "is no group of its own"),
        ("describe", {"note": "x" * 2_001}, "At most 2000 characters"),
    ],
)
def test_what_cannot_be_is_refused_in_words_and_changes_nothing(on_call, act, data, said):
    fill(3, causes=1)
    answer = on_call.post(f"{group_of('0000')}{act}/", {"seen": "0", **data})
    assert answer.status_code == 422
    assert said in words_of(answer)
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"cursor": "nonsense"}, "page link is damaged"),
        ({"show": "lost"}, "show can be todo, snoozed, open or all"),
        ({"sort": "colour"}, "sort can be open, last, first or total"),
        ({"q": "a\x00b"}, "q holds a character"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_in_words(viewer, query, said):
    response = viewer.get("/dead-letters/groups/", query)
    assert response.status_code == 422
    assert said in words_of(response)


def test_hostile_texts_are_escaped(on_call):
    fill(1, causes=1)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE dlq_failure_group SET error_class = %s, handler = %s, note = %s", [EVIL] * 3)
    for url in ("/dead-letters/groups/", group_of("0000"), f"{group_of('0000')}snooze/"):
        page = on_call.get(url)
        assert EVIL.encode() not in page.content
        assert b"&lt;script&gt;" in page.content


def test_groups_that_cannot_be_read_are_a_fault_and_not_an_empty_table(viewer, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("boom")

    monkeypatch.setattr("console.views.failure_groups.list_failure_groups", fail)
    words = words_of(viewer.get("/dead-letters/groups/"))
    assert "The failure groups could not be read" in words
    assert "Nothing is open" not in words
