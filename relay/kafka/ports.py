"""What the relay needs of a Kafka client."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from relay.domain.outcome import Failure, TopicFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """The broker has the record."""

    partition: int
    offset: int


Report = Acked | Failure
OnReport = Callable[[Report], None]


class RecordProducer(Protocol):
    """Produces in order per key, reports each record once, never gives up by itself. Not thread-safe."""

    def produce(
        self,
        facts: TopicFacts,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
        on_report: OnReport,
    ) -> bool:
        """Hand a record to the client; False = its queue is full, poll and try again."""

    def poll(self, timeout_s: float) -> int:
        """Serve delivery reports, waiting at most `timeout_s` for the first; how many there were."""

    def flush(self, timeout_s: float) -> None:
        """Wait for the reports of all that was handed over, at most `timeout_s`."""

    def describe(self, topics: Collection[str], timeout_s: float) -> dict[str, TopicFacts]:
        """Ask the broker about topics.

        Raises:
            ClusterUnreachableError: no answer in time.
        """

    def is_reachable(self, timeout_s: float) -> bool:
        """Tell whether a broker answers."""

    @property
    def brokers_down(self) -> bool:
        """Whether the client's last word is that every broker is down."""

    def abandon(self) -> None:
        """Drop what was not delivered; no report comes after this."""
