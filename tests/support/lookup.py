"""An nsqd as nsqlookupd sees it, for tests: protocol V1 over a blocking socket, every byte visible."""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING, Any, Self

from support.web import get

if TYPE_CHECKING:
    from support.server import Address

MAGIC = b"  V1"
SECONDS_MAX = 10.0
WHO = {
    "broadcast_address": "bc.example",
    "hostname": "host",
    "tcp_port": 1111,
    "http_port": 2222,
    "version": "1.3.0",
}


def encode_identify(body: bytes) -> bytes:
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


def identify_as(**changed: Any) -> bytes:
    """WHO with these changes, as a command."""
    return encode_identify(json.dumps(WHO | changed).encode())


class Node:
    """One connection; its magic is sent."""

    def __init__(self, address: Address, magic: bytes = MAGIC) -> None:
        self.socket = socket.create_connection(address, timeout=SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = self.socket.getsockname()[:2]
        self.remote = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.send(magic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def shut(self) -> None:
        """Nothing more is sent; answers still come."""
        self.socket.shutdown(socket.SHUT_WR)

    def _read_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError(data)
            data += piece
        return data

    def read(self) -> bytes:
        """One answer's data."""
        (size,) = struct.unpack(">i", self._read_exactly(4))
        return self._read_exactly(size)

    def read_to_end(self) -> bytes:
        """All bytes that come before the other side closes; a reset counts as closing."""
        data = b""
        while True:
            try:
                piece = self.socket.recv(65536)
            except ConnectionResetError:
                return data
            if not piece:
                return data
            data += piece

    def ask(self, line: bytes) -> bytes:
        self.send(line + b"\n")
        return self.read()

    def identify(self, **changed: Any) -> Any:
        self.send(identify_as(**changed))
        return json.loads(self.read())

    def register(self, topic: str, *channel: str) -> None:
        assert self.ask(" ".join(["REGISTER", topic, *channel]).encode()) == b"OK"

    def unregister(self, topic: str, *channel: str) -> None:
        assert self.ask(" ".join(["UNREGISTER", topic, *channel]).encode()) == b"OK"


def lookup(address: Address, topic: str) -> Any:
    """The whole answer, its lists sorted; None when nobody knows the topic."""
    answer = get(address, f"/lookup?topic={topic.replace('#', '%23')}")
    if answer.status == 404:
        return None
    assert answer.status == 200, answer
    found = answer.json()
    return {
        "channels": sorted(found["channels"]),
        "producers": sorted(map(plain, found["producers"]), key=lambda one: one["remote_address"]),
    }


def producers(address: Address, topic: str) -> list[str]:
    """Where /lookup says that a topic is produced."""
    return [one["remote_address"] for one in lookup(address, topic)["producers"]]


def nodes(address: Address) -> list[Any]:
    """The answer of /nodes, sorted, topics and tombstones as one dict."""
    found = get(address, "/nodes").json()["producers"]
    for one in found:
        one["topics"] = dict(zip(one["topics"], one.pop("tombstones"), strict=True))
    return sorted(map(plain, found), key=lambda one: one["remote_address"])


def topics(address: Address) -> list[str]:
    return sorted(get(address, "/topics").json()["topics"])


def channels(address: Address, topic: str) -> list[str]:
    return sorted(get(address, f"/channels?topic={topic.replace('#', '%23')}").json()["channels"])


def plain(peer: dict[str, Any]) -> dict[str, Any]:
    """Without the keys that the released 1.3.0 does not have."""
    return {name: value for name, value in peer.items() if not name.startswith("topology_")}
