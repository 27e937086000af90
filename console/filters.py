"""Read what a list is narrowed by from the URL. A value that cannot be meant is refused in words, never ignored."""

import re
from collections.abc import Collection
from datetime import datetime, timedelta

from django.conf import settings
from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_datetime

_SPAN = re.compile(r"(\d{1,4})(m|h|d)")
_SPAN_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class BadFilter(ValueError):
    """A filter in the URL that cannot be meant. The text says which one, what is wrong and what would be right."""


def read_text(query: QueryDict, name: str) -> str:
    """A free text filter, trimmed; empty = any.

    Raises:
        BadFilter: longer than `LIST_FILTER_CHARS`, or with a character that no name has.
    """
    return _checked(query.get(name, "").strip(), name)


def read_name(query: QueryDict, name: str) -> str:
    """A name of Kafka's, with the spaces around it that it may have; empty = any.

    Raises:
        BadFilter: longer than `LIST_FILTER_CHARS`, or with a character that cannot be shown.
    """
    return _checked(query.get(name, ""), name)


def _checked(text: str, name: str) -> str:
    if len(text) > settings.LIST_FILTER_CHARS:
        raise BadFilter(f"{name} has {len(text)} characters; at most {settings.LIST_FILTER_CHARS} are allowed.")
    if not text.isprintable():
        raise BadFilter(f"{name} holds a character that cannot be shown. Type it again instead of pasting it.")
    return text


def read_choice(query: QueryDict, name: str, choices: Collection[str], default: str) -> str:
    """One of a closed list.

    Raises:
        BadFilter: something else.
    """
    text = query.get(name, "").strip() or default
    if text not in choices:
        raise BadFilter(f"{name} can be {_or(choices)}, not “{_short(text)}”.")
    return text


def read_page(query: QueryDict, name: str = "page") -> int:
    """A page number from 1.

    Raises:
        BadFilter: not a whole number from 1 to 9999.
    """
    text = query.get(name, "").strip() or "1"
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:5]) <= 9_999):
        raise BadFilter(f"{name} is a whole number from 1, not “{_short(text)}”.")
    return int(text)


def read_since(query: QueryDict, name: str = "since") -> datetime | None:
    """A time, or a span before now such as `30m`, `1h` or `7d`; empty = None.

    Raises:
        BadFilter: neither of them.
    """
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        return _span_ago(text) or _moment(text)
    except (ValueError, OverflowError) as error:
        raise BadFilter(
            f"{name} is a span such as 30m, 1h or 7d, or a time such as 2026-03-10T10:42, not “{_short(text)}”."
        ) from error


def read_moment(query: QueryDict, name: str) -> datetime | None:
    """A time such as `2026-03-10T10:42:00Z` (without a zone: the console's own); empty = None.

    Raises:
        BadFilter: something else.
    """
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        return _moment(text)
    except (ValueError, OverflowError) as error:
        raise BadFilter(f"{name} is a time such as 2026-03-10T10:42:00Z, not “{_short(text)}”.") from error


def _span_ago(text: str) -> datetime | None:
    found = _SPAN.fullmatch(text)
    return timezone.now() - timedelta(**{_SPAN_UNITS[found[2]]: int(found[1])}) if found else None


def _moment(text: str) -> datetime:
    # In a query string a plus sign arrives as a space.
    moment = parse_datetime(text.replace(" ", "+") if "T" in text else text)
    if moment is None:
        raise ValueError(text)
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)


def _or(choices: Collection[str]) -> str:
    *first, last = choices
    return f"{', '.join(first)} or {last}" if first else last


def _short(text: str) -> str:
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return printable if len(printable) <= 40 else printable[:40] + "…"
