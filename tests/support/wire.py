"""A V2 client for tests: blocking sockets, every byte visible, no help with the protocol."""

from __future__ import annotations

import json
import select
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC = b"  V2"
RESPONSE, ERROR, MESSAGE = 0, 1, 2
HEARTBEAT = b"_heartbeat_"
SECONDS_MAX = 50.0
NAME_LENGTH_MAX = 64
BARRIER_TOPIC = "barrier#ephemeral"


class Frame(NamedTuple):
    kind: int
    data: bytes


class Message(NamedTuple):
    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes


def encode_frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(data), kind) + data


def encode_body(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def encode_command(name: str, *params: str | bytes, body: bytes | None = None) -> bytes:
    words = [word.encode() if isinstance(word, str) else word for word in (name, *params)]
    tail = b"" if body is None else encode_body(body)
    return b" ".join(words) + b"\n" + tail


def encode_messages(bodies: Iterable[bytes]) -> bytes:
    """The body of an MPUB: a count, then each message with its size."""
    bodies = list(bodies)
    return struct.pack(">i", len(bodies)) + b"".join(map(encode_body, bodies))


def decode_message(data: bytes) -> Message:
    timestamp_ns, attempts, identity = struct.unpack_from(">qH16s", data)
    return Message(timestamp_ns, attempts, identity, data[26:])


class Client:
    def __init__(
        self, address: tuple[str, int], magic: bytes = MAGIC, seconds_max: float = SECONDS_MAX
    ) -> None:
        self.socket = socket.create_connection(address, timeout=seconds_max)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._early: deque[Message] = deque()
        try:
            self.send(magic)
        except OSError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def command(self, name: str, *params: str | bytes, body: bytes | None = None) -> None:
        self.send(encode_command(name, *params, body=body))

    # ---- reading

    def read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            piece = self.socket.recv(65536)
            if not piece:
                raise EOFError(bytes(self._buffer))
            self._buffer += piece
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def is_still(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        return not self._buffer and not select.select([self.socket], [], [], seconds)[0]

    def take_buffered(self) -> bytes:
        """What was read and not asked for yet, for somebody who knows how to unpack it."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def read_frame(self) -> Frame:
        size, kind = struct.unpack(">ii", self.read_exactly(8))
        return Frame(kind, self.read_exactly(size - 4))

    def read_beyond_heartbeats(self) -> Frame:
        while True:
            frame = self.read_frame()
            if frame != (RESPONSE, HEARTBEAT):
                return frame
            self.command("NOP")

    def read_response(self) -> bytes:
        """The next answer; messages that overtake it (both may be due) are kept for later."""
        while (frame := self.read_beyond_heartbeats()).kind == MESSAGE:
            self._early.append(decode_message(frame.data))
        assert frame.kind == RESPONSE, frame
        return frame.data

    def read_error(self) -> bytes:
        frame = self.read_beyond_heartbeats()
        assert frame.kind == ERROR, frame
        return frame.data

    def read_message(self) -> Message:
        if self._early:
            return self._early.popleft()
        frame = self.read_beyond_heartbeats()
        assert frame.kind == MESSAGE, frame
        return decode_message(frame.data)

    def read_messages(self, count: int) -> list[Message]:
        return [self.read_message() for _ in range(count)]

    def read_to_end(self) -> bytes:
        """All that comes before the broker closes; a reset counts as closing."""
        data = bytes(self._buffer)
        self._buffer.clear()
        while True:
            try:
                piece = self.socket.recv(65536)
            except ConnectionResetError:
                return data
            if not piece:
                return data
            data += piece

    # ---- whole exchanges

    def ask(self, name: str, *params: str | bytes, body: bytes | None = None) -> bytes:
        self.command(name, *params, body=body)
        return self.read_response()

    def identify(self, **fields: Any) -> Any:
        answer = self.ask("IDENTIFY", body=json.dumps(fields).encode())
        return json.loads(answer) if answer.startswith(b"{") else answer

    def sub(self, topic: str, channel: str, ready_count: int | None = None) -> None:
        assert self.ask("SUB", topic, channel) == b"OK"
        if ready_count is not None:
            self.command("RDY", str(ready_count))

    def pub(self, topic: str, body: bytes) -> None:
        assert self.ask("PUB", topic, body=body) == b"OK"

    def mpub(self, topic: str, bodies: Iterable[bytes]) -> None:
        assert self.ask("MPUB", topic, body=encode_messages(bodies)) == b"OK"

    def fin(self, message: Message) -> None:
        self.command("FIN", message.id)

    def barrier(self) -> None:
        """Every earlier command was handled, and the answer to this is the next frame."""
        assert not self._early, self._early
        self.command("PUB", BARRIER_TOPIC, body=b"-")
        frame = self.read_beyond_heartbeats()
        assert frame == (RESPONSE, b"OK"), frame
