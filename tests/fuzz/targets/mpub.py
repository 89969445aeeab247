"""Bodies of /mpub and MPUB: what is queued is what the bytes say, over HTTP and over TCP alike."""

from nsqfast._ext.dev.probes import live_deliveries
from nsqfast._ext.dev.structures import put_all

from fuzz.common import body, empty_folder, guarded, pieces
from nsqfast.errors import ProtocolError
from support.core import Peer, make_registry

MESSAGE_SIZE_MAX, BODY_SIZE_MAX = 40, 200
WORDS = [
    b"\x00\x00\x00\x01",
    b"\x00\x00\x00\x02",
    b"\n\n",
    b"\x00\x00\x00\x28",
    b"\xff\xff\xff\xff",
]


def seeds():
    return [
        b"\x01" + b"\x00\x00\x00\x02" + body(b"one") + body(b"two"),
        b"\x02one\n\ntwo\r\nthree",
        b"\x00" + b"\x00\x00\x00\x01" + body(b"m" * 40) + b"behind",
        b"\x03" + b"\x00\x00\x00\x03" + body(b"a") + body(b"") + body(b"b"),
        b"\x01" + b"m" * 41 + b"\n",
    ]


def read_binary(data):
    """The messages, or the error's code."""
    count = int.from_bytes(data[:4], "big")
    if len(data) < 4 or not 0 < count <= (BODY_SIZE_MAX - 4) // 5:
        return "BAD_BODY"
    messages, rest = [], data[4:]
    for _ in range(count):
        size = int.from_bytes(rest[:4], "big")
        if len(rest) < 4 or not 0 < size <= MESSAGE_SIZE_MAX or len(rest) < 4 + size:
            return "BAD_MESSAGE"
        messages.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    return messages


def read_lines(data):
    lines = data.split(b"\n")
    too_big = any(len(line) > MESSAGE_SIZE_MAX for line in lines)
    return "MSG_TOO_BIG" if too_big else [line for line in lines if line]


def drain(registry, topic):
    peer = Peer(registry)
    peer.subscribe(topic, b"c", 2500)
    got = [data[26:] for kind, data in peer.receive() if kind == 2]
    peer.close()
    return got


def publish(put, *arguments):
    try:
        put(*arguments)
    except ProtocolError as error:
        return error.code
    return None


def expect(registry, name, error, expected):
    topic = registry.topics.ensure(name)
    if isinstance(expected, str):
        assert error == expected
        assert topic.message_count == 0
    else:
        assert error is None
        assert topic.message_count == len(expected)
        assert topic.message_bytes == sum(map(len, expected))
        assert drain(registry, name.encode()) == expected


def check_tcp(registry, data, pattern):
    """MPUB follows the sizes; what stands behind the last message is the next command."""
    expected = read_binary(data)
    peer = Peer(registry)
    for piece in pieces(b"MPUB tcp\n" + body(data), pattern):
        peer.send(piece)
    peer.connection.eof_received()
    answers = peer.receive()
    peer.close()
    if isinstance(expected, str):
        assert answers[0][1].startswith(b"E_BAD_"), answers
        expect(registry, "tcp", expected, expected)
    else:
        assert answers[0] == (0, b"OK"), answers
        expect(registry, "tcp", None, expected)


@guarded
def check(data):
    pattern, data = (data[0], data[1:]) if data else (0, b"")
    live_before = live_deliveries()
    options = {"max_msg_size": MESSAGE_SIZE_MAX, "max_body_size": BODY_SIZE_MAX}
    registry = make_registry(empty_folder("mpub"), mem_queue_size=10000, **options)
    binary, lines = registry.topics.ensure("b#ephemeral"), registry.topics.ensure("l#ephemeral")
    expect(registry, "b#ephemeral", publish(put_all, binary, data, True), read_binary(data))
    error = publish(put_all, lines, data, False)
    expect(registry, "l#ephemeral", error, read_lines(data))
    if 0 < len(data) <= BODY_SIZE_MAX:
        check_tcp(registry, data, pattern)
    for topic in registry.topics.sorted():
        registry.topics.delete(topic.name)
    registry.topics.close()
    assert live_deliveries() == live_before
