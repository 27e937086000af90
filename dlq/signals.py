"""What the consumers announce, always after commit. Arguments: none; a hint, not a fact."""

from django.dispatch import Signal

dead_letters_changed = Signal()
applied_changed = Signal()
policies_changed = Signal()
