"""`manage.py relay`: publish the outbox from a process of its own, without Celery."""

import signal
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from relay.processes import HeartbeatThread, process_name
from relay.runner import Runner, calm_collector
from relay.types import Role


class Command(BaseCommand):
    """Run one relay runner until SIGTERM or SIGINT; what is in the air is finished first."""

    help = "Publish the outbox to Kafka. Several may run at once; they share the shards."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", default="", help="shown in the console; default: relay@host:pid")

    def handle(self, *_args: Any, **options: Any) -> None:
        name = options["name"] or process_name(Role.RELAY)
        runner = Runner(name=name, kind="process")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: runner.stop())
        heartbeat = HeartbeatThread(Role.RELAY, name, lambda: _describe(runner))
        heartbeat.start()
        calm_collector()
        try:
            runner.run()
        finally:
            heartbeat.stop()


def _describe(runner: Runner) -> tuple[str, Mapping[str, str]]:
    engine = runner.engine
    return runner.state, {
        "shards": str(len(engine.shards)),
        "sent": str(engine.sent_total),
        "unacknowledged": str(engine.unacked),
    }
