"""The smoke run's topic and group. Importing this module declares the topic."""

from relay.facade import declare_topic
from relay.types import TopicSpec

TOPIC = "smoke-events"
GROUP = "smoke-workers"
COUNTED = "smoke.counted"
POISON = "smoke.poison"
PARTITIONS = 6

declare_topic(TopicSpec(name=TOPIC, partitions=PARTITIONS))
