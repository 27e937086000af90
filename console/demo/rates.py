"""Read and change how the demo runs; a refused change is a `RatesError`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from console.demo.models import Rates


class RatesError(ValueError):
    """A rate was refused; the text names it, its bounds and what was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRates:
    """`rate` is claims a second; the shares are of those claims (0 to 1); `triage_ms` is one model call."""

    rate: float
    poison: float
    malformed: float
    duplicates: float
    slow: float
    rollbacks: float
    triage_ms: int
    seed: int

    def __str__(self) -> str:
        return "  ".join(f"{f.name}={getattr(self, f.name):g}" for f in fields(self))


_COLUMNS = {
    "rate": "claims_per_s",
    "poison": "poison_share",
    "malformed": "malformed_share",
    "duplicates": "duplicate_share",
    "slow": "slow_share",
    "rollbacks": "rollback_share",
    "triage_ms": "triage_ms",
    "seed": "seed",
}


def read_rates() -> DemoRates:
    """Return the present rates; the defaults when nobody set any. One indexed read."""
    row = Rates.objects.filter(pk=1).first() or Rates(pk=1)
    return _view(row)


def change_rates(changes: Mapping[str, float]) -> tuple[DemoRates, DemoRates]:
    """Set the named rates and return (before, after). Running processes follow within a second.

    Raises:
        RatesError: a value is out of bounds or a name is unknown; nothing was changed.
    """
    for name, value in changes.items():
        _check(name, value)
    with transaction.atomic():
        Rates.objects.get_or_create(pk=1)
        row = Rates.objects.select_for_update().get(pk=1)
        before = _view(row)
        for name, value in changes.items():
            setattr(row, _COLUMNS[name], value)
        _check_sum(_view(row))
        row.changed_at = Now()
        row.save()
    return before, read_rates()


def bounds(name: str) -> tuple[float, float]:
    """Return (lowest, highest) of a rate, both allowed.

    Raises:
        RatesError: there is no such rate.
    """
    if name not in _COLUMNS:
        raise RatesError(f"there is no rate {name!r}; there are {', '.join(_COLUMNS)}")
    highest: dict[str, float] = {
        "rate": settings.DEMO_MAX_CLAIMS_PER_S,
        "triage_ms": settings.DEMO_MAX_TRIAGE_MS,
        "seed": 2**31 - 1,
    }
    return 0, highest.get(name, 1)


def _check(name: str, value: float) -> None:
    lowest, highest = bounds(name)
    if not lowest <= value <= highest:  # NaN fails this too
        raise RatesError(f"{name} must be from {lowest:g} to {highest:g}, not {value:g}")


def _check_sum(rates: DemoRates) -> None:
    total = rates.poison + rates.malformed + rates.duplicates + rates.slow + rates.rollbacks
    if total > 1:
        raise RatesError(f"the shares together must be at most 1, they would be {total:g}: {rates}")


def _view(row: Rates) -> DemoRates:
    return DemoRates(**{name: getattr(row, column) for name, column in _COLUMNS.items()})
