"""Commands, frames, records, ids, buffers: whole, byte by byte, and with trailing bytes."""

import random

import pytest
from nsqfast._ext.core.guid import GuidFactory
from nsqfast._ext.dev.probes import used_bytes
from nsqfast._ext.dev.structures import decimal, decode_record, encode_record, parse_command
from nsqfast._ext.protocol.buffer import ReadBuffer, WriteBuffer
from nsqfast._ext.protocol.v2 import FrameDecoder, encode

from nsqfast.errors import ProtocolError

LINES = [
    (b"NOP\n", b"NOP", 0, []),
    (b"NOP\r\n", b"NOP", 0, []),
    (b"PUB t1\n", b"PUB", 1, [b"t1"]),
    (b"PUB  t1\n", b"PUB", 2, [b"", b"t1"]),
    (b"RDY \n", b"RDY", 1, [b""]),
    (b"SUB a b c d\n", b"SUB", 4, [b"a", b"b", b"c"]),
    (b" NOP\n", b"", 1, [b"NOP"]),
    (b"\n", b"", 0, []),
    (b"FIN\tx\n", b"FIN\tx", 0, []),
]


@pytest.mark.parametrize(("line", "name", "count", "parameters"), LINES)
def test_line(line, name, count, parameters):
    wanted = (len(line), name, count, parameters)
    assert parse_command(line) == wanted
    assert parse_command(line + b"garbage\n\n") == wanted
    for size in range(len(line)):
        assert parse_command(line[:size]) is None
        assert parse_command(line, size) == wanted


def test_line_size_has_a_limit():
    assert parse_command(b"x" * 16383 + b"\n")[0] == 16384
    assert parse_command(b"x" * 16383) is None
    with pytest.raises(ValueError, match="no newline"):
        parse_command(b"x" * 16384 + b"\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"", 0),
        (b"0", 0),
        (b"2500", 2500),
        (b"18446744073709551616", 0),
        (b"18446744073709551615", 2**64 - 1),
        (b"-1", None),
        (b"+1", None),
        (b"1.5", None),
        (b"1 ", None),
    ],
)
def test_decimal(text, value):
    assert decimal(text) == value


def test_frames_of_the_specification():
    assert encode(0, b"OK").hex() == "00000006000000004f4b"
    assert encode(0, b"_heartbeat_").hex() == "0000000f000000005f6865617274626561745f"
    assert encode(1, b"E_BAD_PROTOCOL").hex() == "0000001200000001455f4241445f50524f544f434f4c"


def test_frames_decode_in_pieces_of_any_size():
    frames = [(0, b"OK"), (2, b"x" * 5000), (1, b""), (0, b"_heartbeat_")]
    stream = b"".join(encode(kind, data) for kind, data in frames)
    assert FrameDecoder().feed(stream) == frames
    assert FrameDecoder().feed(stream + b"\x00\x00") == frames
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    for size_max in (1, 7, 3000):
        decoder, got, offset = FrameDecoder(), [], 0
        while offset < len(stream):
            size = dice.randint(1, size_max)
            got += decoder.feed(stream[offset : offset + size])
            offset += size
        assert got == frames


@pytest.mark.parametrize("size", [0, 3, 1001])
def test_a_frame_of_an_impossible_size_is_refused(size):
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        FrameDecoder(1000).feed(size.to_bytes(4, "big"))


def test_record_of_the_specification():
    payload = bytes.fromhex("18e9ea03547948a8 0000 31386132383463636264633035303030 68656c6c6f")
    assert decode_record(payload) == (0x18E9EA03547948A8, 0, 0x18A284CCBDC05000, b"hello")
    assert encode_record(b"hello", 0x18E9EA03547948A8, 0, 0x18A284CCBDC05000) == payload


def test_record_of_any_content():
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    for _ in range(500):
        fields = (
            dice.randbytes(dice.choice([0, 1, 200, 5000])),
            dice.getrandbits(63),
            dice.getrandbits(16),
            dice.getrandbits(64),
        )
        body, timestamp, attempts, message_id = fields
        record = encode_record(*fields)
        assert record[10:26] == b"%016x" % message_id
        assert decode_record(record) == (timestamp, attempts, message_id, body)


def test_a_record_shorter_than_its_header_is_refused():
    for size in range(26):
        with pytest.raises(ValueError, match=f"{size} bytes"):
            decode_record(b"0" * size)


def test_a_foreign_id_still_makes_a_message():
    record = bytes(10) + b"not hexadecimal!" + b"body"
    first, second = decode_record(record), decode_record(record)
    assert first == second
    assert first[3] == b"body"


def test_guid_of_the_specification():
    guid = GuidFactory(617).make(1795222980382425088)
    assert f"{guid:016x}" == "18a283e785669000"


def test_guids_after_those_of_a_time():
    """As of a clock that was ahead: of that tick every id may have been given."""
    after_ns = 1795222980382425088
    last_of_tick = (GuidFactory(1023).make(after_ns) >> 22) + 1 << 22
    factory = GuidFactory(0, after_ns)
    assert factory.make(after_ns - 3_600_000_000_000) == last_of_tick
    assert factory.make(after_ns) == last_of_tick + 1
    assert (
        GuidFactory(617, after_ns).make(after_ns + (1 << 21)) >> 22
        == last_of_tick + (1 << 22) >> 22
    )


def test_guids_grow_whatever_the_clock_does():
    factory, now, last = GuidFactory(1023), 1_795_000_000_000_000_000, 0
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    for step in range(50_000):
        if step % 500 == 0:
            now += dice.choice([0, 1_048_576, -3_600_000_000_000, 5_000_000])
        guid = factory.make(now)
        assert guid > last
        assert guid >> 12 & 1023 == 1023
        last = guid


def test_read_buffer_keeps_what_was_not_parsed():
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    buffer, model = ReadBuffer(64), bytearray()
    for _ in range(5000):
        data = dice.randbytes(dice.randrange(100))
        with memoryview(buffer) as free:
            size = min(len(free), len(data))
            assert len(free) >= 16
            free[:size] = data[:size]
        buffer.advance(size)
        model += data[:size]
        used = dice.randint(0, len(model))
        buffer.discard(used)
        del model[:used]
        assert buffer.waiting() == model


def test_a_read_buffer_of_any_size_keeps_its_bytes():
    """From a megabyte on it is a mapping of its own."""
    data = random.Random(1).randbytes(9 << 20)
    buffer, got = ReadBuffer(64), 0
    before = used_bytes()
    while got < len(data):
        with memoryview(buffer) as free:
            size = min(len(free), len(data) - got)
            free[:size] = data[got : got + size]
        buffer.advance(size)
        got += size
    assert buffer.waiting() == data
    assert used_bytes() - before == (16 << 20) - 64
    buffer.discard(len(data))
    for _ in range(70):
        buffer.advance(1)
        buffer.discard(1)
        room_of(buffer)
    assert room_of(buffer) == 64
    assert used_bytes() == before


def room_of(buffer):
    with memoryview(buffer) as free:
        return len(free)


def test_a_read_buffer_stays_large_while_much_comes_and_no_longer():
    buffer = ReadBuffer(64)

    def receive(size):
        left = size
        while left:
            some = min(left, room_of(buffer))
            buffer.advance(some)
            left -= some
        buffer.discard(size)

    receive(10_000)
    large = room_of(buffer)
    assert large >= 10_000
    for _ in range(1000):
        receive(9_000)
        assert room_of(buffer) == large
    for _ in range(50):
        receive(10)
    assert room_of(buffer) == large
    for _ in range(50):
        receive(10)
    assert room_of(buffer) == 64


def test_write_buffer_hands_over_what_was_written():
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    buffer, model, taken = WriteBuffer(), b"", []
    for _ in range(2000):
        data = dice.randbytes(dice.choice([0, 3, 300, 9000]))
        buffer.write(data)
        model += data
        if dice.random() < 0.2:
            taken.append((buffer.taken(), model))
            model = b""
    assert all(got == wanted for got, wanted in taken)
