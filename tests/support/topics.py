"""Topics over HTTP, and what they hold, for tests that published to them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nsqfast.client import Config
from nsqfast.client.sync import Consumer
from support.drain import address_of, message_count
from support.web import post, topic_stats

if TYPE_CHECKING:
    from support.server import Server
    from support.tools import Tool

SECONDS_MAX = 50


def make(broker: Server, topic: str, channel: str = "c") -> None:
    assert post(broker.http, f"/topic/create?topic={topic}").status == 200
    assert post(broker.http, f"/channel/create?topic={topic}&channel={channel}").status == 200


def publish(broker: Server, topic: str, *bodies: bytes, defer_ms: int = 0) -> None:
    for body in bodies:
        assert post(broker.http, f"/pub?topic={topic}&defer={defer_ms}", body).status == 200


def await_published(broker: Server, topic: str, count: int, tool: Tool) -> None:
    """Return once it was given so many; fail if the tool that gives them ends before."""
    deadline = time.monotonic() + SECONDS_MAX
    while message_count(broker, topic) < count:
        assert time.monotonic() < deadline, tool.text
        assert tool.process.poll() is None, tool.text
        time.sleep(0.005)


def take(broker: Server, topic: str, linger_s: float = 0.0) -> list[bytes]:
    """All that is there and was not taken before, in order.

    `linger_s`: wait for more than nsqd says there is. After a kill -9 Go's counts less.
    """
    stats = topic_stats(broker.http, topic)
    count = stats["depth"] + sum(one["depth"] for one in stats["channels"].values())
    found: list[bytes] = []
    config = Config(max_in_flight=2500)
    with Consumer(topic, "c", nsqd=address_of(broker), config=config) as consumer:
        while len(found) < count or linger_s:
            message = consumer.get(timeout_s=10 if len(found) < count else linger_s)
            if message is None:
                break
            found.append(message.body)
            message.finish()
    assert len(found) >= count
    return found
