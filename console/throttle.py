"""Slow down guessing of passwords: failures are counted per account and address, and per address.

Counting is one statement on a row of its own, committed at once, so that many guesses at the same time are all
counted. A throttled sign-in is refused before the password is looked at, so waiting out costs the guesser the wait.
Behind a proxy the web server must be told to trust its X-Forwarded-For, or all people share one address.
"""

import hashlib
import math

from django.conf import settings
from django.db import connection

from console.words import duration_words

_COUNT = """
INSERT INTO console_signinthrottle AS t (key, failures, window_started_at) VALUES (%s, 1, clock_timestamp())
ON CONFLICT (key) DO UPDATE SET
    failures = CASE WHEN t.window_started_at <= clock_timestamp() - make_interval(secs => %s) THEN 1
                    ELSE t.failures + 1 END,
    window_started_at = CASE WHEN t.window_started_at <= clock_timestamp() - make_interval(secs => %s)
                             THEN clock_timestamp() ELSE t.window_started_at END
"""
_WAIT = """
SELECT extract(epoch FROM window_started_at + make_interval(secs => %s) - clock_timestamp())::float
FROM console_signinthrottle WHERE key = %s AND failures >= %s
"""
_SWEEP = "DELETE FROM console_signinthrottle WHERE window_started_at <= clock_timestamp() - make_interval(secs => %s)"


def wait_s(account: str, address: str) -> int:
    """Seconds until this account may be tried again from this address; 0 = now."""
    return max(_wait(key, bound) for key, bound in _keys(account, address))


def record_failure(account: str, address: str) -> None:
    """Count a failed sign-in, and sweep windows that are over."""
    window = settings.SIGN_IN_WINDOW_S
    with connection.cursor() as cursor:
        cursor.execute(_SWEEP, [window])
        for key, _ in _keys(account, address):
            cursor.execute(_COUNT, [key, window, window])


def forget(account: str, address: str) -> None:
    """Start anew for this account after it signed in; what the address did with other accounts stays counted."""
    (own, _), _ = _keys(account, address)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM console_signinthrottle WHERE key = %s", [own])


def words(seconds: int) -> str:
    """What a throttled person reads."""
    return (
        f"Too many failed sign-ins. Wait {duration_words(float(seconds))}, then try again; "
        "until then no password is checked. An admin can set a new password."
    )


def _keys(account: str, address: str) -> tuple[tuple[str, int], tuple[str, int]]:
    own = (_digest("account", account.casefold(), address), settings.SIGN_IN_FAILURES_PER_ACCOUNT)
    return own, (_digest("address", address), settings.SIGN_IN_FAILURES_PER_ADDRESS)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _wait(key: str, bound: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_WAIT, [settings.SIGN_IN_WINDOW_S, key, bound])
        row = cursor.fetchone()
    return max(0, math.ceil(row[0])) if row else 0
