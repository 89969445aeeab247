"""nsqlookupd's protocol V1: however the bytes come, the answers and what is registered are the same.

The input is a byte that says how to cut, and the stream.
"""

import json
import re

from fuzz.common import body, guarded, pieces
from nsqfast.nsqlookupd.registry import Registry
from nsqfast.nsqlookupd.session import BODY_SIZE_MAX, LINE_SIZE_MAX, Desk, Session

ME = b'{"version":"x"}'
ANSWERS = (b"OK", ME)
ERROR = re.compile(rb"E_(INVALID|BAD_(PROTOCOL|BODY|TOPIC|CHANNEL))( .*)?", re.DOTALL)
# A body, and the line behind it.
UNFINISHED_SIZE_MAX = BODY_SIZE_MAX + LINE_SIZE_MAX
WORDS = [
    *(b"  V1", b"PING\n", b"REGISTER t c\n", b"UNREGISTER t\n", b"IDENTIFY\n", b"#ephemeral"),
    *(b'"broadcast_address":', b'"tcp_port":', b'"http_port":', b'"version":', b"\x00\x01\x00\x01"),
]


def seeds():
    record = {"broadcast_address": "a", "tcp_port": 1, "http_port": 2, "version": "v"}
    identify = b"  V1IDENTIFY\n" + body(json.dumps(record).encode())
    streams = [
        b"  V1PING\r\n PING x \n",
        identify + b"REGISTER t c\nREGISTER u#ephemeral d#ephemeral\nPING\nUNREGISTER t\n",
        identify + b"REGISTER t c\nUNREGISTER t c\nREGISTER t \xff\nPING\n",
        identify + b"REGISTER t\n" + identify[4:],
        b"  V1IDENTIFY\n" + body(b'{"version":"\\ud800","TCP_PORT":-1}'),
        b"  V1IDENTIFY\n\x00\x01\x00\x01",
        b"  V2",
    ]
    return [bytes([i]) + stream for i, stream in enumerate(streams)]


def split_answers(data):
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        assert 4 < end <= len(data)
        found.append(data[4:end])
        data = data[end:]
    return found


def converse(stream, pattern):
    """(answers, topics, figures) of one connection that ends with the stream."""
    registry = Registry(1000, 1000)
    desk = Desk(registry, ME)
    session = Session(desk, "127.0.0.1:5")
    said = b""
    for piece in pieces(stream, pattern):
        said += session.receive(piece, 5)
        if session.is_over:
            assert session.receive(b"PING\n", 6) == b""
            break
    said += session.receive_end()
    figures = registry.registration_count, registry.channel_count, registry.client_count
    session.end()
    assert registry.registration_count == registry.client_count == 0
    return split_answers(said), registry.topics(), figures, desk.commands, desk.errors


def check_bound(stream):
    """A peer that never comes to an end is stopped."""
    session = Session(Desk(Registry(1000, 1000), ME), "127.0.0.1:5")
    for piece in (stream, *[b"x" * 4096] * (UNFINISHED_SIZE_MAX // 4096 + 1)):
        if not session.is_over:
            session.receive(piece, 5)
    assert session.is_over


@guarded
def check(data):
    whole = converse(data[1:], 0)
    *before, last = whole[0] or [b"OK"]
    assert all(answer in ANSWERS for answer in before)
    assert last in ANSWERS or ERROR.fullmatch(last), last
    for pattern in {1, *data[:1]}:
        assert converse(data[1:], pattern) == whole
    check_bound(data[1:])
