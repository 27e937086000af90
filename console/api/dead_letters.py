"""Dead letters by API: the list and one of them. Contents stay hidden: lengths and digests only."""

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.base import Endpoint, answer, page_of
from console.api.problems import NotThere
from console.api.shapes import CURSOR, LETTER_FILTER, LIMIT, LetterDetailShape, LetterPageShape
from console.letter_filter import read_letter_filter
from dlq.facade import get_dead_letter, list_dead_letters


class DeadLetters(Endpoint):
    """The dead letters."""

    @extend_schema(
        operation_id="list_dead_letters", parameters=[*LETTER_FILTER, CURSOR, LIMIT], responses=LetterPageShape
    )
    def get(self, request: Request) -> Response:
        """List dead letters, newest first. Names are matched whole."""
        wanted = read_letter_filter(request.query_params)
        cursor, limit = page_of(request)
        return answer(LetterPageShape, list_dead_letters(wanted, cursor=cursor, limit=limit))


class DeadLetter(Endpoint):
    """One dead letter."""

    @extend_schema(operation_id="get_dead_letter", responses=LetterDetailShape)
    def get(self, request: Request, dead_letter_id: UUID) -> Response:
        """Show one dead letter: what happened, where, why, and how large what it holds is."""
        del request
        found = get_dead_letter(dead_letter_id)
        if found is None:
            raise NotThere(f"There is no dead letter {dead_letter_id}.")
        return answer(LetterDetailShape, found)
