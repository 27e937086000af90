"""A consumer that reads given offsets by itself: it joins no group and commits nothing."""

import logging
from typing import Any

from confluent_kafka import Consumer
from django.conf import settings

CLIENT_LOG = logging.getLogger("relay.kafka.client")


def open_reader(name: str, *, reset: str, **further: Any) -> Consumer:
    """Open a reader of committed records that tells where a partition ends.

    `reset` is what happens at an offset that is gone (`auto.offset.reset`); `further` settings have _ for each dot.
    """
    return Consumer(
        {
            "bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS,
            "client.id": name,
            "fetch.wait.max.ms": 50,
            **{option.replace("_", "."): value for option, value in further.items()},
            **settings.KAFKA_CLIENT_CONFIG,
            "group.id": f"signalbox-{name}",  # the client wants one; it is never joined
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": reset,
            "isolation.level": "read_committed",
        },
        logger=CLIENT_LOG,
    )
