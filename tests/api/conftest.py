"""The personas of the pages, for the API."""

from tests.web.conftest import as_role, make_person

__all__ = ["as_role", "make_person"]
