"""A blocking NSQ connection for small programs: one command out, one frame in, nothing cached.

Too slow for serious consumers, but as short as the protocol allows.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Any, Self

import orjson

from nsqfast.errors import NsqfastError
from nsqfast.wire.protocol import FRAME_ERROR, FRAME_MESSAGE, FRAME_RESPONSE, HEARTBEAT, MAGIC_V2

_FRAME_HEAD = struct.Struct(">iI")  # size (counts the type, not itself), type
_MESSAGE_HEAD = struct.Struct(">qH16s")  # timestamp in ns, attempts, id


class WireError(NsqfastError):
    """The broker answered with an error frame, or with an invalid answer."""


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery."""

    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes


class Connection:
    """One socket that has sent its magic."""

    def __init__(self, host: str, port: int, timeout_s: float | None = None) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        # Unbuffered: detach() must not leave data in a buffer of ours.
        self._input = self._socket.makefile("rb", buffering=0)
        self._socket.sendall(MAGIC_V2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; unfinished messages are delivered to others."""
        self._input.close()
        self._socket.close()

    def detach(self) -> socket.socket:
        """The socket, non-blocking, for another owner; this object cannot be used any more."""
        self._input.close()
        self._socket.setblocking(False)
        return self._socket

    def identify(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Negotiate; returns the broker's answer."""
        self._command(b"IDENTIFY", body=orjson.dumps({"feature_negotiation": True, **settings}))
        _, data = self._frame()
        answer: dict[str, Any] = orjson.loads(data)
        return answer

    def publish(self, topic: str, body: bytes) -> None:
        """Return when the broker has taken the message."""
        self._command(b"PUB", topic, body=body)
        self._expect_ok()

    def publish_many(self, topic: str, bodies: list[bytes]) -> None:
        """Return when the broker has taken all of them."""
        parts = [struct.pack(">I", len(bodies))]
        for body in bodies:
            parts += [struct.pack(">I", len(body)), body]
        self._command(b"MPUB", topic, body=b"".join(parts))
        self._expect_ok()

    def subscribe(self, topic: str, channel: str, ready_count: int) -> None:
        """Allow up to `ready_count` messages in flight from here on; with 0 the caller sends RDY."""
        self._command(b"SUB", topic, channel)
        self._expect_ok()
        if ready_count:
            self._command(b"RDY", str(ready_count))

    def receive(self) -> Message:
        """Wait for the next message; answers heartbeats meanwhile."""
        while True:
            frame_type, data = self._frame()
            if frame_type == FRAME_MESSAGE:
                timestamp_ns, attempts, message_id = _MESSAGE_HEAD.unpack_from(data)
                return Message(timestamp_ns, attempts, message_id, data[_MESSAGE_HEAD.size :])

    def finish(self, message: Message) -> None:
        """Send FIN."""
        self._command(b"FIN", message.id.decode("ascii"))

    def _command(self, name: bytes, *params: str, body: bytes | None = None) -> None:
        line = b" ".join([name, *(param.encode() for param in params)]) + b"\n"
        if body is not None:
            line += struct.pack(">I", len(body)) + body
        self._socket.sendall(line)

    def _expect_ok(self) -> None:
        _, data = self._frame()
        if data != b"OK":
            raise WireError(f"expected OK, got {data!r}")

    def _frame(self) -> tuple[int, bytes]:
        """Read the next frame that is not a heartbeat."""
        while True:
            size, frame_type = _FRAME_HEAD.unpack(self._read(_FRAME_HEAD.size))
            data = self._read(size - 4)
            if frame_type == FRAME_ERROR:
                raise WireError(data.decode(errors="replace"))
            if frame_type != FRAME_RESPONSE or data != HEARTBEAT:
                return frame_type, data
            self._command(b"NOP")

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            some = self._input.read(size - len(data))
            if not some:
                raise WireError("the broker closed the connection")
            data += some
        return bytes(data)
