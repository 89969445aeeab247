"""Topics of a broker, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.web import post

if TYPE_CHECKING:
    from support.server import Server


def make(broker: Server, topic: str, channel: str = "c") -> None:
    assert post(broker.http, f"/topic/create?topic={topic}").status == 200
    assert post(broker.http, f"/channel/create?topic={topic}&channel={channel}").status == 200


def publish(broker: Server, topic: str, *bodies: bytes, defer_ms: int = 0) -> None:
    for body in bodies:
        assert post(broker.http, f"/pub?topic={topic}&defer={defer_ms}", body).status == 200
