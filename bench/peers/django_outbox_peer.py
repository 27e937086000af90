"""django-outbox-pattern: its publish loop, with a connection class that sends to Kafka instead of a STOMP broker.

It can only send one message at a time, and marks it as sent next: so each send waits for the acknowledgement.
"""

import json

import django
from common import BlockingKafka, Task, tell_loaded
from django.conf import settings

CHUNK = 1_000


class KafkaConnection:
    """The part of stomp.py's connection that the producer uses."""

    bootstrap = ""

    def __init__(self, **_):
        self._kafka = BlockingKafka(self.bootstrap)
        self._connected = False

    def connect(self, *_args, **_kwargs):
        self._connected = True

    def disconnect(self, *_args, **_kwargs):
        self._connected = False

    def is_connected(self):
        return self._connected

    def set_listener(self, *_):
        pass

    def send(self, body, destination, **_):
        self._kafka.send(destination, json.loads(body)["key"], body.encode())


def configure(task):
    from urllib.parse import urlsplit

    url = urlsplit(task.database)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path[1:],
        "USER": url.username,
        "PASSWORD": url.password,
        "HOST": url.hostname,
        "PORT": url.port,
    }
    KafkaConnection.bootstrap = task.bootstrap
    settings.configure(
        DATABASES={"default": database},
        INSTALLED_APPS=["django.contrib.contenttypes", "django_outbox_pattern"],
        USE_TZ=True,
        DJANGO_OUTBOX_PATTERN={
            "DEFAULT_CONNECTION_CLASS": f"{__name__}.KafkaConnection",
            "DEFAULT_PRODUCER_WAITING_TIME": 0,
            "DEFAULT_PUBLISHED_CHUNK_SIZE": CHUNK,
        },
    )
    django.setup()


def main():
    task = Task.from_arguments()
    configure(task)
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from django_outbox_pattern.factories import factory_producer
    from django_outbox_pattern.models import Published

    rows = [
        Published(destination=task.topic, body={"key": key, **json.loads(payload)}, headers={})
        for _, key, payload in task.read_source()
    ]
    Published.objects.bulk_create(rows, batch_size=CHUNK)
    producer = factory_producer()
    tell_loaded()
    while True:
        producer.publish_message_from_database()


if __name__ == "__main__":
    main()
