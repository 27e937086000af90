"""The partition that a key goes to: murmur2 as Java's and librdkafka's `murmur2_random` compute it. Pure.

Source: Austin Appleby's MurmurHash2 (32 bit) with Kafka's seed; the sign bit is dropped.
"""

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of(key: bytes | None, partitions: int) -> int | None:
    """The partition of a key; None where the client chooses one (no key, or no partition is known)."""
    if key is None or partitions < 1:
        return None
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    whole = len(data) // 4 * 4
    found = _SEED ^ len(data)
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        found = found * _MIX & _MASK ^ word
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    found = (found ^ found >> 13) * _MIX & _MASK
    return found ^ found >> 15
