"""What a topic holds, taken out of it as a consumer would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.web import topic_stats
from support.wire import Client

if TYPE_CHECKING:
    from support.server import Server

RDY = 2000


def address_of(broker: Server) -> str:
    return "{}:{}".format(*broker.tcp)


def message_count(broker: Server, topic: str) -> int:
    """How many were ever published to it."""
    found = topic_stats(broker.http, topic)
    return int(found["message_count"]) if found else 0


def depth(broker: Server, topic: str, channel: str) -> int:
    """How many wait, in the topic or the channel."""
    found = topic_stats(broker.http, topic)
    if not found:
        return 0
    in_channel = found["channels"].get(channel, {"depth": 0})["depth"]
    return int(found["depth"]) + int(in_channel)


def drain(broker: Server, topic: str, channel: str = "drain") -> list[bytes]:
    """All bodies that wait, in the order in which they come; each is finished."""
    bodies = []
    count = depth(broker, topic, channel)
    with Client(broker.tcp) as client:
        client.sub(topic, channel, RDY)
        for _ in range(count):
            message = client.read_message()
            client.fin(message)
            bodies.append(message.body)
        client.barrier()
    return bodies


def drain_until_still(broker: Server, topic: str, seconds: float = 1.0) -> list[bytes]:
    """The same where nobody knows how many wait: Go's nsqd miscounts what a killed one left on the disk."""
    bodies = []
    with Client(broker.tcp, seconds_max=seconds) as client:
        client.sub(topic, "drain", RDY)
        try:
            while True:
                message = client.read_message()
                client.fin(message)
                bodies.append(message.body)
        except TimeoutError:
            return bodies
