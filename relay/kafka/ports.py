"""What the relay needs of a Kafka client."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol, TypeVar

from relay.domain.outcome import Failure, TopicFacts


class Acked(NamedTuple):
    """The broker has the record."""

    partition: int
    offset: int


Report = Acked | Failure
OnReport = Callable[[Report], None]
Answer_co = TypeVar("Answer_co", covariant=True)


class Pending(Protocol[Answer_co]):
    """A question to the cluster that is on its way; nobody waits for it."""

    def poll(self) -> Answer_co | None:
        """Return the answer; None = not yet.

        Raises:
            ClusterUnreachableError: no answer in time.
        """


class RecordProducer(Protocol):
    """Produces in order per key, reports each record once, never gives up by itself. Not thread-safe."""

    def produce(
        self,
        facts: TopicFacts,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int | None,
        on_report: OnReport,
    ) -> bool:
        """Hand a record to the client; False = its queue is full, poll and try again."""

    def poll(self, timeout_s: float) -> int:
        """Serve delivery reports, waiting at most `timeout_s` for the first; how many there were."""

    def flush(self, timeout_s: float) -> None:
        """Wait for the reports of all that was handed over, at most `timeout_s`."""

    def ask(self, topics: Collection[str], timeout_s: float) -> Pending[Mapping[str, TopicFacts]]:
        """Ask the broker about topics, without waiting; the answer raises `ClusterUnreachableError` when none came."""

    def probe(self, timeout_s: float) -> Pending[bool]:
        """Ask whether a broker answers, without waiting."""

    @property
    def brokers_down(self) -> bool:
        """Whether the client's last word is that every broker is down."""

    def abandon(self) -> None:
        """Drop what was not delivered; no report comes after this."""
