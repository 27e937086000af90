"""`manage.py consume GROUP`: run the handlers of one consumer group until SIGTERM or Ctrl-C."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.facade import ConsumerDied, UnknownGroup, run_group
from relay.facade import ConsumerConfigError

EXIT_USAGE = 2
EXIT_DIED = 70


class Command(BaseCommand):
    """Run one consumer group in this process; start more processes to share its partitions."""

    help = "Run the handlers of one consumer group; SIGTERM finishes what runs and leaves the group."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("group", help="the consumer group, as its handlers name it")
        parser.add_argument("--concurrency", type=int, help="worker threads (setting CONSUMER_CONCURRENCY)")
        parser.add_argument("--name", help="the process's name on the System page")

    def handle(self, *_: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        try:
            tally = run_group(options["group"], stop=stop, concurrency=options["concurrency"], name=options["name"])
        except (UnknownGroup, ValueError, ConsumerConfigError) as error:
            raise CommandError(str(error), returncode=EXIT_USAGE) from error
        except ConsumerDied as error:
            raise CommandError(str(error), returncode=EXIT_DIED) from error
        self.stdout.write(
            "stopped: " + (", ".join(f"{n} {what}" for what, n in sorted(tally.items())) or "nothing came")
        )
