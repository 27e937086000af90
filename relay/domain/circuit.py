"""The relay's circuit to the cluster: opens on a stall, closes on any sign of life. Pure."""

from dataclasses import dataclass

from relay.domain.backoff import Backoff

PROBE = Backoff(base_s=0.5, factor=2, attempts=1_000, most_s=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Circuit:
    """Closed when `open_since` is None. Times are seconds of one monotonic clock."""

    open_since: float | None = None
    probes: int = 0
    probe_at: float = 0.0
    reason: str = ""

    @property
    def is_open(self) -> bool:
        """Tell whether producing must stop."""
        return self.open_since is not None

    def opened(self, now: float, reason: str) -> "Circuit":
        """Open it; an open one keeps its beginning."""
        if self.is_open:
            return self
        return Circuit(open_since=now, probes=0, probe_at=now + PROBE.delay_s(1), reason=reason)

    def after_probe(self, now: float, *, answered: bool) -> "Circuit":
        """The circuit after one probe."""
        if answered:
            return Circuit()
        probes = self.probes + 1
        return Circuit(
            open_since=self.open_since, probes=probes, probe_at=now + PROBE.delay_s(probes + 1), reason=self.reason
        )

    def may_probe(self, now: float) -> bool:
        """Tell whether the one probe is due."""
        return self.is_open and now >= self.probe_at


def is_stalled(oldest_unacked_s: float | None, *, stall_s: float, brokers_down: bool, down_s: float) -> bool:
    """Judge a stall by the age of the oldest unacknowledged row; sooner when the client says that all are down."""
    if oldest_unacked_s is None:
        return False
    return oldest_unacked_s > (down_s if brokers_down else stall_s)
