"""Dead letters: the list with its filters and pages, one of them in full, and nothing of what they hold."""

import base64
import hashlib
import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection, transaction

from dlq.domain.failure import Failure
from dlq.services import park_record
from dlq.types import FailureClass
from relay.facade import label_key
from relay.types import ConsumerRecord, PartitionRef
from tests.web.pages import EVIL, words_of

pytestmark = pytest.mark.django_db

SECRETS = {"key": b"customer-ada-4471", "value": b'{"iban": "XX44 5566 secret"}', "header": b"bearer-token-9918"}


@pytest.fixture
def viewer(as_role):
    return as_role("viewer")


@pytest.fixture
def park():
    """Park a record for real, as a consumer does; its id."""
    offsets = iter(range(1, 10_000))

    def put(
        *,
        group="claim-workers",
        topic="claim-events",
        handler="triage",
        event_type="claim.opened",
        error="claims.SchemaError",
        failure_class=FailureClass.SCHEMA,
        fingerprint="f00d",
        key=SECRETS["key"],
        value=SECRETS["value"],
        headers=None,
        **failure,
    ):
        offset = next(offsets)
        own = (("event-id", str(uuid4()).encode()), ("event-type", event_type.encode()))
        record = ConsumerRecord(
            place=PartitionRef(topic, 3),
            offset=offset,
            leader_epoch=2,
            timestamp_ms=1_773_142_866_000,
            key=key,
            value=value,
            headers=(*own, ("authorization", SECRETS["header"])) if headers is None else headers,
        )
        what = Failure(
            failure_class=failure_class,
            error_class=error,
            message=failure.get("message", "a required property is missing"),
            stack=failure.get("stack", "claims/triage.py:88 read_claim"),
            fingerprint=fingerprint,
            attempts=failure.get("attempts", 1),
            published_at=datetime(2026, 3, 10, 11, 41, 5, tzinfo=UTC),
        )
        with transaction.atomic():
            assert park_record(group, handler, record, what, topic_id="t-1", slot=0)
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM dlq_dead_letter ORDER BY parked_at DESC, id DESC LIMIT 1")
            return cursor.fetchone()[0]

    return put


def age(letter_id, **ago):
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE dlq_dead_letter SET parked_at = %s WHERE id = %s", [datetime.now(UTC) - timedelta(**ago), letter_id]
        )


def end_as(letter_id, state):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE dlq_dead_letter SET state = %s WHERE id = %s", [state, letter_id])


def listed(response):
    """The ids in the list, in order."""
    return re.findall(r'href="/dead-letters/([0-9a-f-]{36})/"', response.content.decode())


def link(response, rel):
    found = re.search(rf'href="(\?[^"]*)"\s+rel="{rel}"', response.content.decode())
    return found and found[1].replace("&amp;", "&")


# -- Who ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", ["viewer", "on-call", "support", "admin"])
def test_every_role_sees_the_list_and_a_detail(as_role, park, role):
    letter = park()
    person = as_role(role)
    assert listed(person.get("/dead-letters/")) == [str(letter)]
    assert person.get(f"/dead-letters/{letter}/").status_code == 200


def test_a_stranger_sees_neither(as_role, park):
    letter = park()
    stranger = as_role("stranger")
    assert stranger.get("/dead-letters/").status_code == 403
    assert stranger.get(f"/dead-letters/{letter}/").status_code == 403


# -- Nothing of what they hold -----------------------------------------------------------------------------
def test_payload_key_and_header_values_never_appear_in_the_html(viewer, park):
    letter = park()
    pages = [viewer.get("/dead-letters/"), viewer.get("/dead-letters/", {"key": label_key(SECRETS["key"])})]
    pages += [
        viewer.get(f"/dead-letters/{letter}/"),
        viewer.get(f"/dead-letters/{letter}/", headers={"HX-Request": "1"}),
    ]
    for page in pages:
        assert page.status_code == 200
        for secret in SECRETS.values():
            hidden = [secret, base64.b64encode(secret), secret.hex().encode(), secret[:8], secret[-8:]]
            assert not [form for form in hidden if form in page.content]


def test_the_detail_shows_length_and_digest_of_each_part(viewer, park):
    words = words_of(viewer.get(f"/dead-letters/{park()}/"))
    for name, part in (("payload", "value"), ("key", "key"), ("authorization", "header")):
        digest = hashlib.sha256(SECRETS[part]).hexdigest()
        assert f"{name} {len(SECRETS[part])} bytes {digest}" in words
    assert "stay hidden until redaction rules exist" in words


def test_absent_parts_and_empty_ones_are_told_apart(viewer, park):
    words = words_of(viewer.get(f"/dead-letters/{park(key=None, value=None, headers=())}/"))
    assert "payload none absent: a tombstone" in words
    assert "key none absent: no key, no order" in words
    assert "The record has no headers." in words
    assert "payload 0 bytes" in words_of(viewer.get(f"/dead-letters/{park(value=b'')}/"))


# -- The list ----------------------------------------------------------------------------------------------
def test_no_dead_letters_at_all_says_what_that_means(viewer):
    words = words_of(viewer.get("/dead-letters/"))
    assert "No dead letters: every record was applied or waits for its consumer" in words
    assert "No dead letter is open in any group." in words


def test_the_counts_are_of_all_groups_and_link_to_the_list(viewer, park):
    park(), park(), park(topic="refund-events", group="refund-workers")
    response = viewer.get("/dead-letters/", {"group": "refund-workers"})
    assert "3 open in all groups" in words_of(response)
    assert "3 parked in the last hour" in words_of(response)
    assert b"?topic=claim-events&amp;group=claim-workers" in response.content
    assert len(listed(response)) == 1


@pytest.mark.parametrize(
    ("query", "parked"),
    [
        ({"group": "refund-workers"}, {"group": "refund-workers"}),
        ({"topic": "refund-events"}, {"topic": "refund-events"}),
        ({"type": "refund.proposed"}, {"event_type": "refund.proposed"}),
        ({"error": "claims.Timeout"}, {"error": "claims.Timeout"}),
        ({"fingerprint": "beef"}, {"fingerprint": "beef"}),
    ],
)
def test_each_filter_narrows_the_list_by_itself_and_stands_on_the_page(viewer, park, query, parked):
    park()
    wanted = park(**parked)
    response = viewer.get("/dead-letters/", query)
    assert listed(response) == [str(wanted)]
    ((name, text),) = query.items()
    assert f"{name} {text}" in words_of(response)
    assert f"Take away the filter {name}" in response.content.decode()


def test_a_key_label_finds_the_records_of_a_key(viewer, park):
    park(key=b"another")
    wanted = park()
    assert listed(viewer.get("/dead-letters/", {"key": label_key(SECRETS["key"])})) == [str(wanted)]


def test_state_and_time_narrow_the_list(viewer, park):
    old, discarded, new = park(), park(), park()
    age(old, hours=5)
    end_as(discarded, "discarded")
    assert listed(viewer.get("/dead-letters/")) == [str(new), str(old)]
    assert listed(viewer.get("/dead-letters/", {"since": "1h"})) == [str(new)]
    assert listed(viewer.get("/dead-letters/", {"state": "discarded"})) == [str(discarded)]
    assert len(listed(viewer.get("/dead-letters/", {"state": "any"}))) == 3


def test_filters_together_narrow_further(viewer, park):
    park(group="refund-workers")
    park(topic="refund-events")
    wanted = park(group="refund-workers", topic="refund-events")
    assert listed(viewer.get("/dead-letters/", {"group": "refund-workers", "topic": "refund-events"})) == [str(wanted)]


def test_a_filter_that_matches_nothing_says_so_and_leads_back(viewer, park):
    park()
    words = words_of(viewer.get("/dead-letters/", {"topic": "nothing-here"}))
    assert "No dead letter matches" in words
    assert "Names are matched whole" in words


# -- Pages -------------------------------------------------------------------------------------------------
def test_pages_lead_to_older_ones_and_back_without_losing_or_repeating_any(viewer, park, settings):
    settings.LIST_PAGE_ROWS = 3
    letters = [str(park()) for _ in range(8)][::-1]
    pages = [viewer.get("/dead-letters/", {"group": "claim-workers"})]
    while older := link(pages[-1], "next"):
        pages.append(viewer.get(f"/dead-letters/{older}"))
    assert [listed(page) for page in pages] == [letters[:3], letters[3:6], letters[6:]]
    assert "No older ones" in words_of(pages[-1])
    back = pages[-1]
    for expected in (letters[3:6], letters[:3]):
        back = viewer.get(f"/dead-letters/{link(back, 'prev')}")
        assert listed(back) == expected
    assert link(pages[0], "prev") is None


def test_what_is_parked_meanwhile_does_not_move_an_older_page(viewer, park, settings):
    settings.LIST_PAGE_ROWS = 2
    first = [str(park()) for _ in range(4)][::-1]
    older = link(viewer.get("/dead-letters/"), "next")
    park()
    assert listed(viewer.get(f"/dead-letters/{older}")) == first[2:]


def test_a_page_is_bounded(viewer, park, settings):
    settings.LIST_PAGE_ROWS = 5
    for _ in range(7):
        park()
    assert len(listed(viewer.get("/dead-letters/"))) == 5


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"cursor": "nonsense"}, "page link is damaged"),
        ({"cursor": base64.urlsafe_b64encode(b'["older", "2026", 7]').decode()}, "page link is damaged"),
        ({"state": "lost"}, "state can be parked, applied, sent, discarded or any"),
        ({"since": "yesterday"}, "since is a span such as"),
        ({"group": "a\x00b"}, "group holds a character"),
        ({"error": "x" * 300}, "error has 300 characters"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_in_words(viewer, query, said):
    response = viewer.get("/dead-letters/", query)
    assert response.status_code == 422
    assert said in words_of(response)
    assert b'href="/dead-letters/"' in response.content


# -- One of them -------------------------------------------------------------------------------------------
def test_the_detail_says_in_one_sentence_what_happened(viewer, park):
    words = words_of(viewer.get(f"/dead-letters/{park()}/"))
    assert "claim.opened from claim-events 3 was parked for claim-workers" in words
    assert "after 1 try: claims.SchemaError, it could not be decoded or validated, so no retry can help." in words


@pytest.mark.parametrize(
    ("failure_class", "said"),
    [
        (FailureClass.PERMANENT, "an error that no retry can help"),
        (FailureClass.TRANSIENT, "an error that may pass, but its tries are used up"),
        (FailureClass.UNKNOWN, "an error of unknown kind"),
    ],
)
def test_the_sentence_tells_the_classes_of_failure_apart(viewer, park, failure_class, said):
    words = words_of(viewer.get(f"/dead-letters/{park(failure_class=failure_class, attempts=4)}/"))
    assert f"after 4 tries: claims.SchemaError, {said}." in words


def test_the_detail_has_place_error_frames_timeline_and_similar_ones(viewer, park):
    letter = park()
    park()
    response = viewer.get(f"/dead-letters/{letter}/")
    words = words_of(response)
    assert "claim-events 3, offset 1" in words
    assert "Topic id t-1" in words
    assert "claims/triage.py:88 read_claim" in words
    assert "a required property is missing" in words
    assert "1 more parked with the same handler, error and place in the code" in words
    assert b"?fingerprint=f00d" in response.content
    assert words.index("published") < words.index("written to") < words.index("parked by")


def test_a_record_without_event_id_or_type_still_has_a_page(viewer, park):
    words = words_of(viewer.get(f"/dead-letters/{park(event_type='', headers=(), handler='')}/"))
    assert "A record of unknown type from claim-events 3" in words
    assert "no event id could be read" in words
    assert "none was found for this type" in words


def test_an_id_that_was_never_parked_is_not_found_and_leads_back(viewer):
    response = viewer.get(f"/dead-letters/{uuid4()}/")
    assert response.status_code == 404
    assert "No dead letter has this id" in words_of(response)
    assert viewer.get("/dead-letters/not-an-id/").status_code == 404


def test_copy_buttons_are_hidden_until_a_script_shows_them(viewer, park):
    html = viewer.get(f"/dead-letters/{park()}/").content.decode()
    buttons = re.findall(r"<button[^>]*data-copy[^>]*>", html)
    assert len(buttons) == 4
    assert all(re.search(r"\bhidden\b", button) for button in buttons)


# -- Hostile texts, broken sources, live -------------------------------------------------------------------
def test_texts_from_records_are_escaped(viewer, park):
    letter = park(
        group=EVIL,
        topic=EVIL,
        handler=EVIL,
        event_type=EVIL,
        error=EVIL,
        message=EVIL,
        stack=EVIL,
        headers=((EVIL, b"x"),),
    )
    for page in (viewer.get("/dead-letters/", {"group": EVIL}), viewer.get(f"/dead-letters/{letter}/")):
        assert page.status_code == 200
        assert EVIL.encode() not in page.content
        assert b"&lt;script&gt;" in page.content


def test_counts_that_cannot_be_read_leave_the_list(viewer, park, monkeypatch):
    def fail():
        raise RuntimeError("boom")

    letter = park()
    monkeypatch.setattr("console.views.dead_letters.get_dlq_status", fail)
    response = viewer.get("/dead-letters/")
    assert "The counts of dead letters could not be read" in words_of(response)
    assert listed(response) == [str(letter)]


def test_a_list_that_cannot_be_read_is_a_fault_and_not_an_empty_list(viewer, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("boom")

    monkeypatch.setattr("console.views.dead_letters.list_dead_letters", fail)
    words = words_of(viewer.get("/dead-letters/"))
    assert "The dead letters could not be read" in words
    assert "No dead letters" not in words


def test_a_live_refresh_gets_the_panels_without_the_frame(viewer, park):
    park()
    page, panels = viewer.get("/dead-letters/"), viewer.get("/dead-letters/", headers={"HX-Request": "true"})
    assert b"<html" not in panels.content
    assert "HX-Request" in panels["Vary"]
    for panel in (b'id="dlq-head"', b'id="dlq-counts"', b'id="dlq-list"'):
        assert panel in page.content
        assert panel in panels.content


def test_the_page_stays_small(viewer, park):
    for _ in range(settings.LIST_PAGE_ROWS):
        park()
    assert len(viewer.get("/dead-letters/").content) < 200_000
