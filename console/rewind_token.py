"""What a person saw of a rewind, signed: applying it does exactly that, or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.core import signing

from console.actions.base import BadInput, StaleAct
from relay.types import RewindPlan

_SALT = "console.rewind"
Move = tuple[int, int | None, int]
"""(partition, committed before, wanted)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRewind:
    """The preview that was shown: only partitions that move. `query` leads back to it."""

    group: str
    topic: str
    words: str
    moves: Sequence[Move]
    query: str


def sign_rewind(plan: RewindPlan, query: str) -> str:
    """The token of a preview; "" when nothing would move."""
    moves = [(step.partition, step.before, step.after) for step in plan.steps if step.moves]
    if not moves:
        return ""
    wish = plan.wish
    return signing.dumps([wish.group, wish.topic, plan.words, moves, query], salt=_SALT, compress=True)


def read_rewind(token: str) -> SeenRewind:
    """The preview of a token.

    Raises:
        StaleAct: it was shown more than `REWIND_PREVIEW_S` ago.
        BadInput: it is not one of ours.
    """
    try:
        group, topic, words, moves, query = signing.loads(token, salt=_SALT, max_age=settings.REWIND_PREVIEW_S)
    except signing.SignatureExpired as old:
        raise StaleAct(
            f"This preview is older than {settings.REWIND_PREVIEW_S // 60} minutes. Preview the rewind again."
        ) from old
    except signing.BadSignature as bad:
        raise BadInput("token", "This preview was not made here, or was cut. Preview the rewind again.") from bad
    return SeenRewind(group=group, topic=topic, words=words, moves=[tuple(move) for move in moves], query=query)
