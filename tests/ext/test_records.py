"""Cutting a block at a delimiter, and joining chosen records to MPUBs."""

import itertools
import random

import numpy as np
import pytest
from nsqfast._ext.protocol.publish_command import encode as encode_list
from nsqfast._ext.protocol.records import encode, split

from support.seeds import seeds

HEAD = b"MPUB t\n"


def cut(data, delimiter=b"\n"):
    pieces = split(data, delimiter[0])
    starts, ends = np.frombuffer(pieces.starts, np.int64), np.frombuffer(pieces.ends, np.int64)
    bodies = [bytes(data[start:end]) for start, end in zip(starts, ends, strict=True)]
    return starts, ends, pieces.rest, bodies


def batches(data, starts, ends, chosen, count_max, size_max):
    """All MPUBs of a block; every call moves on."""
    first, found = 0, []
    while True:
        encoded, after = encode(data, starts, ends, chosen, first, count_max, size_max)
        if encoded is None:
            assert after == len(starts)
            return found
        assert after > first
        first = after
        found.append(encoded)


def as_sent(bodies):
    """What the client sends of a list behind line and size."""
    return encode_list(HEAD, bodies)[len(HEAD) + 4 :]


@pytest.mark.parametrize(
    ("data", "bodies", "rest"),
    [
        (b"", [], 0),
        (b"\n", [], 1),
        (b"a\nbc\n", [b"a", b"bc"], 5),
        (b"a\n\n\nb\nrest", [b"a", b"b"], 6),
        (b"rest", [], 0),
        (b"a\r\n\0\xff\n", [b"a\r", b"\0\xff"], 6),
    ],
)
def test_split(data, bodies, rest):
    for kind in (bytes, bytearray, memoryview):
        *_, found_rest, found = cut(kind(data))
        assert (found, found_rest) == (bodies, rest)


@pytest.mark.parametrize("delimiter", [b"\0", b";", b"\xff"])
def test_any_byte_is_a_delimiter(delimiter):
    *_, rest, bodies = cut(delimiter.join([b"", b"one\n", b"", b"two", b"half"]), delimiter)
    assert bodies == [b"one\n", b"two"]
    assert rest == len(b"?one\n??two?")


@pytest.mark.parametrize("delimiter", [-1, 256])
def test_a_delimiter_is_one_byte(delimiter):
    with pytest.raises(ValueError, match="one byte"):
        split(b"abc", delimiter)


@pytest.mark.parametrize("seed", seeds("records", 20))
def test_random_blocks_against_python(seed):
    dice = random.Random(seed)
    data = bytes(dice.choice(b"\n\nab\0\xffcdef") for _ in range(dice.randrange(3000)))
    starts, ends, rest, bodies = cut(data)
    whole, newline, _ = data.rpartition(b"\n")
    assert rest == len(whole + newline)
    assert bodies == [line for line in whole.split(b"\n") if line]
    chosen = np.array([dice.random() < 0.8 for _ in bodies], np.uint8)
    count_max, size_max = dice.choice([1, 3, 1000]), dice.choice([1, 9, 40, 5000])
    found = batches(data, starts, ends, chosen, count_max, size_max)
    assert [body for one in found for body in one.bodies()] == [
        body for body, is_wanted in zip(bodies, chosen, strict=True) if is_wanted
    ]
    for one in found:
        assert one.data == as_sent(one.bodies())
        assert len(one) == one.count <= count_max
        assert len(one.data) <= size_max or one.count == 1
    # None of them could have had the first record of the next one.
    for one, following in itertools.pairwise(found):
        fitted = len(one.data) + 4 + len(following.bodies()[0])
        assert one.count == count_max or fitted > size_max


def test_places_that_are_not_in_the_block_are_refused():
    chosen = np.ones(1, np.uint8)
    for start, end in ((0, 4), (-1, 2), (2, 1), (5, 9)):
        with pytest.raises(ValueError, match="not within"):
            encode(b"abc", np.array([start]), np.array([end]), chosen, 0, 10, 100)
    with pytest.raises(ValueError, match="one item for each"):
        encode(b"abc", np.array([0]), np.array([1, 2]), chosen, 0, 10, 100)


def test_an_empty_body_is_encoded_as_it_is():
    """Who publishes leaves them out; nothing is read past the block's end for one that stands there."""
    encoded, _ = encode(b"abc", np.array([3]), np.array([3]), np.ones(1, np.uint8), 0, 10, 100)
    assert encoded.bodies() == [b""]
