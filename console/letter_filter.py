"""Read from an address which dead letters are meant: pages, the API and commands narrow by the same names."""

from django.http import QueryDict

from console.filters import read_choice, read_since, read_text
from dlq.types import DeadLetterFilter, DeadLetterState

ANY_STATE = "any"
STATES = [*(state.value for state in DeadLetterState), ANY_STATE]
# What a filter may say beside its state, as addresses name it.
NAMES = ("group", "topic", "type", "error", "fingerprint", "key", "since")


def read_letter_filter(query: QueryDict) -> DeadLetterFilter:
    """The filter of an address; parked ones when it names no state.

    Raises:
        BadFilter: a value that cannot be meant, with what would be right.
    """
    state = read_choice(query, "state", STATES, DeadLetterState.PARKED.value)
    return DeadLetterFilter(
        group=read_text(query, "group"),
        topic=read_text(query, "topic"),
        event_type=read_text(query, "type"),
        error_class=read_text(query, "error"),
        fingerprint=read_text(query, "fingerprint"),
        key_label=read_text(query, "key"),
        state="" if state == ANY_STATE else state,
        since=read_since(query),
    )
