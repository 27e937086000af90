"""What every act of a person on the relay must say. Pure."""

from relay.errors import BadKey, BadReason

ACTOR_CHARS = 150
REASON_CHARS = 500


def require_actor(actor: str) -> str:
    """Return who acts.

    Raises:
        BadReason: nobody is named, or the name cannot be kept.
    """
    return _require_text("The name of who does this", actor, ACTOR_CHARS)


def require_reason(reason: str) -> str:
    """Return why.

    Raises:
        BadReason: it is empty, longer than `REASON_CHARS`, or cannot be kept.
    """
    return _require_text("The reason", reason, REASON_CHARS)


def require_key(key: bytes, most_bytes: int) -> bytes:
    """Return the key of a record.

    Raises:
        BadKey: no bytes, empty, or longer than any record of its topic.
    """
    if not isinstance(key, bytes) or not key:
        raise BadKey("Give the key as the record has it: one or more bytes. Rows without a key have no order to pause.")
    if len(key) > most_bytes:
        raise BadKey(f"The key has {len(key):,} bytes; a record of this topic takes {most_bytes:,} in all.")
    return key


def _require_text(what: str, text: str, most: int) -> str:
    if not text.strip():
        raise BadReason(f"{what} is missing.")
    if len(text) > most:
        raise BadReason(f"{what} has {len(text):,} characters; at most {most} are kept.")
    if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise BadReason(f"{what} holds a character that the database cannot keep.")
    return text
