"""What may be shown of a record key."""

import hashlib
import hmac


def label_key(key: bytes | None, secret: str) -> str:
    """Return `key#` + 8 hex of HMAC-SHA-256, the same for the same key, so that rows can be grouped unseen."""
    if key is None:
        return "no key"
    return "key#" + hmac.new(secret.encode(), key, hashlib.sha256).hexdigest()[:8]
