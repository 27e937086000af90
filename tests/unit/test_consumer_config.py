"""What the consumer adapter refuses and reads, without a broker."""

import logging
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from dlq.checks import check_deadline, check_kafka_settings
from relay.kafka.consumer import ConsumerConfigError, KafkaConsumer, build_config, check_options, read_options
from relay.types import PartitionRef


@pytest.fixture
def options(settings):
    settings.KAFKA_CLIENT_CONFIG = {}
    return read_options()


def test_the_promises_of_the_runtime_are_in_its_settings(options):
    config = build_config("g", "c", options)
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["auto.offset.reset"] == "error"
    assert config["isolation.level"] == "read_committed"
    assert config["partition.assignment.strategy"] == "cooperative-sticky"


def test_settings_for_every_client_are_taken_over(options):
    config = build_config("g", "c", replace(options, further={"security.protocol": "SSL"}))
    assert config["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"further": {"enable.auto.commit": True}}, "must not set enable.auto.commit"),
        ({"further": {"auto.offset.reset": "latest"}}, "must not set auto.offset.reset"),
        ({"protocol": "kip-848"}, 'must be "classic" or "consumer"'),
        ({"protocol": "consumer", "further": {"session.timeout.ms": 6000}}, "which the broker decides"),
        ({"strategy": "cooperative-sticky,range"}, "cannot be mixed"),
        ({"strategy": "sticky"}, "may be cooperative-sticky, range or roundrobin"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_plain_words(options, change, words):
    with pytest.raises(ConsumerConfigError, match=words):
        check_options(replace(options, **change))


def test_the_new_group_protocol_takes_no_strategy_and_no_session_timeout(options):
    config = build_config("g", "c", replace(options, protocol="consumer"))
    assert config["group.protocol"] == "consumer"
    assert not {"session.timeout.ms", "partition.assignment.strategy"} & set(config)


def test_a_deadline_beyond_the_poll_interval_is_an_error_with_the_numbers(settings):
    assert check_deadline() == []
    settings.HANDLER_DEADLINE_S = 300
    (error,) = check_deadline()
    assert "HANDLER_DEADLINE_S is 300 s (300000 ms)" in error.msg
    assert "300000 ms" in error.msg.split("CONSUMER_MAX_POLL_INTERVAL_MS")[1]


def test_contradicting_kafka_settings_are_a_system_check(settings):
    settings.KAFKA_CLIENT_CONFIG = {"enable.auto.commit": True}
    assert [error.id for error in check_kafka_settings()] == ["dlq.E003"]


class Furious:
    def __getattr__(self, name):
        def rage(*_):
            raise RuntimeError(name)

        return rage


def test_an_exception_in_a_callback_is_logged_and_never_raised(options, caplog):
    consumer = KafkaConsumer(build_config("g", "c", options), options, ["t"], Furious())
    partitions = [TopicPartition("t", 0, 5)]
    with caplog.at_level(logging.ERROR):
        consumer._on_revoke(None, partitions)
        consumer._on_lost(None, partitions)
        consumer._on_commit(None, partitions)
    assert not consumer.start_at(PartitionRef("t", 0), 1)
    consumer.close()
