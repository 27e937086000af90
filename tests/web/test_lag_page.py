"""The Lag page: every state of it, its filters, its bounds, and who may see and change what."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from django.conf import settings
from django.utils import timezone

from console.models import AuditEntry
from dlq.models import Waiting
from relay.facade import collect_lag, get_allowed_lag
from relay.types import LagWord
from tests.topics import create_topic
from tests.web.pages import EVIL, NOW, group, overview, partition, words_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def show(monkeypatch):
    """Let the page read this overview: for states that a test cannot bring about for real."""

    def put(found):
        def read():
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr("console.views.lag.get_lag_overview", read)

    return put


@pytest.fixture
def viewer(as_role):
    return as_role("viewer")


# -- On real parts -----------------------------------------------------------------------------------------
@pytest.fixture
def real_group():
    """A topic with 12 records in two partitions, and a group that has committed 5 of one of them."""
    name = f"pages-{uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})
    create_topic(name, 2)
    producer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})
    for _ in range(12):
        producer.produce(name, b"x", partition=0)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS, "group.id": name})
    consumer.commit(offsets=[TopicPartition(name, 0, 5)], asynchronous=False)
    consumer.close()
    yield name
    for future in [*admin.delete_topics([name]).values(), *admin.delete_consumer_groups([name]).values()]:
        future.exception()


def test_a_real_group_appears_with_its_offsets_after_a_pass(viewer, real_group):
    collect_lag()
    words = words_of(viewer.get("/lag/", {"group": real_group}))
    assert f"{real_group} 0" in words
    row = words.split(f"{real_group} 0 ")[1]
    assert "5 12" in row  # committed and end
    assert "0 members" in words
    assert "as of" in words


def test_a_real_groups_own_page_draws_its_history(viewer, real_group):
    collect_lag()
    response = viewer.get("/lag/history/", {"group": real_group, "topic": real_group})
    assert response.status_code == 200
    assert b'class="chart-line"' in response.content
    assert "The same as a table" in words_of(response)


def test_before_the_first_pass_the_page_says_what_that_means(viewer):
    words = words_of(viewer.get("/lag/"))
    assert "No pass has finished yet" in words
    assert "beat starts the collector" in words


def test_a_groups_page_says_which_key_holds_a_partition_and_why(viewer, real_group):
    collect_lag()
    Waiting.objects.create(
        group=real_group,
        topic=real_group,
        partition=0,
        offset=5,
        key_label="key#3fa81c20",
        handler="a.handler",
        attempts=2,
        first_failed_at=timezone.now(),
        due_at=timezone.now() + timedelta(minutes=3),
        failure_class="transient",
        error_class="ConnectionError",
    )
    page = words_of(viewer.get("/lag/history/", {"group": real_group}))
    assert f"{real_group} 0: held by key#3fa81c20 at offset 5 until " in page
    assert "after 2 tries that failed, the last with ConnectionError. 1 record waits." in page


def test_an_admin_sets_the_allowed_lag_and_it_is_audited(as_role, real_group):
    collect_lag()
    admin = as_role("admin")
    page = f"/lag/history/?group={real_group}"
    response = admin.post("/lag/allowed/", {"group": real_group, "value": "120", "seen": "50", "next": page})
    assert (response.status_code, response.url) == (303, page)
    assert get_allowed_lag(real_group) == 120
    assert AuditEntry.objects.get().object_id == real_group
    assert f"The allowed lag of {real_group} is 120 now" in words_of(admin.get(page))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("", "Type a number of offsets"),
        ("many", "Type a whole number"),
        ("1.5", "Type a whole number"),
        ("-1", "cannot be negative"),
        ("99999999999", "At most 1,000,000,000"),
    ],
)
def test_an_allowed_lag_that_cannot_be_used_shows_the_form_again(as_role, real_group, typed, said):
    collect_lag()
    response = as_role("admin").post("/lag/allowed/", {"group": real_group, "value": typed})
    assert response.status_code == 422
    assert said in words_of(response)
    assert f'value="{typed or 50}"'.encode() in response.content
    assert b'aria-invalid="true"' in response.content
    assert get_allowed_lag(real_group) == settings.LAG_ALLOWED_DEFAULT
    assert not AuditEntry.objects.exists()


def test_a_form_that_saw_another_value_is_refused(as_role, real_group):
    collect_lag()
    response = as_role("admin").post("/lag/allowed/", {"group": real_group, "value": "120", "seen": "70"})
    assert response.status_code == 409
    assert get_allowed_lag(real_group) == settings.LAG_ALLOWED_DEFAULT


@pytest.mark.parametrize("role", ["viewer", "on-call", "support"])
def test_others_see_the_form_with_the_reason_and_cannot_post_it(as_role, show, role):
    show(overview(group()))
    person = as_role(role)
    words = words_of(person.get("/lag/history/", {"group": "claim-workers"}))
    assert f"You are in {role}; this needs admin." in words
    assert person.post("/lag/allowed/", {"group": "claim-workers", "value": "1"}).status_code == 403
    assert person.post("/lag/allowed/", {}).status_code == 403


# -- Every state -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", ["viewer", "on-call", "support", "admin"])
def test_every_role_sees_the_page(as_role, show, role):
    show(overview(group()))
    assert as_role(role).get("/lag/").status_code == 200


def test_a_stranger_sees_nothing(as_role, show):
    show(overview(group()))
    stranger = as_role("stranger")
    assert stranger.get("/lag/").status_code == 403
    assert stranger.get("/lag/history/", {"group": "claim-workers"}).status_code == 403


@pytest.mark.parametrize("word", list(LagWord))
def test_every_verdict_is_shown_in_words_with_its_state(viewer, show, word):
    show(overview(group(partitions=[partition(word=word, reason="for this reason")])))
    response = viewer.get("/lag/")
    assert re.search(f"{word}[:,] for this reason", words_of(response))
    assert f"1 {word}" in words_of(response)  # the count is a link to the filter
    assert f"?verdict={word.value.replace(' ', '%20')}".encode() in response.content.replace(b"+", b"%20")


def test_unknown_numbers_are_said_to_be_unknown_and_an_estimate_is_marked(viewer, show):
    unknown = partition(0, word=LagWord.UNKNOWN, lag=None, time_lag_s=None, in_per_min=None, owner=None, history=[])
    guessed = partition(1, time_lag_s=3.0, time_lag_estimated=True)
    show(overview(group(partitions=[unknown, guessed])))
    words = words_of(viewer.get("/lag/"))
    assert "? unknown" in words
    assert "nobody" in words
    assert "~ about 3.0 s" in words


def test_no_group_at_all_says_what_to_do(viewer, show):
    show(overview())
    words = words_of(viewer.get("/lag/"))
    assert "No consumer group yet" in words
    assert "manage.py consume GROUP" in words


def test_groups_that_could_not_be_read_show_a_fault_with_age_and_no_old_number(viewer, show):
    unread = group("agent-4471", error="Broker 2 did not answer within 5 s", partitions=[partition(4, lag=777)])
    show(overview(unread, group(), errors=["Broker 2 did not answer"]))
    words = words_of(viewer.get("/lag/"))
    assert "agent-4471 : Broker 2 did not answer within 5 s" in words
    assert "show nothing rather than old numbers" in words
    assert "Last read" in words
    assert "777" not in words.split("Groups, topics, partitions")[1]


def test_a_collector_that_stopped_is_said_with_the_age_of_its_last_pass(viewer, show):
    silent = "no reading for 4 m 10 s"
    show(overview(group(error=silent), age_s=250.0, errors=[f"Nothing newer than this is shown: {silent}"]))
    words = words_of(viewer.get("/lag/"))
    assert "No consumer group could be read lately." in words
    assert "the last one ended 4 m 10 s ago, made by worker-1" in words
    assert "whether beat and a worker are alive" in words


def test_an_overview_that_cannot_be_read_is_a_fault_with_an_id_to_quote(viewer, show):
    show(RuntimeError("boom"))
    response = viewer.get("/lag/")
    assert response.status_code == 200
    assert "The lag of the consumer groups could not be read" in words_of(response)
    assert "Quote" in words_of(response)
    assert b"boom" not in response.content


def test_a_history_that_cannot_be_read_leaves_the_table(viewer, show, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("boom")

    show(overview(group()))
    monkeypatch.setattr("console.views.lag.get_lag_history", fail)
    words = words_of(viewer.get("/lag/"))
    assert "The lag history of claim-workers could not be read" in words
    assert "claim-events 0" in words


def test_a_group_that_does_not_exist_is_not_found_and_leads_back(viewer, show):
    show(overview(group()))
    response = viewer.get("/lag/history/", {"group": "gone"})
    assert response.status_code == 404
    assert "no consumer group called gone" in words_of(response)


# -- Filters in the address --------------------------------------------------------------------------------
def test_the_address_narrows_the_table(viewer, show):
    show(overview(group(), group("refund-workers", partitions=[partition(2, topic="refund-events")])))
    words = words_of(viewer.get("/lag/", {"group": "refund-workers"}))
    assert "refund-events 2" in words
    assert "claim-events 0" not in words.split("Groups, topics, partitions")[1]


def test_a_filter_that_matches_nothing_says_so_and_leads_back(viewer, show):
    show(overview(group()))
    words = words_of(viewer.get("/lag/", {"topic": "nothing-here"}))
    assert "No partition matches" in words
    assert "Show every partition" in words


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"verdict": "broken"}, "verdict can be data loss, stopped"),
        ({"page": "x"}, "page is a whole number"),
        ({"window": "1y"}, "window can be 1h, 6h, 24h or 7d"),
        ({"group": "x" * 300}, "group has 300 characters"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_in_words(viewer, show, query, said):
    show(overview(group()))
    response = viewer.get("/lag/", query)
    assert response.status_code == 422
    assert said in words_of(response)
    assert b'href="/lag/"' in response.content


def test_a_group_page_without_a_group_leads_to_the_list(viewer, show):
    show(overview(group()))
    response = viewer.get("/lag/history/")
    assert response.status_code == 200
    assert "No group is chosen" in words_of(response)


# -- Bounds, hostile names, live ---------------------------------------------------------------------------
def test_a_thousand_partitions_stay_one_page_of_bounded_size(viewer, show):
    groups = [group(f"g{n:03}", partitions=[partition(p) for p in range(10)]) for n in range(100)]
    show(overview(*groups))
    response = viewer.get("/lag/")
    assert response.content.count(b'<tr data-state="') == settings.LAG_PAGE_ROWS
    assert "1,000 partitions match, page 1 of 10" in words_of(response)
    assert len(response.content) < 600_000


def test_names_from_kafka_are_escaped(viewer, show):
    evil = partition(topic=EVIL, owner=EVIL, reason=EVIL)
    show(overview(group(EVIL, partitions=[evil], state=EVIL), group("b", error=EVIL), errors=[EVIL]))
    for response in (viewer.get("/lag/"), viewer.get("/lag/history/", {"group": EVIL})):
        assert response.status_code == 200
        assert EVIL.encode() not in response.content
        assert b"&lt;script&gt;" in response.content


def test_a_live_refresh_gets_the_panels_without_the_frame(viewer, show):
    show(overview(group()))
    page, panels = viewer.get("/lag/"), viewer.get("/lag/", headers={"HX-Request": "true"})
    assert b"<html" in page.content
    assert b"<html" not in panels.content
    assert "HX-Request" in panels["Vary"]
    for panel in (b'id="lag-head"', b'id="lag-chart"', b'id="lag-table"'):
        assert panel in page.content
        assert panel in panels.content


def test_without_javascript_the_page_loads_itself_again(viewer, show):
    show(overview(group()))
    assert re.search(rb"<noscript>\s*<meta http-equiv=\"refresh\"", viewer.get("/lag/").content)


def test_the_overview_is_newer_than_its_page(viewer, show):
    show(overview(group(), as_of=NOW))
    assert f'datetime="{NOW.isoformat()}"'.encode() in viewer.get("/lag/").content
