"""What commands share that act for a person: who it is, how a refusal ends the command, how answers are printed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser
from django.http import QueryDict
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer

from console.actions.base import ActDenied, ActError, BadInput
from console.filters import BadFilter
from console.letter_filter import NAMES, STATES, read_letter_filter
from dlq.facade import BadQuery, ReplayError
from dlq.types import DeadLetterFilter, Selection

WRONG, DENIED, STALE = 2, 3, 4
"""Exit codes: wrong use, the actor may not, things are not (any more) as the call supposes."""


def add_actor(parser: CommandParser) -> None:
    """Let a command say who acts; the permissions of that account decide."""
    parser.add_argument("--actor", required=True, metavar="NAME", help="the account that acts; it stands in the audit")


def add_filter(parser: CommandParser) -> None:
    """Let a command be narrowed by the names that the list's address has."""
    parser.add_argument("--state", choices=STATES, default="parked")
    for name in NAMES:
        parser.add_argument(f"--{name.replace('_', '-')}", default="")


def read_filter(options: dict[str, Any]) -> DeadLetterFilter:
    """The filter that the options say."""
    query = QueryDict(mutable=True)
    query.update({name: options[name] for name in ("state", *NAMES) if options.get(name)})
    return read_letter_filter(query)


def read_selection(options: dict[str, Any]) -> Selection:
    """Ids, or what the filter matches.

    Raises:
        CommandError: neither, or both; all that are parked is never meant by saying nothing.
    """
    narrowed = any(options.get(name) for name in NAMES)
    if bool(options["ids"]) == narrowed:
        raise CommandError("Name dead letters by their ids, or narrow them by a filter such as --group.", returncode=2)
    return Selection(ids=options["ids"]) if options["ids"] else Selection(filter=read_filter(options))


def find_actor(name: str) -> User:
    """The account that acts.

    Raises:
        CommandError: nobody is called so.
    """
    person = User.objects.filter(username=name).first()
    if person is None:
        raise CommandError(f"Nobody is called {name!r}.", returncode=WRONG)
    return person


@contextmanager
def refusals() -> Iterator[None]:
    """End the command with the words of a refusal and a code of its own; nothing was changed."""
    try:
        yield
    except ActDenied as denied:
        raise CommandError(str(denied), returncode=DENIED) from denied
    except (BadInput, BadFilter, BadQuery) as bad:
        raise CommandError(str(bad), returncode=WRONG) from bad
    except (ActError, ReplayError) as stale:
        raise CommandError(str(stale), returncode=STALE) from stale


def as_json(kind: type[serializers.Serializer[Any]], value: object) -> str:
    """A value as the API shows it."""
    shown = json.loads(JSONRenderer().render(kind(value).data))
    return json.dumps(shown, indent=2, ensure_ascii=False)


def one_id(text: str) -> UUID:
    """An id from the command line."""
    return UUID(text)
