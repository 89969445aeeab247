"""Streams of commands, some of them damaged; frames, bodies and packed streams."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies import BODIES, FEW, MANY, PATTERNS, QUICK, STREAMS, damaged, line
from fuzz.targets import compression, mpub, session, wire
from nsqfast.streams.deflate import Deflate
from nsqfast.streams.snappy import Snappy
from support.core import Peer, make_registry
from support.seeds import seeds

pytestmark = pytest.mark.slow


@QUICK
@given(STREAMS)
def test_commands(data):
    session.check(data)


@FEW
@given(line(PATTERNS, damaged(st.one_of(MANY.map(lambda data: data[4:]), st.binary(max_size=200)))))
def test_bodies_of_mpub(data):
    mpub.check(data)


@QUICK
@given(line(PATTERNS, damaged(st.lists(BODIES, max_size=5).map(b"".join))))
def test_frames_and_records(data):
    wire.check(data)


@QUICK
@given(line(PATTERNS, damaged(st.lists(st.binary(max_size=30), max_size=4).map(b"\n".join))))
def test_lines(data):
    wire.check(data)


PLAIN = st.binary(max_size=500) | st.integers(0, 200_000).map(bytes)


@FEW
@given(
    st.one_of(
        line(b"\x00", PATTERNS, damaged(PLAIN.map(lambda data: Deflate(6).pack(data)))),
        line(b"\x01", PATTERNS, damaged(PLAIN.map(lambda data: Snappy().pack(data)))),
    )
)
def test_packed_streams(data):
    compression.check(data)


@pytest.mark.parametrize("seed", seeds("tcp", 1))
def test_input_that_is_held_stays_below_the_limits(tmp_path, seed):
    """Whatever sizes a peer announces and however little of it is sent: at most twice the largest body."""
    print("seed", seed)
    dice, limit = random.Random(seed), 300_000
    registry = make_registry(tmp_path, max_msg_size=limit // 2, max_body_size=limit)
    for _ in range(60):
        peer = Peer(registry)
        head = dice.choice([b"PUB t\n", b"MPUB t\n", b"IDENTIFY\n", b"DPUB t 1\n", b"x" * 9000])
        sizes = [dice.choice([1, limit // 2, limit, limit + 1, 2**31 - 1]) for _ in range(4)]
        peer.send(head + b"".join(size.to_bytes(4, "big") for size in sizes))
        for _ in range(12):
            peer.send(dice.randbytes(dice.choice([1, 1000, 65536])))
            with memoryview(peer.connection.get_buffer(1)) as room:
                assert len(room) <= 2 * limit
            assert len(peer.connection.get_buffer(1).waiting()) <= limit + 65536
        peer.close()
    for topic in registry.topics.sorted():
        registry.topics.delete(topic.name)
    registry.topics.close()
