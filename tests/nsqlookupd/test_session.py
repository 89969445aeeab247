"""Protocol V1 without a socket: however the bytes come, the answers are the same; nothing grows without bound."""

import struct

import pytest

from nsqfast.nsqlookupd.registry import Registry
from nsqfast.nsqlookupd.session import BODY_SIZE_MAX, LINE_SIZE_MAX, Desk, Session
from support.lookup import identify_as

IDENTITY = b'{"version":"x"}'


def frame(data):
    return struct.pack(">i", len(data)) + data


OK = frame(b"OK")
ME = frame(IDENTITY)
CONVERSATIONS = [
    (b"  V1", b"", False),
    (b"  V1PING\n", OK, False),
    (b"  V1PING\r\n  PING x \n", OK + OK, False),
    (b"  V1" + identify_as() + b"REGISTER t c\nPING\nUNREGISTER t\n", ME + OK * 3, False),
    (b"  V1" + identify_as() + b"REGISTER t c", ME, False),
    (b"  V2PING\n", frame(b"E_BAD_PROTOCOL"), True),
    (b"  V1PING\nping\nPING\n", OK + frame(b"E_INVALID invalid command ping"), True),
    (b"  V1\n", frame(b"E_INVALID invalid command "), True),
    (b"  V1REGISTER t\nPING\n", frame(b"E_INVALID client must IDENTIFY"), True),
    (
        b"  V1" + identify_as() + b"IDENTIFY\n\0\0\0\2{}",
        ME + frame(b"E_INVALID cannot IDENTIFY again"),
        True,
    ),
    (
        b"  V1IDENTIFY x y\n\0\0\0\2{}PING\n",
        frame(b"E_BAD_BODY IDENTIFY missing fields"),
        True,
    ),
]


@pytest.fixture
def desk():
    return Desk(Registry(1000, 1000), IDENTITY)


@pytest.mark.parametrize(("sent", "answers", "is_over"), CONVERSATIONS)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_pieces(desk, sent, answers, is_over, size):
    session = Session(desk, "me")
    got = b"".join(
        session.receive(sent[start : start + size], 5) for start in range(0, len(sent), size)
    )
    assert got == answers
    assert session.is_over == is_over
    if is_over:
        assert session.receive(b"PING\n", 6) == b""
        assert desk.registry.client_count == 0


def test_counts(desk):
    session = Session(desk, "me")
    session.receive(b"  V1PING\n" + identify_as() + b"REGISTER t\nREGISTER t c\nUNREGISTER t\n", 5)
    session.receive(b"nope\n", 6)
    counts = {"PING": 1, "IDENTIFY": 1, "REGISTER": 2, "UNREGISTER": 1, "other": 1}
    assert desk.commands == counts
    assert desk.errors == {"E_INVALID": 1}


def test_ping_and_identify_are_looks_at_the_clock(desk):
    session = Session(desk, "me")
    session.receive(b"  V1" + identify_as(), 5)
    (peer,) = desk.registry.nodes(5)
    assert peer.seen_ns == 5
    session.receive(b"REGISTER t\n", 6)
    assert peer.seen_ns == 5
    session.receive(b"PING\n", 7)
    assert peer.seen_ns == 7


@pytest.mark.parametrize("size", [-1, -(2**31), BODY_SIZE_MAX + 1, 2**31 - 1])
def test_body_sizes_out_of_bounds(desk, size):
    """A negative one ends Go's whole process, a huge one is allocated before any of it came."""
    session = Session(desk, "me")
    answers = session.receive(b"  V1IDENTIFY\n" + struct.pack(">i", size) + b"{}", 5)
    assert answers == frame(b"E_BAD_BODY IDENTIFY failed to read body size")
    assert session.is_over


def test_largest_body(desk):
    session = Session(desk, "me")
    body = b"{}".ljust(BODY_SIZE_MAX)
    assert session.receive(b"  V1IDENTIFY\n" + struct.pack(">i", len(body)) + body[:-1], 5) == b""
    assert session.is_waiting
    assert session.receive(body[-1:], 5) == frame(b"E_BAD_BODY IDENTIFY missing fields")


@pytest.mark.parametrize("piece", [100, LINE_SIZE_MAX, 4 * LINE_SIZE_MAX])
def test_endless_line(desk, piece):
    session = Session(desk, "me")
    session.receive(b"  V1", 5)
    answers, sent = b"", 0
    while not answers:
        assert sent <= LINE_SIZE_MAX
        answers = session.receive(b"x" * piece, 5)
        sent += piece
    assert answers == frame(b"E_INVALID command longer than 16384 bytes")
    assert session.is_over


def test_longest_line(desk):
    session = Session(desk, "me")
    session.receive(b"  V1", 5)
    assert session.receive(b"PING".ljust(LINE_SIZE_MAX - 1) + b"\n", 5) == OK
    assert not session.is_waiting


@pytest.mark.parametrize(
    ("sent", "is_waiting"),
    [
        (b"", True),
        (b"  V", True),
        (b"  V1", False),
        (b"  V1PING\n", False),
        (b"  V1PING\nP", True),
        (b"  V1IDENTIFY\n", True),
        (b"  V1IDENTIFY\n\0\0\0\2", True),
    ],
)
def test_who_has_to_go_on(desk, sent, is_waiting):
    session = Session(desk, "me")
    session.receive(sent, 5)
    assert session.is_waiting == is_waiting
