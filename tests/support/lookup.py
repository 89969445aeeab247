"""An nsqd as nsqlookupd sees it, for tests: protocol V1 over a blocking socket, every byte visible."""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING, Any

from support.web import get
from support.wire import Client

if TYPE_CHECKING:
    from support.server import Address

MAGIC = b"  V1"
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


class Node(Client):
    """One connection; its magic is sent."""

    def __init__(self, address: Address, magic: bytes = MAGIC) -> None:
        super().__init__(address, magic)
        host, port = self.socket.getsockname()[:2]
        self.remote = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def shut(self) -> None:
        """Nothing more is sent; answers still come."""
        self.socket.shutdown(socket.SHUT_WR)

    def read(self) -> bytes:
        """One answer's data."""
        (size,) = struct.unpack(">i", self.read_exactly(4))
        return self.read_exactly(size)

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
