"""CRC32C: the processor's way and the tables', against known sums and a naive one."""

import random

import pytest
from nsqfast._ext.dev.commit_rings import crc32c

from models import commit_ring
from support.seeds import seeds

# RFC 3720, B.4, and the sum that every catalogue of CRCs gives.
KNOWN = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), KNOWN)
def test_known_sums(data, expected):
    assert crc32c(data) == (expected, expected)


@pytest.mark.parametrize("seed", seeds("crc32c", 5))
def test_both_ways_are_the_naive_one(seed):
    dice = random.Random(seed)
    for size in [*range(40), dice.randrange(40, 5000)]:
        data, crc = dice.randbytes(size), dice.getrandbits(32)
        expected = commit_ring.crc32c(data, crc)
        assert crc32c(data, crc) == (expected, expected)


def test_goes_on():
    data = bytes(range(100))
    for cut in range(101):
        assert crc32c(data[cut:], crc32c(data[:cut])[0]) == crc32c(data)
