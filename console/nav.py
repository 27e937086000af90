"""The pages in the navigation, with what waits on them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog
from django.db import DatabaseError
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from console.permissions import Action, may
from console.words import number_words
from relay.facade import list_open_incidents
from relay.types import Aspect, IncidentView, Severity

log = structlog.get_logger(__name__)


class _Page(NamedTuple):
    """The URL's name, the label, how the kinds of the incidents begin that belong to the page, and what is under it."""

    name: str
    label: str
    prefixes: tuple[str, ...]
    under: str = ""


_PAGES: tuple[tuple[str, tuple[_Page, ...]], ...] = (
    (
        "Watch",
        (_Page("now", "Now", ()), _Page("relay", "Relay", ("relay_",)), _Page("lag", "Lag", ("lag_", "data_loss"))),
    ),
    (
        "Put right",
        (
            _Page("failure_groups", "Dead letters", ("dead_letter",), "/dead-letters/"),
            _Page("quarantined", "Quarantined keys", ("quarantine_", "breaker_")),
            _Page("replays", "Replay jobs", ("replay_",)),
        ),
    ),
    (
        "Check",
        (
            _Page("system", "System", ("process_", "beat_", "valkey_", "consumer_")),
            _Page("policies", "Policies", ()),
            _Page("audit", "Audit", ()),
            _Page("permissions", "Your permissions", ()),
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NavItem:
    """One entry; `count` is empty when there is nothing to say."""

    label: str
    url: str
    current: bool
    count: str = ""
    count_words: str = ""
    state: str = ""


def list_nav(request: HttpRequest) -> list[tuple[str, list[NavItem]]]:
    """The headings with their pages; a page without a URL is not shown."""
    incidents = _open_incidents(request)
    found = [
        (heading, [item for page in pages if (item := _item(request, page, incidents)) is not None])
        for heading, pages in _PAGES
    ]
    return [(heading, items) for heading, items in found if items]


def _item(request: HttpRequest, page: _Page, incidents: Sequence[IncidentView]) -> NavItem | None:
    try:
        url = reverse(page.name)
    except NoReverseMatch:
        return None
    own = incidents if page.name == "now" else [i for i in incidents if i.kind.value.startswith(page.prefixes)]
    item = NavItem(label=page.label, url=url, current=_is_current(request.path, page, url))
    if not own:
        return item
    worst = Aspect.BAD if any(i.severity is Severity.BAD for i in own) else Aspect.WARN
    words = "open incident" if len(own) == 1 else "open incidents"
    return replace(item, count=number_words(len(own)), count_words=words, state=worst.value)


def _is_current(path: str, page: _Page, url: str) -> bool:
    """Whether the path is the page's or under it; what is under one page may be under a nearer one."""
    if url in (path, "/"):
        return path == url
    if not page.under:
        return path.startswith(url)
    nearer = (other.under or _address(other) for _, pages in _PAGES for other in pages if other is not page)
    return path.startswith(page.under) and not any(
        len(start) > len(page.under) and path.startswith(start) for start in nearer
    )


def _address(page: _Page) -> str:
    try:
        return reverse(page.name)
    except NoReverseMatch:
        return ""


def _open_incidents(request: HttpRequest) -> list[IncidentView]:
    if not may(request.user, Action.VIEW).ok:
        return []
    try:
        return list_open_incidents()
    except DatabaseError:
        log.warning("nav.incidents_unreadable", exc_info=True)
        return []
