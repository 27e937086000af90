"""Which lock stands for a key. Pure."""

from hashlib import blake2b


def lane_of(group: str, topic: str, key: bytes) -> int:
    """Return the signed 64-bit number that stands for a key of a topic in a group.

    It is the advisory lock's number and the name of the key's queue. Two keys with one number would only wait for
    each other: with ten million keys that has a chance of about one in a million.
    """
    parts = (group.encode(), topic.encode(), key)
    told = b"".join(len(part).to_bytes(4) + part for part in parts)
    return int.from_bytes(blake2b(told, digest_size=8, person=b"signalbox.key").digest(), signed=True)
