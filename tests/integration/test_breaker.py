"""A downstream that is away is an outage: nothing is parked, no tries are spent, and work goes on by itself."""

import threading
import time
from collections import Counter

import pytest

from dlq.breaker import StaleBreaker, close_breaker, list_breakers
from dlq.models import Breaker, DeadLetter
from dlq.types import BreakerState
from relay.facade import list_open_incidents, list_processes
from relay.types import IncidentKind
from tests.consumers import Line, effects, make_effect_table, running, until, write_effect
from tests.waiting import attempts_noted, by_key, set_policy, waiting

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def line(transactional_db, settings):
    settings.CONSUMER_SESSION_TIMEOUT_MS = 6_000
    settings.CONSUMER_BREAKER_PROBE_S, settings.CONSUMER_BREAKER_PROBE_MAX_S = 0.3, 1.0
    settings.CONSUMER_BREAKER_REFRESH_S = 0.2
    make_effect_table()
    made = Line(partitions=2)
    yield made
    made.drop()


class Downstream:
    """What the handler of `thing.done` needs: away until `up` is set."""

    def __init__(self):
        self.up = threading.Event()
        self.tries = Counter()

    def needy(self, event, tx):
        if not self.up.is_set():
            self.tries[event.payload["n"]] += 1
            raise ConnectionError("away")
        write_effect(event, tx)


def breaker_of(line):
    return next((b for b in list_breakers() if b.group == line.group), None)


def is_open(line):
    found = breaker_of(line)
    return found is not None and found.state is BreakerState.OPEN


def incidents(line):
    return [i for i in list_open_incidents() if i.kind is IncidentKind.BREAKER_OPEN and line.group in i.cause]


def beat_of(member):
    return next((p for p in list_processes() if p.name == member.name), None)


def test_an_outage_longer_than_the_poll_interval_parks_nothing_spends_nothing_and_drains(line, settings):
    settings.CONSUMER_MAX_POLL_INTERVAL_MS = 6_000
    settings.HANDLER_DEADLINE_S = 5
    set_policy(line, max_attempts=3, unknown_attempts=3, base_s=0.2, factor=1.0, max_s=0.2)
    down = Downstream()
    line.put_many((n, f"k{n % 20}", n % 2) for n in range(60))
    with running(line, down.needy) as member:
        until(lambda: is_open(line))
        (incident,) = until(lambda: incidents(line))
        assert "Downstream.needy" in incident.title
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 9)  # three times what the policy allows, and the poll interval
        until(lambda: "is held, probing in" in beat_of(member).doing)
        assert beat_of(member).facts["partitions"] == "2"
        assert {attempts for _, attempts, _ in waiting(line)} <= {0}
        assert effects(line) == []
        down.up.set()
        until(lambda: [line.committed(0), line.committed(1)] == [30, 30])
    assert not DeadLetter.objects.filter(group=line.group).exists()
    assert by_key(effects(line)) == {f"k{k}": [k, k + 20, k + 40] for k in range(20)}
    assert (is_open(line), incidents(line), waiting(line)) == (False, [], [])
    assert not [row for row in attempts_noted(line) if row[2] == "parked"]
    assert sum(down.tries.values()) < 60  # it was probed, not hammered


def test_other_handlers_of_the_topic_go_on_while_one_is_held(line, settings):
    settings.CONSUMER_BUFFER_RECORDS = 40
    set_policy(line, base_s=0.2, max_s=0.2)
    down = Downstream()
    from dlq.facade import handler

    handler(topic=line.topic, group=line.group, event_types=["other.thing"])(write_effect)
    for n in range(60):
        line.put(n, key=f"k{n}")
    for n in range(60, 80):
        line.put(n, key=f"o{n}", event_type="other.thing")
    with running(line, down.needy, event_types=["thing.done"]):
        until(lambda: is_open(line))
        until(lambda: len(effects(line)) == 20)
        assert {n for _, n in effects(line)} == set(range(60, 80))
        down.up.set()
        until(lambda: line.committed() == 80)
        until(lambda: not waiting(line))
    assert len(effects(line)) == 80


def test_one_key_that_fails_again_and_again_opens_no_breaker(line):
    set_policy(line, max_attempts=12, unknown_attempts=3, base_s=0.1, factor=1.0, max_s=0.1)
    down = Downstream()
    line.put(0, key="poison")
    with running(line, down.needy):
        until(lambda: line.committed() == 1)
    assert DeadLetter.objects.get(group=line.group).attempts == 12
    assert not is_open(line)


def test_a_person_closes_a_breaker_and_the_records_run_at_once(line, settings):
    settings.CONSUMER_BREAKER_PROBE_S = settings.CONSUMER_BREAKER_PROBE_MAX_S = 600.0
    set_policy(line, base_s=0.2, max_s=0.2)
    down = Downstream()
    for n in range(10):
        line.put(n, key=f"k{n}")
    with running(line, down.needy):
        until(lambda: is_open(line))
        seen = breaker_of(line)
        assert 500 < seen.probe_in_s <= 600
        down.up.set()
        with pytest.raises(StaleBreaker):
            close_breaker(line.group, seen.handler, expected_version=seen.version + 1, actor="mara")
        close_breaker(line.group, seen.handler, expected_version=seen.version, actor="mara")
        until(lambda: line.committed() == 10)
    assert incidents(line) == []
    closed = breaker_of(line)
    assert (closed.state, closed.changed_by) == (BreakerState.CLOSED, "mara")
    with pytest.raises(StaleBreaker):
        close_breaker(line.group, seen.handler, expected_version=closed.version, actor="mara")


def test_a_breaker_is_one_for_all_processes_of_its_group(line):
    set_policy(line, base_s=0.2, max_s=0.2)
    down = Downstream()
    for n in range(20):
        line.put(n, key=f"k{n}", partition=n % 2)
    with running(line, down.needy) as first, running(line, down.needy) as second:
        until(lambda: all((beat := beat_of(m)) and beat.facts["partitions"] == "1" for m in (first, second)))
        until(lambda: all("is held" in beat_of(m).doing for m in (first, second)))
        assert Breaker.objects.filter(group=line.group).count() == 1
        down.up.set()
        until(lambda: [line.committed(0), line.committed(1)] == [10, 10])
    assert not DeadLetter.objects.filter(group=line.group).exists()
