import shutil
import signal

import pytest
from django.db import connection

from relay.facade import get_relay_status, list_open_incidents
from relay.types import IncidentKind
from tests.relay_helpers import (
    count_unsent,
    first_occurrences,
    make_topic,
    publish_keys,
    read_topic,
    running_relay,
    skip_to_now,
    wait_until,
)
from tests.stack import ServiceStack, make_folder

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.own_stack]


@pytest.fixture
def broker(settings):
    """A Kafka of this test's own."""
    stack = ServiceStack(make_folder("relay"))
    stack.start_kafka()
    settings.KAFKA_BOOTSTRAP_SERVERS = f"127.0.0.1:{stack.ports['kafka']}"
    yield stack
    stack.stop()
    shutil.rmtree(stack.data, ignore_errors=True)


def cluster_is_down():
    return any(i.kind is IncidentKind.RELAY_CLUSTER_DOWN for i in list_open_incidents())


def test_a_stopped_broker_spends_no_attempts_and_the_backlog_drains_in_order(broker):
    skip_to_now()
    topic = make_topic(partitions=2)
    expected = publish_keys(topic, keys=5, rows=20)
    with running_relay() as runner:
        wait_until(lambda: count_unsent() == 0)
        broker.stop_one("kafka", signal.SIGKILL)
        for key, ids in publish_keys(topic, keys=5, rows=100, start=20).items():
            expected[key] += ids
        wait_until(lambda: runner.circuit.is_open)
        wait_until(cluster_is_down)
        status = wait_until(lambda: s if (s := get_relay_status()).circuit_open_since else None)
        assert status.verdict.word == "circuit open"
        for key, ids in publish_keys(topic, keys=5, rows=50, start=120).items():
            expected[key] += ids
        broker.start_kafka()
        wait_until(lambda: count_unsent() == 0, within_s=60)
        wait_until(lambda: not cluster_is_down())
        wait_until(lambda: get_relay_status().verdict.word == "caught up")
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM relay_deferred")
            assert cursor.fetchone() == (0,)
    assert first_occurrences(read_topic(topic)) == expected
