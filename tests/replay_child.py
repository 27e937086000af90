"""A consumer in a process of its own, to be killed, with short leases: `python -m tests.replay_child TOPIC GROUP`."""

import sys

import django


def main(topic, group):
    from django.conf import settings
    from django.core.management import call_command

    from dlq.facade import handler
    from tests.consumers import write_effect

    settings.REPLAY_LEASE_S, settings.REPLAY_RENEW_EVERY_S = 3, 1
    handler(topic=topic, group=group)(write_effect)
    call_command("consume", group, concurrency=4)


if __name__ == "__main__":
    django.setup()
    main(*sys.argv[1:3])
