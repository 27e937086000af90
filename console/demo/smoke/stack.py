"""The smoke run's stack: the services and set-up of `up`, and only the relays and consumers of the smoke run."""

from console.demo.smoke.names import GROUP
from console.stack.programs import Program, manage
from console.stack.stack import Stack
from console.stack.supervisor import write_app

RELAYS = ("relay-1", "relay-2")
CONSUMERS = ("consumer-1", "consumer-2")
STOP_WITHIN_S = 10


class SmokeStack(Stack):
    """A stack without a page: two relays and two consumers."""

    def _start_programs(self) -> None:
        programs = [
            *(Program(name=name, command=manage("relay"), stop_within_s=STOP_WITHIN_S) for name in RELAYS),
            *(Program(name=name, command=manage("consume", GROUP), stop_within_s=STOP_WITHIN_S) for name in CONSUMERS),
        ]
        write_app(self.data, programs)
        self._client.start_app()
