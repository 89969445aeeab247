"""The adapters by themselves: streams in pieces of any size, nonsense, and little that unfolds to much."""

import json
import random
import zlib

import cramjam
import pytest
from nsqfast._ext.protocol.v2 import FrameDecoder

from nsqfast.streams.adapter import PIECE_SIZE_MAX, StreamError
from nsqfast.streams.deflate import Deflate
from nsqfast.streams.snappy import STREAM_IDENTIFIER, Snappy
from support.core import Peer, end_commit, make_registry

MAKERS = {"deflate": lambda: Deflate(6), "snappy": Snappy}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.fixture
def dice():
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    return random.Random(seed)


def pieces_of(dice, data):
    while data:
        size = dice.choice([1, 2, 10, 1000, 100_000])
        yield data[:size]
        data = data[size:]


def test_streams_in_pieces_of_any_size(make, dice):
    sender, receiver = make(), make()
    for _ in range(50):
        plain = dice.choice([b"a" * 1000, dice.randbytes(500), b""]) * dice.randrange(200)
        packed = sender.pack(plain)
        got = [one for piece in pieces_of(dice, packed) for one in receiver.unpack(piece)]
        assert b"".join(got) == plain
        assert all(0 < len(one) <= PIECE_SIZE_MAX for one in got)


def test_a_stream_that_begins_with_nothing(make):
    sender, receiver = make(), make()
    stream = sender.pack(b"") + sender.pack(b"hello") + sender.pack(b"")
    assert b"".join(receiver.unpack(stream)) == b"hello"


def test_what_is_written_others_can_read(dice):
    plain = [dice.randbytes(dice.randrange(1, 200_000)) for _ in range(5)]
    deflate, snappy = Deflate(1), Snappy()
    stream = b"".join(map(deflate.pack, plain))
    assert zlib.decompressobj(-15).decompress(stream) == b"".join(plain)
    assert stream.endswith(b"\x00\x00\xff\xff")
    stream = b"".join(map(snappy.pack, plain))
    assert bytes(cramjam.snappy.decompress(stream)) == b"".join(plain)
    assert stream.count(STREAM_IDENTIFIER) == 1


def test_little_that_unfolds_to_much_is_given_in_pieces():
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(bytes(200 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert len(bomb) < 300_000
    unfolding = Deflate(6).unpack(bomb)
    assert [len(next(unfolding)) for _ in range(100)] == [PIECE_SIZE_MAX] * 100


def test_all_that_has_come_is_unfolded(dice):
    """Wherever a stream was cut: zlib keeps what a piece had no room for, also when it has read all of its input."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    plain = b"".join(bytes(dice.randrange(70_000)) + dice.randbytes(3) for _ in range(8))
    stream = packer.compress(plain) + packer.flush()
    for cut in range(len(stream)):
        got = b"".join(Deflate(6).unpack(stream[:cut]))
        assert got == zlib.decompressobj(-15).decompress(stream[:cut])


def chunk(kind, data):
    return bytes([kind]) + len(data).to_bytes(3, "little") + data


GOOD = bytes(cramjam.snappy.compress(b"hello" * 100))[len(STREAM_IDENTIFIER) :]


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (GOOD, "no stream identifier"),
        (chunk(0xFF, b"sNaPpy"), "not a stream identifier"),
        (chunk(0xFF, b""), "not a stream identifier"),
        (STREAM_IDENTIFIER + chunk(0x02, b"abc"), "unknown type 2"),
        (STREAM_IDENTIFIER + b"\x00\xff\xff\xff", "too large"),
        (STREAM_IDENTIFIER + chunk(0x00, b""), "snappy: "),
        (STREAM_IDENTIFIER + GOOD[:4] + b"\x00\x00\x00\x00" + GOOD[8:], "snappy: "),
        (STREAM_IDENTIFIER + chunk(0x00, b"abcd" + b"\xff\xff\xff\xff\x0f" + b"x" * 9), "snappy: "),
        (STREAM_IDENTIFIER + chunk(0x01, b"abcd" + b"x" * 65537), "snappy: "),
    ],
)
def test_what_is_no_snappy(stream, error):
    with pytest.raises(StreamError, match=error):
        list(Snappy().unpack(stream))


def test_chunks_that_may_be_skipped_are_not_held(dice):
    stream = STREAM_IDENTIFIER + chunk(0xFE, bytes(5_000_000)) + chunk(0x80, b"abc") + GOOD
    snappy, got, held = Snappy(), b"", 0
    for start in range(0, len(stream), 65536):
        got += b"".join(snappy.unpack(stream[start : start + 65536]))
        held = max(held, snappy.incomplete_size)
    assert got == b"hello" * 100
    assert held < 200_000


@pytest.mark.parametrize(
    "stream", [b"\x07", b"not deflate at all", zlib.compress(b"with a header")]
)
def test_what_is_no_deflate(stream):
    with pytest.raises(StreamError, match="deflate: "):
        list(Deflate(6).unpack(stream))


def test_nothing_may_follow_the_end_of_a_deflate_stream():
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    whole = packer.compress(b"all") + packer.flush()
    deflate = Deflate(6)
    assert list(deflate.unpack(whole)) == [b"all"]
    with pytest.raises(StreamError, match="behind the end"):
        list(deflate.unpack(b"more"))
    with pytest.raises(StreamError, match="behind the end"):
        list(Deflate(6).unpack(whole + b"more"))


IDENTIFY_BODY = b'{"feature_negotiation":true,"%s":true}'


def ask(kind):
    body = IDENTIFY_BODY % kind
    return b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body


def test_a_session_gives_up_on_a_bomb_after_a_line(tmp_path):
    registry = make_registry(tmp_path)
    peer = Peer(registry)
    peer.send(ask(b"deflate"))
    [(_, answer)] = peer.receive()
    assert json.loads(answer)["deflate"] is True
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    peer.send(packer.compress(bytes(50 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH))
    assert peer.transport.has_eof
    registry.topics.close()


def test_nonsense_drops_the_session(tmp_path):
    registry = make_registry(tmp_path)
    peer = Peer(registry)
    peer.send(ask(b"snappy"))
    peer.receive()
    peer.send(b"PUB t\n\x00\x00\x00\x01x")
    assert peer.transport.is_aborted
    registry.topics.close()


@pytest.mark.parametrize("kind", [b"snappy", b"deflate"])
def test_the_change_waits_for_answers_that_wait_for_the_disk(tmp_path, kind):
    registry = make_registry(tmp_path, durable="always")
    peer = Peer(registry)
    peer.send(b"PUB t\n\x00\x00\x00\x01x" + ask(kind) + b"thrown away")
    assert peer.receive() == []
    for _ in range(20):
        peer.send(b"thrown away, too" * 10_000)
        with memoryview(peer.connection.get_buffer(1)) as room:
            assert len(room) < 1_000_000
    end_commit(registry)
    registry.turn.end()
    plain = peer.transport.written[0]
    (_, first), (_, second) = FrameDecoder().feed(plain)
    assert first == b"OK"
    assert json.loads(second)[kind.decode()] is True
    registry.turn.end()
    packed = b"".join(peer.transport.written[1:])
    assert b"".join(MAKERS[kind.decode()]().unpack(packed)) == b"\x00\x00\x00\x06\x00\x00\x00\x00OK"
    registry.topics.close()
