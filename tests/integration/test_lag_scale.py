"""The collector's bar: 1,000 groups of 50 partitions in at most 30 s (design, relay section 4)."""

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from django.conf import settings

from relay.facade import collect_lag, get_lag_overview
from relay.models import LagLatest, LagPass, Sweep
from tests.topics import create_topic

pytestmark = [pytest.mark.django_db, pytest.mark.long]
GROUPS, PARTITIONS, BAR_S = 1_000, 50, 30


@pytest.fixture
def many_groups():
    admin = AdminClient({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})
    topic = f"lag-scale-{uuid4().hex[:8]}"
    create_topic(topic, PARTITIONS)
    names = [f"{topic}-{n:04}" for n in range(GROUPS)]

    def commit(name):
        offsets = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        answer = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, offsets)])
        answer[name].result()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(commit, names))
    yield names
    for future in admin.delete_consumer_groups(names).values():
        future.exception()
    admin.delete_topics([topic])[topic].exception()


def test_a_thousand_groups_of_fifty_partitions_fit(many_groups):
    took = []
    for _ in range(3):
        Sweep.objects.filter(name="lag").update(last_started_at=None)
        started = time.monotonic()
        assert collect_lag()
        took.append(time.monotonic() - started)
    last = LagPass.objects.get()
    assert LagLatest.objects.filter(group__in=many_groups, error="").count() == GROUPS * PARTITIONS
    started = time.monotonic()
    overview = get_lag_overview()
    shown_s = time.monotonic() - started
    print(f"passes {[round(s, 1) for s in took]} s, reading {last.pass_s:.1f} s, overview {shown_s:.1f} s")
    assert len(overview.groups) >= GROUPS
    assert max(took) <= BAR_S
