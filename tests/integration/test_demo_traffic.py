import threading
import time
from collections import Counter, defaultdict
from random import Random
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection

from console.demo import traffic as traffic_module
from console.demo.models import Claim, Customer, Effect
from console.demo.rates import change_rates, read_rates
from console.demo.story import invent_person
from console.demo.traffic import (
    Act,
    Traffic,
    choose_act,
    choose_customer,
    ensure_customers,
    perform,
    purge_old_rows,
)

SEED = 1


class Outbox:
    """The rows since the test began: transactional tests leave theirs in the append-only table."""

    def __init__(self):
        with connection.cursor() as cursor:
            cursor.execute("SELECT coalesce(max(position), 0) FROM relay_outbox")
            self.start = cursor.fetchone()[0]

    def rows(self):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, convert_from(key, 'UTF8'), type, convert_from(payload, 'UTF8')::jsonb #>> '{claim,number}'"
                " FROM relay_outbox WHERE position > %s ORDER BY position",
                [self.start],
            )
            return cursor.fetchall()

    def ids(self):
        return [row[0] for row in self.rows()]


@pytest.fixture
def outbox(db):
    return Outbox()


@pytest.fixture
def person(db):
    ensure_customers(SEED)
    return invent_person(7, SEED)


def test_a_claim_and_its_event_are_committed_together(person, outbox):
    event_id = perform(Act.OPEN, Random(1), person)
    claim = Claim.objects.get()
    assert claim.customer_id == person.number
    assert outbox.rows() == [(event_id, person.number, "claim.opened", claim.number)]


def test_a_customer_who_changes_their_mind_leaves_no_claim_and_no_event(person, outbox):
    assert perform(Act.ROLL_BACK, Random(1), person) is None
    assert (outbox.ids(), Claim.objects.count()) == ([], 0)
    assert Customer.objects.get(pk=person.number).claims_opened == 0


def test_a_repeated_publish_has_the_same_event_id_and_one_claim(person, outbox):
    event_id = perform(Act.OPEN_TWICE, Random(1), person)
    assert outbox.ids() == [event_id, event_id]
    assert Claim.objects.count() == 1


def test_customers_are_made_once(person):
    ensure_customers(SEED)
    assert Customer.objects.count() == settings.DEMO_CUSTOMERS + settings.DEMO_BROKEN_CUSTOMERS


def test_what_is_parked_comes_from_few_customers_who_send_nothing_else():
    random = Random(1)
    senders = {act: {choose_customer(random, act, SEED).number for _ in range(2_000)} for act in Act}
    broken = senders[Act.OPEN_POISON] | senders[Act.SEND_MALFORMED]
    assert len(broken) == settings.DEMO_BROKEN_CUSTOMERS
    assert len(senders[Act.OPEN]) == settings.DEMO_CUSTOMERS
    assert not broken & (senders[Act.OPEN] | senders[Act.OPEN_TWICE] | senders[Act.OPEN_SLOW] | senders[Act.ROLL_BACK])


def test_acts_are_drawn_by_their_shares(db):
    rates = change_rates({"poison": 0.1, "duplicates": 0.2, "slow": 0.05, "rollbacks": 0.15, "malformed": 0.01})[1]
    random = Random(1)
    drawn = Counter(choose_act(random, rates) for _ in range(20_000))
    assert drawn[Act.OPEN_POISON] == pytest.approx(2_000, rel=0.1)
    assert drawn[Act.OPEN_TWICE] == pytest.approx(4_000, rel=0.1)
    assert drawn[Act.SEND_MALFORMED] == pytest.approx(200, rel=0.3)
    assert drawn[Act.OPEN] == pytest.approx(9_800, rel=0.1)


def test_old_rows_are_purged_and_young_ones_stay(person):
    perform(Act.OPEN, Random(1), person)
    perform(Act.OPEN, Random(2), person)
    Effect.objects.create(group="g", event_id=uuid4(), event_type="t", key="k")
    old = Claim.objects.first().pk
    with connection.cursor() as cursor:
        cursor.execute("UPDATE demo_claim SET opened_at = now() - interval '3 days' WHERE number = %s", [old])
    assert purge_old_rows() == 1
    assert (Claim.objects.count(), Effect.objects.count()) == (1, 1)


@pytest.fixture
def running(transactional_db):
    """Traffic in a thread, as `manage.py demo --run` has it."""
    change_rates({"rate": 0, "malformed": 0, "seed": SEED})
    traffic = Traffic()

    def run():
        traffic.run()
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    yield traffic
    traffic.stop()
    thread.join(timeout=20)
    assert not thread.is_alive()


def wait_until(condition, within_s=15):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.05)


def test_rates_are_followed_while_the_traffic_runs(running, outbox):
    wait_until(lambda: Customer.objects.count() == settings.DEMO_CUSTOMERS + settings.DEMO_BROKEN_CUSTOMERS)
    assert Claim.objects.count() == 0
    change_rates({"rate": 100, "rollbacks": 0.2})
    wait_until(lambda: running.done[Act.ROLL_BACK] >= 5 and running.done[Act.OPEN] >= 20)
    change_rates({"rate": 0})
    wait_until(lambda: running.rates.rate == 0)
    wait_until(lambda: Claim.objects.count() == len(set(outbox.ids())))
    stopped_at = sum(running.done.values())
    running.stop()
    assert sum(running.done.values()) <= stopped_at + 4


def test_writers_of_one_key_keep_its_order(running, outbox, monkeypatch):
    monkeypatch.setattr(traffic_module.settings, "DEMO_CUSTOMERS", 2)
    change_rates({"rate": 200, "rollbacks": 0.1, "duplicates": 0, "poison": 0, "slow": 0})
    wait_until(lambda: Claim.objects.count() >= 100)
    running.stop()
    numbers = defaultdict(list)
    for _, key, _, number in outbox.rows():
        numbers[key].append(int(number.rsplit("-", 1)[1]))
    assert len(numbers) == 2
    assert all(order == list(range(1, len(order) + 1)) for order in numbers.values())


def test_the_heartbeat_says_how_the_traffic_runs(db):
    traffic = Traffic()
    doing, facts = traffic.describe()
    assert doing == "4 claims/s, 0.5% poison"
    assert facts == {}
    assert traffic.rates == read_rates()
