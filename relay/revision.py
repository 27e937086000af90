"""One counter that every act on the relay raises first: acts come one after the other, and runners see that one came.

What an act changes carries its revision, so that a runner reads the changes alone.
"""

from django.db import connection


def raise_revision() -> int:
    """Take the next revision; holds a lock on the counter until the caller's transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE relay_revision SET revision = revision + 1 RETURNING revision")
        revision: int = cursor.fetchone()[0]
    return revision
