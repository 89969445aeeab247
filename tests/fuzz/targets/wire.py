"""Lines, numbers, frames and stored records, each against a few lines of Python; streams cut anywhere."""

from nsqfast._ext.dev.structures import decimal, decode_record, encode_record, parse_command
from nsqfast._ext.protocol.v2 import FrameDecoder

from fuzz.common import pieces
from nsqfast.errors import ProtocolError

LINE_SIZE_MAX = 16384
FRAME_SIZE_MAX = 1000
WORDS = [b"PUB t\n", b"FIN ", b"\r\n", b"  ", b"\x00\x00\x00\x06\x00\x00\x00\x00OK", b"DPUB t 1\n"]


def seeds():
    return [
        b"\x02PUB topic\r\n",
        b"\x01FIN 0123456789abcdef\nNOP\n",
        b"\x03" + b"\x00\x00\x00\x06\x00\x00\x00\x00OK" * 3,
        b"\x00REQ 0123456789abcdef 18446744073709551617\n",
        b"\x00REQ 0123456789abcdef 0 TimeoutError: no answer\n",
        b"\x00" + bytes(10) + b"0123456789abcdefbody",
        b"\x00" + bytes(10) + b"gH23456789abcdefbody",
    ]


def read_line(data):
    line, newline, _ = data.partition(b"\n")
    if not newline or len(line) >= LINE_SIZE_MAX:
        return None if len(data) < LINE_SIZE_MAX else "broken"
    name, *parameters = line.removesuffix(b"\r").split(b" ")
    return len(line) + 1, name, len(parameters), parameters[:3]


def check_line(data):
    expected = read_line(data)
    for scanned in {0, min(data.find(b"\n") % (len(data) + 1), LINE_SIZE_MAX)}:
        try:
            found = parse_command(data, scanned)
        except ValueError:
            found = "broken"
        assert found == expected
    for text in data.splitlines()[:4]:
        digits = all(48 <= byte < 58 for byte in text)
        assert decimal(text) == (int(text or b"0") % 2**64 if digits and len(text) < 4000 else None)


def read_frames(data):
    """Frames, and whether an impossible one follows."""
    frames = []
    while len(data) >= 4:
        size = int.from_bytes(data[:4], "big")
        if not 4 <= size <= FRAME_SIZE_MAX:
            return frames, True
        if len(data) < 4 + size:
            break
        frames.append((int.from_bytes(data[4:8], "big"), data[8 : 4 + size]))
        data = data[4 + size :]
    return frames, False


def check_frames(data, pattern):
    expected, is_bad = read_frames(data)
    decoder, found = FrameDecoder(FRAME_SIZE_MAX), []
    try:
        for piece in pieces(data, pattern):
            found += decoder.feed(piece)
    except ProtocolError:
        # What came whole together with the bad one is lost with it; the stream is over anyway.
        assert is_bad
        assert found == expected[: len(found)]
    else:
        assert (found, False) == (expected, is_bad)


def check_record(data):
    try:
        timestamp_ns, attempts, number, body = decode_record(data)
    except ValueError:
        assert len(data) < 26
        return
    assert body == data[26:]
    again = encode_record(body, timestamp_ns, attempts, number)
    assert again[:10] == data[:10]
    assert decode_record(again) == (timestamp_ns, attempts, number, body)


def check(data):
    check_line(data[1:])
    check_frames(data[1:], data[0] if data else 0)
    check_record(data[1:])
