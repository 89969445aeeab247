"""An nsqlookupd under test."""

from __future__ import annotations

import socket

from nsqfast.wire.protocol import MAGIC_V1
from server.broker import START_SECONDS_MAX, Broker
from server.lookupd_protocol import identify, read_identity


class Lookupd(Broker):
    """Started like a broker, but it stores nothing and reports its address over TCP."""

    def _data_flags(self) -> list[str]:
        return []

    def _announced(self) -> str:
        host, port = self.tcp.split(":")
        with socket.create_connection((host, int(port)), START_SECONDS_MAX) as one:
            one.sendall(MAGIC_V1 + identify("somebody"))
            return str(read_identity(one)["broadcast_address"])
