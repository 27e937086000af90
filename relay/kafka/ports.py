"""What the relay needs of a Kafka client."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from relay.domain.outcome import Failure, TopicFacts

Report = tuple[Any, int, int, Failure | None]
"""What became of a record: the tag that it was handed over with, partition and offset, or why it was refused."""
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
        tag: object,
    ) -> bool | Failure:
        """Hand a record to the client; False = its queue is full, poll and try again; a failure is final at once."""

    def poll(self, timeout_s: float) -> Sequence[Report]:
        """Return the reports that came since the last call, waiting at most `timeout_s` for the first."""

    def send_now(self, timeout_s: float) -> Sequence[Report]:
        """Send what waits for a fuller batch, and be back with the reports after `timeout_s` or the last one."""

    def ask(self, topics: Collection[str], timeout_s: float) -> Pending[Mapping[str, TopicFacts]]:
        """Ask the broker about topics, without waiting; the answer raises `ClusterUnreachableError` when none came."""

    def probe(self, timeout_s: float) -> Pending[bool]:
        """Ask whether a broker answers, without waiting."""

    @property
    def brokers_down(self) -> bool:
        """Whether the client's last word is that every broker is down."""

    def abandon(self) -> None:
        """Drop what was not delivered; no report comes after this."""
