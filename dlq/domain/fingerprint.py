"""Which failures are one and the same. Pure."""

import hashlib
import hmac
import re

_NOISE = (
    (re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"), "<uuid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<hex>"),
    (re.compile(r"\b[0-9a-fA-F]{12,}\b"), "<hex>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)
MESSAGE_LIMIT = 2_000


def normalise_message(message: str) -> str:
    """Replace what differs from one record to the next (ids, times, numbers, spacing) by its kind."""
    text = message[:MESSAGE_LIMIT]
    for pattern, kind in _NOISE:
        text = pattern.sub(kind, text)
    return text.strip()


def fingerprint(*, handler: str, error_class: str, message: str, frame: str, secret: str) -> str:
    """Return 16 hex that are equal for failures of one cause; an HMAC, so that no message can be guessed from it.

    `frame` is the innermost own frame as `file function`: without its line number, a fingerprint survives an
    edit above the failing line.
    """
    parts = (handler, error_class, normalise_message(message), frame)
    said = "\0".join(parts).encode("utf-8", "backslashreplace")
    return hmac.new(secret.encode(), said, hashlib.sha256).hexdigest()[:16]
