"""Read from an address which dead letters are meant: pages, the API and commands narrow by the same names."""

from django.http import QueryDict

from console.filters import BadFilter, read_choice, read_since, read_text
from dlq.types import DeadLetterFilter, DeadLetterState

ANY_STATE = "any"
STATES = [*(state.value for state in DeadLetterState), ANY_STATE]
# What a filter may say beside its state, as addresses name it.
NAMES = (
    "failure", "group", "topic", "type", "error", "fingerprint", "key", "since", "until", "replays", "needs_human",
)  # fmt: skip
REPLAYS_MOST = 1_000


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
        until=read_since(query, "until"),
        failure_group=_read_number(query, "failure", "the number of a failure group, such as 118", 10**15),
        replays=_read_number(query, "replays", "how often it failed again at least", REPLAYS_MOST) or 0,
        needs_human=read_choice(query, "needs_human", ["", "1"], "") == "1",
    )


def _read_number(query: QueryDict, name: str, what: str, most: int) -> int | None:
    text = read_text(query, name).upper().removeprefix("G-")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) <= most):
        raise BadFilter(f"{name} is {what}: a whole number up to {most:,}.")
    return int(text)
