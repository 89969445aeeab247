"""snappy and deflate: any cut gives the same bytes, in bounded pieces, and the libraries themselves agree."""

import random
import zlib

import cramjam

from fuzz.common import pieces
from nsqfast.streams.adapter import PIECE_SIZE_MAX, StreamError
from nsqfast.streams.deflate import Deflate
from nsqfast.streams.snappy import CHUNK_SIZE_MAX, STREAM_IDENTIFIER, Snappy

OUT_SIZE_MAX = 1 << 18
WORDS = [STREAM_IDENTIFIER, b"\x00\x00\xff\xff", b"\x01\x05\x00\x00", b"\xfe\x01\x00\x00", b"\x80"]


def seeds():
    text = b"hello " * 30
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(bytes(1 << 19)) + packer.flush()
    return [
        b"\x00\x02" + Deflate(6).pack(text),
        b"\x00\x01" + bomb,
        b"\x01\x02" + Snappy().pack(text),
        b"\x01\x01" + STREAM_IDENTIFIER + b"\xfe\x03\x00\x00abc" + Snappy().pack(b"x"),
        b"\x01\x00" + Snappy().pack(random.Random(1).randbytes(300)),
    ]


def unpack(adapter, data):
    """(all that came out, whether it ended with an error, whether we stopped reading)."""
    out, size = [], 0
    try:
        for piece in data:
            for unpacked in adapter.unpack(piece):
                assert 0 < len(unpacked) <= PIECE_SIZE_MAX
                out.append(unpacked)
                size += len(unpacked)
                if size > OUT_SIZE_MAX:
                    return b"".join(out), False, True
            assert not isinstance(adapter, Snappy) or adapter.incomplete_size < CHUNK_SIZE_MAX + 4
    except StreamError:
        return b"".join(out), True, False
    return b"".join(out), False, False


def check_deflate(data, whole):
    out, failed, stopped = whole
    reference = zlib.decompressobj(-15)
    try:
        expected = reference.decompress(data, OUT_SIZE_MAX + PIECE_SIZE_MAX)
    except zlib.error:
        assert failed or stopped
        return
    if stopped:
        assert out == expected[: len(out)]
    elif not failed:
        assert out == expected
    else:
        assert reference.unused_data


def check_snappy(adapter, data, whole):
    out, failed, stopped = whole
    if stopped or failed or adapter.incomplete_size or adapter._skip_size or not data:
        return
    assert bytes(cramjam.snappy.decompress(data)) == out


def check(data):
    if len(data) < 2:
        return
    make = Snappy if data[0] & 1 else lambda: Deflate(6)
    pattern, data = data[1], data[2:]
    adapter = make()
    whole = unpack(adapter, [data])
    split = unpack(make(), pieces(data, pattern))
    # An error takes along what the library would have given with it, so a cut may show more before it.
    assert whole[1:] == split[1:] or whole[2] or split[2]
    assert split[0].startswith(whole[0]) or whole[0].startswith(split[0])
    assert whole == split or whole[1] or whole[2]
    if data and isinstance(adapter, Snappy):
        check_snappy(adapter, data, whole)
    elif data:
        check_deflate(data, whole)
    sender, receiver = make(), make()
    packed = sender.pack(data) + sender.pack(data[::-1])
    assert b"".join(receiver.unpack(packed)) == data + data[::-1]
