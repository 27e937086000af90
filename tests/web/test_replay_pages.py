"""The pages of replays: preview, start, watch, hold; and the second person."""

import re
from uuid import uuid4

import pytest
from django.db.models.functions import Now

from console.actions import dlq as acts
from console.actions.base import ActDenied, StaleAct
from console.models import AuditAction, AuditEntry, SecondAct, SecondRequest
from dlq.facade import get_replay, list_replays
from dlq.types import ReplayState
from tests.replays import Shop, in_thread
from tests.web.pages import words_of

PREVIEW = "/dead-letters/replay/preview/"


@pytest.fixture
def on_call(as_role):
    return as_role("on-call")


def freeze(client, shop, **more):
    """Preview everything of the group; the address of the preview."""
    answer = client.post(PREVIEW, {"scope": "matching", "query": f"group={shop.group}", **more})
    assert answer.status_code == 303, words_of(answer)
    return answer["Location"]


def begin(client, address, **given):
    return client.post(f"{address}start/", {"rate_per_s": "50", "reason": "the vendor is back", **given})


def started(client, shop, count=3):
    shop.park_many(range(count))
    answer = begin(client, freeze(client, shop))
    assert answer.status_code == 303, words_of(answer)
    return answer["Location"]


def version(client, address):
    return re.search(rb'name="seen" value="(\d+)"', client.get(address).content)[1].decode()


# -- Preview and start -------------------------------------------------------------------------------------
def test_a_preview_says_scope_duration_and_consequence_and_replays_nothing(on_call, shop):
    shop.park_many(range(3))
    page = on_call.get(freeze(on_call, shop))
    words = words_of(page)
    assert f"Replay 3 dead letters of {shop.group}, parked before" in words
    assert "at 50/s: about 0.1 s" in words
    assert "3 can be replayed" in words
    assert "pauses by itself when more than 20 % fail again" in words
    assert not list_replays().jobs
    assert not AuditEntry.objects.exists()


def test_what_came_since_is_shown_and_not_swept_in(on_call, shop):
    shop.park_many(range(2))
    address = freeze(on_call, shop)
    shop.park(7, key="late")
    assert "+1 since this preview" in words_of(on_call.get(address))
    assert begin(on_call, address).status_code == 303
    assert list_replays().jobs[0].total == 2


def test_a_start_is_one_job_and_one_audit_row_and_a_second_start_is_refused(on_call, shop):
    shop.park_many(range(2))
    address = freeze(on_call, shop)
    job_page = begin(on_call, address)["Location"]
    again = begin(on_call, address)
    assert again.status_code == 409
    assert job_page.encode() in again.content
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.reason, entry.detail["total"]) == (
        AuditAction.REPLAY_STARTED,
        "the vendor is back",
        2,
    )
    assert len(list_replays().jobs) == 1


def test_one_is_a_click(on_call, shop):
    letter = shop.park(1)
    answer = on_call.post(PREVIEW, {"ids": [str(letter)], "go": "1"})
    assert answer.status_code == 303
    assert answer["Location"] == f"/replays/{list_replays().jobs[0].id}/"


def test_one_that_others_wait_behind_is_shown_first(on_call, shop):
    head = shop.park(1)
    shop.consume(shop.record(2))
    answer = on_call.post(PREVIEW, {"ids": [str(head)], "go": "1"})
    assert "/replays/previews/" in answer["Location"]
    assert "1 wait behind them in quarantine and follow in order" in words_of(on_call.get(answer["Location"]))


def test_many_need_a_reason(on_call, shop, settings):
    settings.DLQ_REASON_ABOVE = 2
    shop.park_many(range(3))
    address = freeze(on_call, shop)
    refused = begin(on_call, address, reason=" ")
    assert refused.status_code == 422
    assert "Say why" in words_of(refused)
    assert not list_replays().jobs


@pytest.mark.parametrize("rate", ["fast", "0", "-1", "nan", "1e9"])
def test_a_rate_that_cannot_be_is_refused_with_what_was_typed(on_call, shop, rate):
    shop.park_many(range(2))
    address = freeze(on_call, shop)
    refused = begin(on_call, address, rate_per_s=rate)
    assert refused.status_code == 422
    assert f'value="{rate}"'.encode() in refused.content
    assert not list_replays().jobs


@pytest.mark.parametrize(
    "given",
    [{}, {"ids": ["x"]}, {"ids": [str(uuid4())]}, {"scope": "matching", "query": "state=lost"}],
)
def test_a_selection_that_cannot_be_is_refused(on_call, given):
    assert on_call.post(PREVIEW, given).status_code == 422


def test_an_unknown_preview_or_job_is_not_found(on_call):
    assert on_call.get(f"/replays/previews/{uuid4()}/").status_code == 404
    assert on_call.get(f"/replays/{uuid4()}/").status_code == 404


def test_a_refused_start_lives_on_from_the_preview(on_call, shop):
    shop.park_many(range(2))
    address = freeze(on_call, shop)
    refused = begin(on_call, address, rate_per_s="fast")
    assert f'data-live-url="{address}"'.encode() in refused.content


# -- The job -----------------------------------------------------------------------------------------------
def test_a_job_without_a_consumer_says_whom_it_waits_for(on_call, shop):
    words = words_of(on_call.get(started(on_call, shop)))
    assert f"waiting for a consumer of {shop.group}" in words
    assert "0 of 3 have an outcome" in words


def test_a_finished_job_says_what_became_of_each(on_call, shop, transactional_db, settings):
    settings.REPLAY_LOOK_EVERY_MS = settings.REPLAY_BUSY_LOOK_MS = 20
    address = started(on_call, shop, 2)
    shop.run(list_replays().jobs[0])
    words = words_of(on_call.get(address))
    assert "2 of 2 have an outcome" in words
    assert "finished" in words
    assert "No dead letter of this replay is failed now" in words_of(on_call.get(f"{address}?outcome=failed"))


def test_a_job_is_paused_resumed_and_cancelled_with_what_was_seen(on_call, shop):
    address = started(on_call, shop)
    seen = version(on_call, address)
    assert on_call.post(f"{address}pause/", {"seen": seen}).status_code == 303
    assert on_call.post(f"{address}pause/", {"seen": seen}).status_code == 409
    assert on_call.post(f"{address}resume/", {"seen": version(on_call, address)}).status_code == 303
    seen = version(on_call, address)
    assert on_call.post(f"{address}cancel/", {"seen": seen, "reason": ""}).status_code == 422
    assert on_call.post(f"{address}cancel/", {"seen": seen, "reason": "wrong ones"}).status_code == 303
    job = list_replays().jobs[0]
    assert (job.state, job.skipped) == (ReplayState.CANCELLED, 3)
    assert on_call.get(f"{address}cancel/").status_code == 409
    assert [e.action for e in AuditEntry.objects.order_by("id")] == [
        AuditAction.REPLAY_STARTED,
        AuditAction.REPLAY_PAUSED,
        AuditAction.REPLAY_RESUMED,
        AuditAction.REPLAY_CANCELLED,
    ]


def test_the_rate_of_a_job_is_changed(on_call, shop):
    address = started(on_call, shop)
    asked = on_call.get(f"{address}rate/")
    seen = re.search(rb'name="seen" value="(\d+)"', asked.content)[1].decode()
    assert on_call.post(f"{address}rate/", {"seen": seen, "rate_per_s": "0"}).status_code == 422
    assert on_call.post(f"{address}rate/", {"seen": seen, "rate_per_s": "5"}).status_code == 303
    assert list_replays().jobs[0].rate_per_s == 5
    assert on_call.post(f"{address}rate/", {"seen": seen, "rate_per_s": "6"}).status_code == 409


def test_a_viewer_sees_a_job_and_cannot_touch_it(on_call, as_role, shop):
    address = started(on_call, shop)
    viewer = as_role("viewer")
    assert "this needs on-call or admin" in words_of(viewer.get(address))
    assert viewer.post(f"{address}pause/", {"seen": version(on_call, address)}).status_code == 403


def test_the_list_has_the_job_and_reads_no_contents(on_call, shop):
    started(on_call, shop)
    page = on_call.get("/replays/")
    assert "the vendor is back" in words_of(page)
    assert b'{"n": 0' not in page.content


def test_a_damaged_cursor_is_refused(on_call):
    assert on_call.get("/replays/?cursor=x").status_code == 422


# -- The second person -------------------------------------------------------------------------------------
@pytest.fixture
def asked(on_call, shop, settings):
    settings.DLQ_SECOND_PERSON_ABOVE = 2
    shop.park_many(range(3))
    answer = begin(on_call, freeze(on_call, shop))
    assert answer.status_code == 303
    return answer["Location"]


def test_too_many_wait_for_a_second_person_who_sees_what_and_why(asked, on_call, as_role, shop):
    assert not list_replays().jobs
    admin = as_role("admin")
    words = words_of(admin.get(asked))
    assert f"Replay 3 dead letters of {shop.group}" in words
    assert "the vendor is back" in words
    assert "Confirm: do it now" in words
    assert "Confirm: do it now" not in words_of(on_call.get(asked))
    assert "Waits for a second person" in words_of(admin.get("/replays/"))


def test_another_person_confirms_and_both_stand_in_the_job(asked, as_role):
    answer = as_role("admin").post(f"{asked}confirm/")
    assert answer.status_code == 303
    job = list_replays().jobs[0]
    assert answer["Location"] == f"/replays/{job.id}/"
    assert (job.actor, job.second, job.reason) == ("on-call-person", "admin-person", "the vendor is back")
    entries = list(AuditEntry.objects.order_by("id").values_list("actor_name", "action"))
    assert entries == [
        ("on-call-person", AuditAction.SECOND_ASKED),
        ("admin-person", AuditAction.REPLAY_STARTED),
    ]


def test_a_discard_is_confirmed_by_another_person(on_call, as_role, shop, settings):
    settings.DLQ_SECOND_PERSON_ABOVE = 1
    letters = shop.park_many(range(2))
    frozen = on_call.post("/dead-letters/discard/", {"ids": [str(one) for one in letters]})["Location"].split("?")[0]
    asked = on_call.post(frozen, {"reason": "sent by hand"})["Location"]
    admin = as_role("admin")
    assert "ends without an effect" in words_of(admin.get(asked))
    assert {letter.state for letter in shop.letters()} == {"parked"}
    assert on_call.post(f"{asked}confirm/").status_code == 403
    assert admin.post(f"{asked}confirm/")["Location"] == asked
    assert {letter.state for letter in shop.letters()} == {"discarded"}
    assert "confirmed by admin-person" in words_of(on_call.get(asked))


def test_the_person_who_asked_cannot_confirm_or_refuse(asked, on_call):
    assert on_call.post(f"{asked}confirm/").status_code == 403
    assert on_call.post(f"{asked}refuse/", {"reason": "r"}).status_code == 403
    assert not list_replays().jobs


def test_a_viewer_cannot_be_the_second_person(asked, as_role):
    assert as_role("viewer").post(f"{asked}confirm/").status_code == 403


def test_a_refusal_and_a_withdrawal_end_it(asked, on_call, as_role):
    admin = as_role("admin")
    assert admin.post(f"{asked}withdraw/").status_code == 403
    assert admin.post(f"{asked}refuse/", {"reason": ""}).status_code == 422
    assert admin.post(f"{asked}refuse/", {"reason": "not at noon"}).status_code == 303
    assert on_call.post(f"{asked}withdraw/").status_code == 409
    assert admin.post(f"{asked}confirm/").status_code == 409
    assert "refused by admin-person" in words_of(on_call.get(asked))


def test_an_expired_request_does_nothing(asked, as_role):
    SecondRequest.objects.update(expires_at=Now())
    admin = as_role("admin")
    assert admin.post(f"{asked}confirm/").status_code == 409
    assert "expired" in words_of(admin.get(asked))
    assert not list_replays().jobs


def test_who_asked_must_still_be_allowed(asked, on_call, as_role):
    on_call.person.groups.clear()
    assert as_role("admin").post(f"{asked}confirm/").status_code == 409
    assert not list_replays().jobs


def test_the_same_preview_is_not_asked_for_twice(asked, on_call):
    preview = SecondRequest.objects.get().preview
    assert begin(on_call, f"/replays/previews/{preview}/").status_code == 409
    assert SecondRequest.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_who_confirm_at_once_one_does_it(make_person, settings):
    shop = Shop()
    settings.DLQ_SECOND_PERSON_ABOVE = 1
    asker, one, other = (make_person(name, "on-call") for name in ("ada", "bob", "cyn"))
    shop.park_many(range(2))
    preview = acts.preview_replay(asker, acts.Selection(filter=_all_of(shop)), rate_per_s=None)
    request = acts.start_replay(asker, preview.id, rate_per_s=None, reason="r").request

    def confirm(person):
        try:
            return acts.confirm_second(person, request.pk, SecondAct.REPLAY).decided_by
        except StaleAct:
            return "late"

    found = [thread.result() for thread in [in_thread(confirm, one), in_thread(confirm, other)]]
    assert sorted(found) in (["bob", "late"], ["cyn", "late"])
    (job,) = list_replays().jobs
    assert get_replay(job.id).second in found
    shop.drop()


def test_a_token_cannot_be_the_second_person(asked, make_person):
    from datetime import timedelta

    from console.permissions import Action
    from console.tokens import find_person, make_token

    made = make_token(
        make_person("robot", "admin"), name="t", actions=list(Action), lasts=timedelta(days=1), made_by="t"
    )
    with pytest.raises(ActDenied, match="a token cannot stand for a person"):
        acts.confirm_second(find_person(made.secret), SecondRequest.objects.get().pk, SecondAct.REPLAY)


def _all_of(shop):
    from dlq.types import DeadLetterFilter

    return DeadLetterFilter(group=shop.group)
