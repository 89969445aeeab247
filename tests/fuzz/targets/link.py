"""What an nsqd says to the client: however it comes, the outcome is the same, and as the model says.

The input is a byte that says how to cut, one of what to set, and the stream.
"""

import re

from nsqfast._ext.client.consume_connection import ConsumeConnection, MessageQueue
from nsqfast._ext.client.publish_connection import Dispatcher, PublishConnection

from fuzz.common import guarded, pieces
from nsqfast.errors import (
    ConnectError,
    NsqfastError,
    ProtocolError,
    RefusedError,
    WrongPeerError,
)
from support.still import Loop, Transport, deliver
from support.wire import ERROR, MESSAGE, RESPONSE, encode_frame

FRAME_SIZE_MAX = 1 << 30
ATTEMPTS_MAX = 3
GOES_ON = ("E_FIN_FAILED", "E_REQ_FAILED", "E_REJ_FAILED", "E_TOUCH_FAILED")
CODE = re.compile(r"\w*")
ID = b"0123456789abcdef"
PUBLISHES, ASKS = 3, 2
WORDS = [
    *(encode_frame(RESPONSE, data) for data in (b"OK", b"_heartbeat_", b"CLOSE_WAIT")),
    *(encode_frame(ERROR, data) for data in (b"E_FIN_FAILED x", b"E_PUB_FAILED x", b"E_INVALID")),
    *(encode_frame(MESSAGE, bytes(9) + n + ID + b"body") for n in (b"\1", b"\4", b"\xff")),
    *(b"\0\0\0\2", b"\x40\0\0\1", b"\0\0\0\x1d\0\0\0\2", b"\0\0\0\4\0\0\0\x09"),
]


def seeds():
    ok, beat, _, late, passing, invalid, message, hopeless, _, *broken = WORDS
    streams = [
        ok + beat + message + hopeless + late + message + ok,
        message * 3 + invalid + message,
        ok * 7,
        ok + passing + ok,
        message + broken[0],
        beat + broken[1],
        message[:20],
        ok + broken[3] + ok,
    ]
    wrong_peers = [b"\0\1HTTP/1.1 400 Bad Request", b"\1\0\0\0\0\x0eE_BAD_PROTOCOL"]
    return wrong_peers + [
        bytes([i, setting]) + data for i, data in enumerate(streams) for setting in (0, 1, 6)
    ]


class Owner:
    """Of an MessageQueue."""

    def __init__(self):
        self.late = []
        self.hopeless = []

    def on_hopeless(self, message):
        self.hopeless.append(row(message))
        message.discard()

    def on_late(self, _connection, text):
        self.late.append(text)

    def on_room(self):
        raise AssertionError("nobody asked for it")


def row(message):
    return message.id, message.attempts, message.timestamp_ns, message.body


def rows(columns):
    ends = memoryview(columns.offsets).cast("q")
    ids = [columns.identities[i : i + 16] for i in range(0, len(columns.identities), 16)]
    bodies = [columns.bodies[ends[i] : ends[i + 1]] for i in range(len(ids))]
    attempts = memoryview(columns.attempts).cast("H")
    return list(zip(ids, attempts, memoryview(columns.timestamps).cast("q"), bodies, strict=True))


def outcome(future):
    """Of what was asked or published: data, the code of an error, or that it is open."""
    if not future.done():
        return "open"
    return future.exception() or future.result()


def named(error):
    return error and (type(error), str(error))


class Consuming:
    """A subscribed connection, some of whose commands have no answer yet."""

    def __init__(self, setting):
        self.loop, self.transport, self.owner = Loop(), Transport(), Owner()
        self.inbox = MessageQueue(self.loop, self.owner, ATTEMPTS_MAX, 0, 0)
        self.connection = ConsumeConnection(self.loop, lambda _connection: None, self.inbox)
        self.connection.connection_made(self.transport)
        self.futures = [self.connection.ask(b"ASK\n") for _ in range(ASKS)]
        if setting & 2:
            self.inbox.gather_columns(2)
        if setting & 4:
            self.futures.append(self.connection.leave())
        self.loop.turn()
        self.asked = len(self.transport.written)

    def taken(self):
        found = [row(message) for message in self.inbox.take(1000)]
        while columns := self.inbox.take_columns():
            found += rows(columns)
        return found

    def result(self):
        said = self.transport.written[self.asked :]
        counts = self.inbox.received, self.connection.in_flight
        return self.taken(), self.owner.hopeless, self.owner.late, said, counts


class Publishing:
    """A connection with some publishes under way, none of which is sent twice."""

    def __init__(self, setting):
        self.loop, self.transport = Loop(), Transport()
        self.connection = PublishConnection(self.loop, lambda _connection: None)
        self.connection.connection_made(self.transport)
        self.dispatcher = Dispatcher(self.loop, 100, 1 << 20, 0, 0, False)
        self.dispatcher.join(self.connection, 0)
        self.futures = [
            self.dispatcher.send("t", b"%d" % number, False)
            for number in range(PUBLISHES + (setting >> 1 & 3))
        ]
        for _ in range(2):
            self.loop.turn()
        self.asked = len(self.transport.written)

    def result(self):
        return self.transport.written[self.asked :], self.dispatcher.published


def run(stream, pattern, setting):
    """Everything that can be seen of a connection that ends with the stream."""
    side = (Publishing if setting & 1 else Consuming)(setting)
    connection = side.connection
    for piece in pieces(stream, pattern):
        if side.transport.is_closing:
            break
        deliver(connection, piece)
    side.loop.turn()
    seen = side.result()
    if connection.error is not None:
        assert isinstance(connection.error, NsqfastError), connection.error
        assert side.transport.is_closing
        assert not connection.is_open
    error = named(connection.error)
    connection.connection_lost(None)
    if isinstance(side, Publishing):
        side.dispatcher.close("closed")
    outcomes = [outcome(future) for future in side.futures]
    assert "open" not in outcomes
    return seen, error, [found if isinstance(found, bytes) else named(found) for found in outcomes]


def frames(stream):
    """(type, data) of each, and the kind of error that ends them."""
    while len(stream) >= 4:
        size = int.from_bytes(stream[:4], "big")
        if not 4 <= size <= FRAME_SIZE_MAX:
            yield None, stream[:4]
            return
        if len(stream) < 4 + size:
            return
        yield int.from_bytes(stream[4:8], "big"), stream[8 : 4 + size]
        stream = stream[4 + size :]


def expected_error(stream, setting):
    """The class of what ends the connection, None if nothing does."""
    waiting = PUBLISHES + (setting >> 1 & 3) if setting & 1 else ASKS + bool(setting & 4)
    for kind, data in frames(stream):
        if kind == RESPONSE and data != b"_heartbeat_":
            if not waiting:
                return ProtocolError
            waiting -= 1
        elif kind == ERROR:
            if setting & 1 or not data.decode("utf-8", "replace").startswith(GOES_ON):
                return RefusedError
        elif kind == MESSAGE and len(data) >= 26:
            if setting & 1:
                return ProtocolError
        elif kind != RESPONSE:
            wrong_peers = (
                (None, b"HTTP"),
                (0x455F4241, b"D_PROTOCOL"),
            )  # HTTP, and an nsqlookupd's E_BAD_PROTOCOL
            return WrongPeerError if (kind, data) in wrong_peers else ProtocolError
    return None


def expected_bodies(stream):
    """Of messages that come before the end."""
    return [data[26:] for kind, data in frames(stream) if kind == MESSAGE]


@guarded
def check(data):
    if len(data) < 2:
        return
    pattern, setting, stream = data[0], data[1] & 7, data[2:]
    whole = run(stream, 0, setting)
    error = whole[1]
    assert (error and error[0]) == expected_error(stream, setting), error
    for cut in {1, pattern}:
        assert run(stream, cut, setting) == whole
    if error is None and not setting & 5:
        rows, hopeless, *_ = whole[0]
        assert sorted(found[3] for found in rows + hopeless) == sorted(expected_bodies(stream))
    kinds = [found[0] for found in whole[2] if isinstance(found, tuple)]
    assert all(issubclass(kind, NsqfastError) for kind in kinds), kinds
    if not setting & 1:
        assert set(kinds) <= {ConnectError, RefusedError, ProtocolError, WrongPeerError}
