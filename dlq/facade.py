"""The door of the dlq app: other apps call what is listed here and nothing else of it."""

from dlq.handlers import Tx, UnknownGroup, handler, list_groups
from dlq.queries import BadCursor, BadFilter, BadQuery, get_dead_letter, get_dlq_status, list_dead_letters
from dlq.runtime import ConsumerDied, run_group

__all__ = [
    "BadCursor",
    "BadFilter",
    "BadQuery",
    "ConsumerDied",
    "Tx",
    "UnknownGroup",
    "get_dead_letter",
    "get_dlq_status",
    "handler",
    "list_dead_letters",
    "list_groups",
    "run_group",
]
