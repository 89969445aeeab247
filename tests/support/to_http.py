"""Runs nsq_to_http, ours or Go's, on a topic of a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from support.destination import Destination
from support.fake_nsqd import FakeNsqd
from support.programs import left as left_in_channel
from support.programs import publish
from support.tools import Tool, tool_command
from support.web import post, topic_stats

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from support.destination import Caller, Request
    from support.server import Server

SECONDS_MAX = 50


def address(broker: Server) -> str:
    return "{}:{}".format(*broker.tcp)


def start(broker: Server, topic: str, *flags: str, implementation: str = "nsqfast") -> Tool:
    where = [f"--topic={topic}", "--channel=c", f"--nsqd-tcp-address={address(broker)}"]
    return Tool(tool_command("nsq_to_http", implementation, *where, *flags))


def channel(broker: Server, topic: str) -> Any:
    return topic_stats(broker.http, topic)["channels"]["c"]


def fill(broker: Server, topic: str, *bodies: bytes) -> None:
    """Into a channel that is there before."""
    post(broker.http, f"/topic/create?topic={topic}")
    post(broker.http, f"/channel/create?topic={topic}&channel=c")
    publish(address(broker), topic, *bodies)


def left(broker: Server, topic: str) -> int:
    """What is not finished, wherever it is; Go's nsqd takes a moment from topic to channel."""
    return topic_stats(broker.http, topic)["depth"] + left_in_channel(broker, topic)


async def first_answer(
    implementation: str,
    flags: list[str],
    conduct: Callable[[Caller, Request], bytes | None],
    attempts: int = 1,
) -> tuple[str, ...]:
    """What nsqd is told of a message, after RDY."""
    told = asyncio.get_running_loop().create_future()

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        peer.deliver(1, b"body", attempts)
        while True:
            name, words, _ = await peer.command()
            if name in {"FIN", "REQ"}:
                told.set_result((name, *words[1:]))
                break
            if name == "CLS":
                peer.respond(b"CLOSE_WAIT")
        await peer.read_to_end()

    with Destination(conduct) as server:
        async with FakeNsqd(script) as nsqd, asyncio.timeout(SECONDS_MAX):
            where = ["--topic=t", f"--nsqd-tcp-address={nsqd.address}", "--max-in-flight=1"]
            flags = [flag.replace("ONE", server.url) for flag in flags]
            with Tool(tool_command("nsq_to_http", implementation, *where, *flags)):
                return await told
