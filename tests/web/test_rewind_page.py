"""The rewind wizard, the group switch and the page of a data loss: what they show, refuse and change, and for whom."""

import re

import pytest

from console.models import AuditAction, AuditEntry
from dlq.facade import get_loss, get_switch, handler
from dlq.models import DataLoss
from tests.consumers import Line
from tests.web.pages import EVIL, words_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def line():
    """One partition with 8 records; the group stands at 5 and has no member."""
    line = Line()
    line.put_many([(n, "a", 0) for n in range(8)])
    line.rewind(5)
    yield line
    line.drop()


@pytest.fixture
def ours(line):
    handler(topic=line.topic, group=line.group)(lambda event, tx: None)
    return line


@pytest.fixture
def on_call(as_role):
    return as_role("on-call")


def preview(client, line, **query):
    return client.get("/lag/rewind/", {"group": line.group, "topic": line.topic, "strategy": "earliest", **query})


def hidden(response, name):
    return re.search(rf'name="{name}"\s+value="([^"]*)"', response.content.decode())[1].replace("&amp;", "&")


def apply(client, page, reason="a handler was wrong"):
    return client.post(
        "/lag/rewind/apply/", {"token": hidden(page, "token"), "query": hidden(page, "query"), "reason": reason}
    )


# -- The wizard --------------------------------------------------------------------------------------------
def test_the_preview_says_before_after_and_what_is_read_again(on_call, line):
    words = words_of(preview(on_call, line))
    assert "No member (Empty). Its offsets can be moved." in words
    assert "to the first record that Kafka keeps" in words
    assert "5 offsets will be read again and none passed over" in words
    assert "nothing is known of what it has applied" in words
    assert line.committed() == 5


def test_what_is_passed_over_is_said_loudly(on_call, line):
    words = words_of(preview(on_call, line, strategy="latest"))
    assert "3 will never be read by this group" in words


def test_a_rewind_moves_the_offset_shows_each_partition_and_is_audited(on_call, line):
    response = apply(on_call, preview(on_call, line))
    assert response.status_code == 200
    words = words_of(response)
    assert f"{line.group} is rewound" in words
    assert "0 5 0 0 moved" in words
    assert line.committed() == 0
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.detail["moves"]) == (AuditAction.GROUP_REWOUND, [[0, 5, 0]])


def test_a_group_that_moved_meanwhile_answers_409_with_what_changed_and_a_new_preview(on_call, line):
    page = preview(on_call, line)
    line.rewind(6)
    response = apply(on_call, page)
    assert response.status_code == 409
    words = words_of(response)
    assert "partition 0 stands at 6 now, not at 5" in words
    assert "6 offsets will be read again" in words
    assert line.committed() == 6
    assert not AuditEntry.objects.exists()


def test_a_rewind_without_a_reason_keeps_the_preview_and_says_so(on_call, line):
    response = apply(on_call, preview(on_call, line), reason=" ")
    assert response.status_code == 422
    assert "Say why" in words_of(response)
    assert b'aria-invalid="true"' in response.content
    assert line.committed() == 5


def test_a_preview_that_was_not_made_here_is_refused(on_call, line):
    response = on_call.post("/lag/rewind/apply/", {"token": "forged", "query": "", "reason": "r"})
    assert response.status_code == 422
    assert "Preview the rewind again" in words_of(response)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"strategy": "sideways"}, "strategy can be earliest"),
        ({"strategy": "offset", "offset": "x"}, "whole number as offset"),
        ({"strategy": "shift", "shift": ""}, "whole number as shift"),
        ({"strategy": "time", "at": ""}, "Type a time"),
        ({"strategy": "time", "at": "soon"}, "at is a time such as"),
        ({"partitions": "a-b"}, "list such as 0, 2, 4-7"),
        ({"partitions": "7"}, "has no partition 7"),
        ({"topic": "no-such-topic"}, "no topic called no-such-topic"),
        ({"topic": ""}, "Choose a topic"),
    ],
)
def test_a_choice_that_cannot_be_meant_keeps_the_form_and_says_what_is_wrong(on_call, line, query, said):
    response = preview(on_call, line, **query)
    assert response.status_code == 422
    assert said in words_of(response)


def test_nothing_to_do_offers_no_button(on_call, line):
    page = preview(on_call, line, strategy="offset", offset="5")
    assert "no partition would move" in words_of(page)
    assert b"Rewind as previewed" not in page.content


def test_names_in_the_address_are_escaped(on_call):
    response = on_call.get("/lag/rewind/", {"group": EVIL, "topic": EVIL, "strategy": "earliest"})
    assert EVIL.encode() not in response.content


@pytest.mark.parametrize("role", ["viewer", "support"])
def test_others_may_look_and_not_apply(as_role, line, role):
    person = as_role(role)
    page = preview(person, line)
    assert "this needs on-call or admin" in words_of(page)
    assert apply(person, page).status_code == 403
    assert line.committed() == 5


# -- The switch --------------------------------------------------------------------------------------------
def test_a_group_of_signalbox_is_stopped_with_a_reason_and_started_again(on_call, ours):
    page = f"/lag/rewind/?group={ours.group}"
    stopped = on_call.post("/lag/group/stop/", {"group": ours.group, "reason": "schema change", "next": page})
    assert (stopped.status_code, stopped.url) == (303, page)
    assert get_switch(ours.group).stopped
    words = words_of(on_call.get(page))
    assert "Stopped by on-call-person" in words
    assert "schema change" in words
    again = on_call.post("/lag/group/stop/", {"group": ours.group, "reason": "r"})
    assert again.status_code == 409
    assert on_call.post("/lag/group/start/", {"group": ours.group}).status_code == 303
    assert not get_switch(ours.group).stopped
    assert on_call.post("/lag/group/start/", {"group": ours.group}).status_code == 409
    assert [e.action for e in AuditEntry.objects.order_by("id")] == [
        AuditAction.GROUP_STOPPED,
        AuditAction.GROUP_STARTED,
    ]


def test_a_foreign_group_or_a_stop_without_a_reason_is_refused(on_call, ours):
    assert on_call.post("/lag/group/stop/", {"group": "somebody-elses", "reason": "r"}).status_code == 422
    assert on_call.post("/lag/group/stop/", {"group": ours.group, "reason": ""}).status_code == 422
    assert get_switch(ours.group) is None
    assert not AuditEntry.objects.exists()


def test_dedupe_rows_of_our_own_group_are_counted_in_the_preview(on_call, ours):
    assert "0 of them this group has applied" in words_of(preview(on_call, ours))


# -- The data loss -----------------------------------------------------------------------------------------
@pytest.fixture
def loss(line):
    line.delete_before(7)
    return DataLoss.objects.create(
        group=line.group, topic=line.topic, partition=0, first_lost=5, first_kept=7, counted=True
    )


def test_a_loss_says_what_is_gone_what_is_kept_and_each_choice(on_call, loss):
    words = words_of(on_call.get(f"/lag/data-loss/{loss.id}/"))
    assert "5 to 6" in words
    assert "2 in all" in words
    assert "7 to 8" in words
    assert "Offset 7, written" in words
    assert "none of the group's runs" in words


def test_a_choice_is_taken_once_and_audited(on_call, loss):
    page = f"/lag/data-loss/{loss.id}/"
    chosen = {"choice": "first", "seen": "", "reason": "refunds were done by hand"}
    assert on_call.post(f"{page}settle/", chosen).status_code == 303
    assert get_loss(loss.id).choice == "first"
    assert "on-call-person chose: from the first record that kafka keeps" in words_of(on_call.get(page))
    assert on_call.post(f"{page}settle/", {**chosen, "choice": "end"}).status_code == 409
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.detail["choice"], entry.detail["lost"]) == (
        AuditAction.DATA_LOSS_SETTLED,
        "first",
        [5, 7],
    )


def test_an_offset_is_chosen_by_its_number(on_call, loss):
    page = f"/lag/data-loss/{loss.id}/"
    chosen = {"choice": "offset", "offset": "8", "seen": "", "reason": "7 was handled by hand"}
    assert on_call.post(f"{page}settle/", chosen).status_code == 303
    assert (get_loss(loss.id).choice, get_loss(loss.id).chosen_offset) == ("offset", 8)
    assert "on-call-person chose: from offset 8" in words_of(on_call.get(page))
    assert AuditEntry.objects.get().detail["offset"] == 8


def test_a_time_is_chosen_as_the_first_offset_from_then_on(on_call, loss):
    page = f"/lag/data-loss/{loss.id}/"
    asked = {"choice": "time", "at": "2001-01-01T00:00", "seen": "", "reason": "r"}
    assert on_call.post(f"{page}settle/", asked).status_code == 303
    assert get_loss(loss.id).chosen_offset == 7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"choice": "offset", "offset": "6"}, "keeps 7 to 8"),
        ({"choice": "offset", "offset": "9"}, "keeps 7 to 8"),
        ({"choice": "offset", "offset": "-1"}, "keeps 7 to 8"),
        ({"choice": "offset", "offset": "seven"}, "Type a whole number"),
        ({"choice": "offset"}, "Type a whole number"),
        ({"choice": "time"}, "Type a time"),
        ({"choice": "time", "at": "tomorrow"}, "time"),
    ],
)
def test_an_offset_that_is_not_kept_and_a_time_that_is_none_are_refused(on_call, loss, changes, words):
    asked = {"seen": "", "reason": "r", **changes}
    refused = on_call.post(f"/lag/data-loss/{loss.id}/settle/", asked)
    assert refused.status_code == 422
    assert words in words_of(refused)
    assert get_loss(loss.id).choice == ""


@pytest.mark.parametrize("changes", [{"choice": ""}, {"choice": "sideways"}, {"reason": " "}, {"seen": "x"}])
def test_a_choice_that_cannot_be_is_refused(on_call, loss, changes):
    asked = {"choice": "first", "seen": "", "reason": "r", **changes}
    assert on_call.post(f"/lag/data-loss/{loss.id}/settle/", asked).status_code == 422
    assert get_loss(loss.id).choice == ""


def test_a_settled_loss_shows_where_it_went_on_and_no_form(on_call, loss):
    DataLoss.objects.update(settled_at=loss.found_at, resumed_at=7)
    page = on_call.get(f"/lag/data-loss/{loss.id}/")
    assert "goes on from offset 7" in words_of(page)
    assert b"<form" not in page.content.split(b"<main")[1]


def test_an_unknown_loss_is_not_found(on_call):
    assert on_call.get("/lag/data-loss/424242/").status_code == 404
    settled = on_call.post("/lag/data-loss/424242/settle/", {"choice": "first", "seen": "", "reason": "r"})
    assert settled.status_code == 409


def test_an_answer_to_a_form_lives_on_from_a_page_that_takes_get(on_call, line):
    page = preview(on_call, line)
    refused = apply(on_call, page, reason="")
    assert b'data-live-url="/lag/"' in refused.content
    assert b"data-live-url" not in page.content
