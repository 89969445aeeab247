"""/stats in parts: the same answer, and others are served while it is made."""

import asyncio
import json

import pytest
from nsqfast._ext.budget import fix_parts

from nsqfast.net.http_message import Request, Response
from nsqfast.net.parts import PIECE_UNITS
from support.core import Peer
from support.http import HttpBroker

CONSUMER_COUNT = 100


@pytest.fixture
def broker(tmp_path):
    """Topics with few clients, one with many, one without a channel; some publish."""
    broker = HttpBroker(tmp_path / "data", has_shortcut=False)
    for number in range(50):
        broker.registry.topic(f"t{number}").channel("c").pause()
    broker.registry.topic("alone")
    peers = []
    for number in range(CONSUMER_COUNT):
        peers.append(Peer(broker.registry))
        peers[-1].subscribe(b"crowded", b"c%d" % (number // 90), 1)
        peers[-1].send(b"PUB t1\n\0\0\0\1x")
        peers[-1].receive()
    yield broker
    fix_parts(0)
    for peer in peers:
        peer.close()
    broker.registry.close()


async def answers(broker, target, units):
    """The answer, and in how many turns of the loop it was made."""
    fix_parts(units)
    found = broker.api(Request("GET", target, "here"))
    turns = 0
    if not isinstance(found, Response):
        waiting = asyncio.ensure_future(found)
        while not waiting.done():
            await asyncio.sleep(0)
            turns += 1
        found = waiting.result()
    fix_parts(0)
    assert found.status == 200
    return found.body, turns


@pytest.mark.parametrize("query", ["", "&include_clients=false", "&topic=crowded", "&channel=c"])
@pytest.mark.parametrize("form", ["json", "text"])
def test_parts_make_the_same_answer(broker, query, form):
    target = f"/stats?include_mem=false&format={form}{query}".encode()

    async def main():
        whole, none = await answers(broker, target, 1 << 40)
        parted, turns = await answers(broker, target, PIECE_UNITS)
        assert none == 0
        assert turns > 3
        return whole, parted

    whole, parted = asyncio.run(main())
    if form == "json":
        whole, parted = json.loads(whole), json.loads(parted)
    else:  # the time since the start
        whole, parted = (
            [line for line in text.splitlines() if not line.startswith(b"uptime")]
            for text in (whole, parted)
        )
    assert whole == parted


def test_figures_of_long_lists(broker):
    body, _ = asyncio.run(answers(broker, b"/stats?format=json", 0))
    found = json.loads(body)
    assert list(found) == ["version", "health", "start_time", "topics", "memory", "producers"]
    assert len(found["producers"]) == CONSUMER_COUNT
    [crowded] = [topic for topic in found["topics"] if topic["topic_name"] == "crowded"]
    assert list(crowded) == [
        "topic_name",
        "channels",
        "depth",
        "backend_depth",
        "message_count",
        "message_bytes",
        "paused",
        "e2e_processing_latency",
    ]
    channels = crowded["channels"]
    assert [len(channel["clients"]) for channel in channels] == [90, 10]
    assert [list(channel) for channel in channels] == [list(channels[0])] * 2
    assert list(channels[0])[-4:] == ["client_count", "clients", "paused", "e2e_processing_latency"]


def test_few_pieces_in_one_turn(broker):
    async def main():
        _, turns = await answers(broker, b"/stats?format=json", 10 * PIECE_UNITS)
        assert turns >= CONSUMER_COUNT // 10

    asyncio.run(main())


def test_one_answer_is_made_at_a_time(broker):
    """The second waits for the first, and each is whole."""

    async def main():
        fix_parts(PIECE_UNITS)
        request = Request("GET", b"/stats?format=json&include_mem=false", "here")
        tasks = [asyncio.ensure_future(broker.api(request)) for _ in range(5)]
        order = []
        for number, task in enumerate(tasks):
            task.add_done_callback(lambda _, number=number: order.append(number))
        bodies = [answer.body for answer in await asyncio.gather(*tasks)]
        assert order == list(range(5))
        assert all(json.loads(body) == json.loads(bodies[0]) for body in bodies)

    asyncio.run(main())
