import json
import re
from random import Random

import pytest

from console.demo.story import answer_triage, describe_claim, foreign_record, invent_person, read_claim, spoil


def claim(seed=1, *, is_slow=False):
    return describe_claim(Random(seed), invent_person(seed, 1), number=f"R-{seed}", is_slow=is_slow)


def test_the_same_seed_invents_the_same_world():
    assert claim(7) == claim(7)
    assert invent_person(3, 1) == invent_person(3, 1) != invent_person(3, 2)
    assert answer_triage(1, "R-1", 500) == answer_triage(1, "R-1", 500) != answer_triage(2, "R-1", 500)


def test_a_claim_can_be_read_back_after_a_trip_through_json():
    read = read_claim(json.loads(json.dumps(claim(is_slow=True))))
    assert (read.number, read.customer, read.is_long) == ("R-1", "C-00001", True)
    assert read.amount_cents > 0


@pytest.mark.parametrize("seed", range(12))
def test_no_handler_can_read_a_spoiled_claim(seed):
    payload = claim(seed)
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_claim(json.loads(json.dumps(spoil(Random(seed), payload))))
    assert read_claim(payload)


@pytest.mark.parametrize("payload", [None, [], "text", {}, {"claim": []}, {"claim": {}, "customer": None}])
def test_what_is_no_claim_is_refused_with_a_reason(payload):
    with pytest.raises((KeyError, TypeError), match=r"\w"):
        read_claim(payload)


def test_personal_data_is_invented_and_there_to_be_found():
    people = [invent_person(index, 1) for index in range(200)]
    assert all(p.email.endswith("@example.org") for p in people)
    assert all(re.fullmatch(r"\+44 20 7946 0\d{3}", p.phone) for p in people)  # kept for fiction by Ofcom
    assert len({p.email for p in people}) == 200
    text = json.dumps(claim())
    assert all(part in text for part in (people[1].email, people[1].phone, people[1].card, people[1].name))


def test_foreign_records_come_without_a_usable_event_id():
    ids = [dict(foreign_record(Random(seed))[1]).get("event-id") for seed in range(30)]
    assert {value for value in ids if value} == {b"not-a-uuid"}
