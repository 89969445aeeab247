"""A large /mpub is checked as a whole and then put a part in each turn: counted in messages, never in time."""

import asyncio

import pytest
from nsqfast._ext.dev.probes import fix_parts

from support.broker_life import run_turn
from support.core import NEVER, sync
from support.http import HttpBroker, post

LARGE = 12_000  # messages
SLICE, PART = 1024, 2000
TURN_MAX = 2 * SLICE  # a part ends behind the slice in which it is spent
CHECK_PART = 100


@pytest.fixture(autouse=True)
def parts():
    yield
    fix_parts(0)


@pytest.fixture
def make_broker(tmp_path):
    brokers = []

    def make(**flags):
        flags = {"max_body_size": 1 << 20, "mem_queue_size": 100_000} | flags
        brokers.append(HttpBroker(tmp_path / str(len(brokers)), has_shortcut=True, **flags))
        return brokers[-1]

    yield make
    fix_parts(NEVER)
    for broker in brokers:
        broker.registry.topics.close()


def numbers(first, end):
    return [b"%d" % number for number in range(first, end)]


def encode(bodies, is_binary):
    if not is_binary:
        return b"\n".join(bodies) + b"\n\n"
    sized = [len(body).to_bytes(4, "big") + body for body in bodies]
    return len(bodies).to_bytes(4, "big") + b"".join(sized)


def mpub(topic, bodies, is_binary):
    return post(f"/mpub?topic={topic}{'&binary=true' * is_binary}", encode(bodies, is_binary))


def oks(wire):
    return wire.written.count(b"HTTP/1.1 200 OK")


async def run_turns(broker, is_done, topic, wire=None):
    """Until it is; no turn puts more than a part, and no answer comes before the last message."""
    before = topic.message_count
    for _ in range(10_000):
        if is_done():
            return
        await asyncio.sleep(0)
        assert topic.message_count - before <= TURN_MAX
        before = topic.message_count
        if wire is not None and before < LARGE:
            assert oks(wire) == 0
    raise AssertionError("it does not end")


MODES = {"memory": {}, "disk": {"mem_queue_size": 0}}
DURABLE = {"mem_queue_size": 0, "sync_every": 1}


@pytest.mark.parametrize("is_binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("mode", MODES)
async def test_it_is_put_in_slices(make_broker, is_binary, mode):
    """What comes behind it on its connection stays behind it; others have their turn."""
    broker = make_broker(**MODES[mode])
    topic = broker.registry.topics.ensure("t")
    fix_parts(PART)
    [greedy, wire], [other, its] = broker.connect(), broker.connect()
    greedy.data_received(mpub("t", numbers(0, LARGE), is_binary))
    greedy.data_received(post("/pub?topic=t", b"%d" % LARGE))
    assert topic.message_count <= TURN_MAX
    other.data_received(post("/pub?topic=u", b"x"))
    await asyncio.sleep(0)
    assert oks(its) == 1
    await run_turns(broker, lambda: oks(wire) == 2, topic, wire)
    fix_parts(NEVER)
    counts, bodies = broker.topics()["t"]
    assert counts[0] == LARGE + 1
    assert bodies == numbers(0, LARGE + 1)


@pytest.mark.parametrize("is_binary", [False, True], ids=["text", "binary"])
async def test_on_a_durable_broker(make_broker, is_binary):
    broker = make_broker(**DURABLE)
    topic = broker.registry.topics.ensure("t")
    fix_parts(PART)
    greedy, wire = broker.connect()
    greedy.data_received(mpub("t", numbers(0, LARGE), is_binary))
    turns = 0
    while topic.depth < LARGE:
        before = topic.depth
        run_turn(broker.registry)
        await asyncio.sleep(0)
        assert topic.depth - before <= TURN_MAX
        turns += 1
    assert turns > LARGE // TURN_MAX
    await asyncio.sleep(0)
    assert oks(wire) == 0  # no fsync has ended
    sync(broker.registry)
    while oks(wire) == 0:
        await asyncio.sleep(0)
    assert topic.message_count == LARGE


async def test_several_share_the_part(make_broker):
    broker = make_broker()
    topic = broker.registry.topics.ensure("t")
    fix_parts(PART)
    wires = []
    for number in range(5):
        greedy, wire = broker.connect()
        greedy.data_received(mpub("t", numbers(0, LARGE), number % 2))
        wires.append(wire)
    await run_turns(broker, lambda: sum(map(oks, wires)) == 5, topic)
    assert topic.message_count == 5 * LARGE


@pytest.mark.parametrize("is_binary", [False, True], ids=["text", "binary"])
async def test_one_that_is_wrong_at_its_end_queues_nothing(make_broker, is_binary):
    """Its check takes many turns."""
    broker = make_broker()
    topic = broker.registry.topics.ensure("t")
    bodies = [*numbers(0, LARGE), b"x" * 101]
    fix_parts(CHECK_PART)
    greedy, wire = broker.connect()
    greedy.data_received(mpub("t", bodies, is_binary))
    turns = 0
    while not wire.written:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= LARGE // CHECK_PART
    assert wire.written.startswith(b"HTTP/1.1 413 ")
    assert (b"BAD_MESSAGE" if is_binary else b"MSG_TOO_BIG") in wire.written
    assert topic.message_count == 0


async def test_a_small_one_whose_check_takes_long_is_put_as_a_whole(make_broker):
    broker = make_broker()
    topic = broker.registry.topics.ensure("t")
    fix_parts(CHECK_PART)
    greedy, wire = broker.connect()
    greedy.data_received(mpub("t", numbers(0, 1000), is_binary=False))
    while not wire.written:
        assert topic.message_count in (0, 1000)
        await asyncio.sleep(0)
    assert oks(wire) == 1
    assert topic.message_count == 1000


async def test_a_topic_that_goes_meanwhile(make_broker):
    broker = make_broker()
    broker.registry.topics.ensure("t")
    fix_parts(PART)
    greedy, wire = broker.connect()
    greedy.data_received(mpub("t", numbers(0, LARGE), is_binary=True))
    await asyncio.sleep(0)
    broker.registry.topics.delete("t")
    while not wire.written:
        await asyncio.sleep(0)
    assert wire.written.startswith(b"HTTP/1.1 503 ")


async def test_what_was_put_before_an_error_stays(make_broker, tmp_path):
    broker = make_broker(mem_queue_size=0, max_bytes_per_file=100_000)
    topic = broker.registry.topics.ensure("t")
    channel = topic.channel("c")
    obstacle = tmp_path / "0" / "t:c.diskqueue.000001.dat"
    obstacle.mkdir()
    fix_parts(PART)
    greedy, wire = broker.connect()
    greedy.data_received(mpub("t", numbers(0, LARGE), is_binary=True))
    while not wire.written:
        await asyncio.sleep(0)
    assert wire.written.startswith(b"HTTP/1.1 503 ")
    assert 0 < channel.depth < LARGE
    assert channel.depth % SLICE == 0
    obstacle.rmdir()
