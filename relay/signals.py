"""What the relay announces, always after commit. Arguments: none; a hint, not a fact."""

from django.dispatch import Signal

relay_changed = Signal()
rows_parked = Signal()
lag_changed = Signal()
incidents_changed = Signal()
processes_changed = Signal()
