"""A cluster that is away before the relay ever saw it: refused, or a port that never answers."""

import pytest
from django.conf import settings as live_settings
from django.db import connection

from relay.facade import get_relay_status
from relay.types import IncidentKind
from tests.gate import Gate
from tests.relay_helpers import (
    count_unsent,
    first_occurrences,
    has_incident,
    make_topic,
    publish_keys,
    read_topic,
    relay_child,
    running_relay,
    skip_to_now,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def gate():
    gate = Gate(live_settings.KAFKA_BOOTSTRAP_SERVERS)
    yield gate
    gate.close()


@pytest.fixture(autouse=True)
def _fresh():
    skip_to_now()


def beats_until(condition):
    """Distinct heartbeats of the only runner until `condition()`; every lease is checked on the way."""
    seen, leases = set(), []

    def look():
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, seen_at, expires_at > clock_timestamp() FROM relay_runner")
            for runner, seen_at, has_lease in cursor.fetchall():
                seen.add((runner, seen_at))
                leases.append(has_lease)
        return condition()

    wait_until(look)
    assert all(leases)
    assert len({runner for runner, _ in seen}) == 1
    return len(seen)


@pytest.mark.parametrize("answers", ["refused", "never"])
def test_a_cluster_that_is_away_from_the_start_opens_the_circuit_while_the_heart_beats(gate, answers, settings):
    topic = make_topic(partitions=2)
    expected = publish_keys(topic, keys=5, rows=30)
    broker, settings.KAFKA_BOOTSTRAP_SERVERS = settings.KAFKA_BOOTSTRAP_SERVERS, gate.address
    settings.RELAY_BROKER_TIMEOUT_S = 8
    if answers == "never":
        gate.open_silent()
    with running_relay() as runner:
        wait_until(lambda: len(runner.engine.shards) == 64)
        assert beats_until(lambda: runner.circuit.is_open) >= 4
        wait_until(lambda: has_incident(IncidentKind.RELAY_CLUSTER_DOWN, "kafka"))
        opened = runner.circuit.open_since
        assert beats_until(lambda: runner.circuit.probes >= 2) >= 2
        status = get_relay_status()
        assert (status.verdict.word, status.deferred, status.unsent.value) == ("circuit open", [], 30)
        assert runner.circuit.open_since == opened
        if answers == "refused":
            gate.open_silent()
        gate.forward()
        wait_until(lambda: count_unsent() == 0)
        wait_until(lambda: not has_incident(IncidentKind.RELAY_CLUSTER_DOWN, "kafka"))
    settings.KAFKA_BOOTSTRAP_SERVERS = broker
    assert first_occurrences(read_topic(topic)) == expected


@pytest.mark.parametrize("answers", ["refused", "never"])
def test_sigterm_while_the_circuit_is_open_ends_the_relay_within_its_bound(gate, answers):
    topic = make_topic()
    if answers == "never":
        gate.open_silent()
    with relay_child(KAFKA_BOOTSTRAP_SERVERS=gate.address) as child:
        publish_keys(topic, keys=5, rows=30)
        wait_until(lambda: get_relay_status().circuit_open_since)
        child.terminate()
        assert child.wait(timeout=live_settings.RELAY_STOP_WITHIN_S + 10) == 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM relay_checkpoint WHERE holder IS NOT NULL")
        assert cursor.fetchone() == (0,)
    assert count_unsent() == 30
