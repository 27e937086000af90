"""What the relay needs from the apps above it; they fill it in at start.

`park`: write one dead letter with the cursor that is given, and nothing else; the relay's own transaction commits it
together with the place that passes the row. Called again for the same row after a crash: it must then do nothing.
"""

from collections.abc import Callable
from typing import Any

from relay.types import RowToPark

ParkRow = Callable[[Any, RowToPark], None]

_park: list[ParkRow] = []


def register_park(park: ParkRow) -> None:
    """Say who parks rows; the last one said is asked."""
    _park[:] = [park]


def may_park() -> bool:
    """Tell whether somebody parks rows."""
    return bool(_park)


def park_row(cursor: Any, row: RowToPark) -> None:
    """Park a row in the transaction of `cursor` (a DB-API cursor with named parameters)."""
    _park[0](cursor, row)
