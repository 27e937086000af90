"""The partition of a key is the one that Kafka's own clients choose."""

import pytest

from relay.domain.partitioner import murmur2, partition_of

# Of the tests of Apache Kafka's own murmur2 (signed 32-bit integers there).
KNOWN = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "signed"), KNOWN)
def test_the_hash_is_that_of_apache_kafka(key, signed):
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_a_key_has_a_partition_and_no_key_has_none():
    assert 0 <= partition_of(b"k", 6) < 6
    assert partition_of(b"", 6) is not None
    assert partition_of(None, 6) is None
    assert partition_of(b"k", 0) is None
