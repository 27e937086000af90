"""The exact bytes of a parked record: the only module that fills or reads the `original_...` columns.

Headers are stored as a JSON list of [name, base64 or null] in order: byte-exact, duplicates and nulls kept.
Encryption at rest comes with issue 5 and fits in here.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass

from relay.types import ConsumerRecord

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Originals:
    """What the three columns hold."""

    key: bytes | None
    value: bytes | None
    headers: bytes | None


def seal(record: ConsumerRecord) -> Originals:
    """Return the columns for a record's bytes."""
    headers = None if record.headers is None else encode_headers(record.headers)
    return Originals(key=record.key, value=record.value, headers=headers)


def encode_headers(headers: Headers) -> bytes:
    """Encode headers byte-exact."""
    return json.dumps([[name, None if v is None else b64encode(v).decode()] for name, v in headers]).encode()


def decode_headers(stored: bytes | memoryview | None) -> Headers | None:
    """Return the headers as they lay in Kafka; None when the client could not read them."""
    if stored is None:
        return None
    return tuple((name, None if v is None else b64decode(v)) for name, v in json.loads(bytes(stored)))


def unseal(originals: Originals) -> tuple[bytes | None, bytes | None, Headers | None]:
    """Return key, value and headers as they lay in Kafka."""
    return originals.key, originals.value, decode_headers(originals.headers)
