"""Protocol V1 of nsqlookupd, as an nsqd speaks it over a blocking socket."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

OK = b"\0\0\0\2OK"


def identify(address: str) -> bytes:
    """Return the IDENTIFY command of an nsqd at that address."""
    who = {
        "broadcast_address": address,
        "hostname": address,
        "tcp_port": 4150,
        "http_port": 4151,
        "version": "1.3.0",
    }
    body = json.dumps(who).encode()
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


def read_identity(one: socket.socket) -> dict[str, object]:
    """Return the answer to IDENTIFY."""
    (size,) = struct.unpack(">i", read_exactly(one, 4))
    found: dict[str, object] = json.loads(read_exactly(one, size))
    return found


def read_exactly(one: socket.socket, size: int) -> bytes:
    """Return so many bytes; AssertionError if the other side closes before."""
    data = b""
    while len(data) < size:
        piece = one.recv(size - len(data))
        if not piece:
            raise AssertionError(f"closed after {data!r}")
        data += piece
    return data
