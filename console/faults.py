"""One broken source never blanks a page: read it, or show a fault with an id to quote."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from django.db import OperationalError, transaction

log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A source that could not be read: what is missing, what to do, and the id that the log has too."""

    what: str
    todo: str
    correlation_id: str


def read_or_fault(what: str, read: Callable[..., T], /, *args: Any, todo: str = "", **kwargs: Any) -> T | Fault:
    """Call `read`; on any error log it and give a `Fault` instead.

    The database itself being away is not a fault of one source: it is raised, and the page answers 503.
    A savepoint keeps a failed query from spoiling the caller's transaction.
    """
    try:
        with transaction.atomic():
            return read(*args, **kwargs)
    except OperationalError:
        raise
    except Exception:
        correlation_id = secrets.token_hex(4)
        log.exception("page.source_failed", source=what, correlation_id=correlation_id)
        return Fault(
            what=what,
            todo=todo
            or "What is shown elsewhere on this page is not affected. It is read again with the next refresh.",
            correlation_id=correlation_id,
        )
