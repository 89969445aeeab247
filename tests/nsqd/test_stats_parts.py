"""/stats in parts: the same answer, and others are served while it is made."""

import asyncio
import json
import re

import pytest
from nsqfast._ext.dev.probes import fix_parts, used_bytes

from nsqfast.net.http_message import Request, Response
from nsqfast.net.http_routes import PIECE_UNITS
from nsqfast.wire.refusals import REFUSED
from support.core import Peer
from support.http import HttpBroker

CONSUMER_COUNT = 100


@pytest.fixture
def broker(tmp_path):
    """Topics with few clients, one with many, one without a channel; some publish."""
    broker = HttpBroker(tmp_path / "data", has_shortcut=False)
    for number in range(50):
        broker.registry.topics.ensure(f"t{number}").channel("c").pause()
    broker.registry.topics.ensure("alone")
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
    broker.registry.topics.close()


def whole(answer):
    """But for ages, which differ from moment to moment."""
    found = answer.body + b"".join(answer.pieces)
    return re.sub(rb',"oldest_message_age_ms":\d+', b"", found)


async def answers(broker, target, units):
    """The answer, and in how many turns of the loop it was made."""
    await asyncio.sleep(0)  # whatever was answered in this turn had a part of it
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
    return whole(found), turns


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
    else:  # the seconds since the start
        whole, parted = (
            [re.sub(rb"connected: \d+s|^uptime .*", b"", line) for line in text.splitlines()]
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


async def test_few_pieces_in_one_turn(broker):
    _, turns = await answers(broker, b"/stats?format=json", 10 * PIECE_UNITS)
    assert turns >= CONSUMER_COUNT // 10


async def test_one_answer_is_made_at_a_time(broker):
    """The second waits for the first, and each is whole."""
    fix_parts(PIECE_UNITS)
    request = Request("GET", b"/stats?format=json&include_mem=false", "here")
    tasks = [asyncio.ensure_future(broker.api(request)) for _ in range(5)]
    order = []
    for number, task in enumerate(tasks):
        task.add_done_callback(lambda _, number=number: order.append(number))
    bodies = [whole(answer) for answer in await asyncio.gather(*tasks)]
    assert order == list(range(5))
    assert all(json.loads(body) == json.loads(bodies[0]) for body in bodies)


async def test_answers_to_many_share_the_part_of_a_turn(broker):
    """Small ones, too: those that do not fit are made in later turns."""
    fix_parts(10 * PIECE_UNITS)
    request = Request("GET", b"/stats?format=json&topic=alone&include_clients=false", "here")
    found = [broker.api(request) for _ in range(50)]
    at_once = [answer for answer in found if isinstance(answer, Response)]
    assert 1 <= len(at_once) <= 10
    later = [answer for answer in found if not isinstance(answer, Response)]
    bodies = {whole(answer) for answer in at_once + await asyncio.gather(*later)}
    assert len({json.dumps(json.loads(body)["topics"]) for body in bodies}) == 1
    # And the next turn has a part of its own.
    assert isinstance(broker.api(request), Response)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_long_answer_leaves_in_the_pieces_that_it_was_made_in(broker, method):
    """The last turn joins nothing."""
    fix_parts(10 * PIECE_UNITS)
    protocol, wire = broker.connect()
    sizes = []
    write, wire.write = wire.write, lambda data: (sizes.append(len(data)), write(data))
    request = f"{method} /stats?format=json&include_mem=false HTTP/1.1\r\nHost: localhost\r\n\r\n"
    protocol.data_received(request.encode() + b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while not wire.written.endswith(b"OK"):
        await asyncio.sleep(0)
    head, _, rest = wire.written.partition(b"\r\n\r\n")
    size = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    if method == "HEAD":
        assert rest.startswith(b"HTTP/1.1 200 OK")
    else:
        found = json.loads(rest[:size])
        assert len(found["topics"]) == 52
        assert len(sizes) > 10
        assert max(sizes) < size // 4


async def ask_and_read_little(broker, *host):
    """A connection whose peer reads two pieces of its long answer, and asks for more behind it."""
    protocol, wire = broker.connect(*host)
    wire.room = 3
    ask = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"
    protocol.data_received(ask % b"/stats?format=json" + ask % b"/ping")
    while not wire.written:
        await asyncio.sleep(0)
    return protocol, wire


async def test_what_a_peer_does_not_read_is_counted(broker):
    """It leaves as the peer reads, before the next answer; a peer that goes gives it back."""
    fix_parts(10 * PIECE_UNITS)
    before = used_bytes()
    protocol, wire = await ask_and_read_little(broker)
    gone, _ = await ask_and_read_little(broker)
    assert used_bytes() - before > 2 * len(wire.written)
    gone.connection_lost(None)
    turns = 0
    while not wire.written.endswith(b"OK"):
        left = used_bytes() - before
        wire.room = 2
        protocol.resume_writing()
        await asyncio.sleep(0)
        turns += 1
        assert used_bytes() - before < left or left == 0
    assert turns > 5
    assert used_bytes() == before
    head, _, rest = wire.written.partition(b"\r\n\r\n")
    size = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    assert len(json.loads(rest[:size])["topics"]) == 52
    assert rest[size:].startswith(b"HTTP/1.1 200 OK")


async def test_nor_more_of_it_than_memory_allows(broker, caplog):
    fix_parts(10 * PIECE_UNITS)
    before = used_bytes()
    first, _ = await ask_and_read_little(broker)
    memory = broker.registry.memory
    memory.set_ceiling(memory.used_bytes() + (used_bytes() - before) // 2)
    try:
        # Other tests may have used up the log lines of the usual address.
        protocol, wire = await ask_and_read_little(broker, "127.0.0.9")
        assert wire.written.startswith(b"HTTP/1.1 503 ")
        assert any("raise --max-memory" in message for message in caplog.messages)
        assert REFUSED["no_memory"]
        first.connection_lost(None)
        assert used_bytes() == before
        wire.room = None
        protocol.resume_writing()
        protocol.data_received(b"GET /stats?format=json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not wire.written.endswith(b"}"):
            await asyncio.sleep(0)
        assert wire.written.count(b"HTTP/1.1 200 ") == 2
    finally:
        memory.set_ceiling(0)


async def test_the_end_of_the_server_sends_what_there_is(broker):
    fix_parts(10 * PIECE_UNITS)
    before = used_bytes()
    protocol, wire = await ask_and_read_little(broker)
    protocol.close()
    assert used_bytes() == before
    head, _, rest = wire.written.partition(b"\r\n\r\n")
    assert len(rest) == int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    assert wire.ended == ["close"]
