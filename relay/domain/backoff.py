"""Waits between tries. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """`base_s` x `factor`^n before each further try, at most `attempts` tries and `most_s` seconds."""

    base_s: float
    factor: float
    attempts: int
    most_s: float = float("inf")

    def delay_s(self, failed: int) -> float:
        """Seconds to wait after the `failed`-th failure (from 1)."""
        return float(min(self.most_s, self.base_s * self.factor ** (failed - 1)))

    def waits_s(self) -> list[float]:
        """Every wait until it gives up."""
        return [self.delay_s(n) for n in range(1, self.attempts)]
