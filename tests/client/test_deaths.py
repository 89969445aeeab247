"""What a consumer of dead letters is told of them: ArrayBatch.deaths."""

import asyncio
import json

import pytest

from nsqfast.client import Config, Consumer, Producer, sync
from nsqfast.client.deaths import IDS_MAX, read_deaths
from nsqfast.errors import ProtocolError
from support.fake_nsqd import FakeNsqd
from support.waiting import until
from support.web import get, topic_stats

CONFIG = Config(max_in_flight=2000)
COUNT = IDS_MAX + 20
DEATH = {
    "reason": "failed",
    "topic": "t",
    "channel": "c",
    "failures": 3,
    "attempts": 4,
    "client": "worker-7",
    "error": "KeyError: 'customer'",
    "first_id": "18ab3c3e7a669000",
    "published": 1795998594787797913,
    "died": 1795998630103771064,
}


@pytest.fixture(scope="module")
def implementation():
    """Go's nsqd has no dead letters; FakeNsqd stands for it."""
    return "nsqfast"


async def kill(broker, address, topic, count):
    """Let so many messages die; return their topic, in which there is one more message that did not."""
    async with (
        Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer,
        Producer(address) as producer,
    ):
        await producer.publish_many(topic, [b"%d" % number for number in range(count)])
        done = 0
        async for message in consumer:
            message.reject(f"error {message.body.decode()}")
            done += 1
            if done == count:
                break
        await until(
            lambda: (topic_stats(broker.http, f"{topic}.c.dead") or {}).get("depth") == count
        )
        await producer.publish(f"{topic}.c.dead", b"alive")
    return f"{topic}.c.dead"


async def take(consumer, count):
    """What is known of each body, when so many have come."""
    found = {}
    async for batch in consumer.arrays(count, 0.05):
        deaths = await batch.deaths()
        found |= {batch.body(row): death for row, death in enumerate(deaths)}
        batch.finish()
        if len(found) == count:
            return found
    raise AssertionError("it ended")


async def test_told(loop_factory, broker, address, topic):
    """Also more than one question has room for, and while it leaves."""
    dead = await kill(broker, address, topic, COUNT)
    peeked = get(broker.http, f"/topic/peek?topic={dead}&limit=1").json()["messages"]
    async with Consumer(dead, "archive", nsqd=address, config=CONFIG) as consumer:
        found = await take(consumer, COUNT + 1)
    assert found.pop(b"alive") is None
    assert found[peeked[0]["body"].encode()] == peeked[0]["death"]
    assert all(death["error"] == f"error {body.decode()}" for body, death in found.items())
    assert topic_stats(broker.http, dead)["channels"]["archive"]["depth"] == 0


async def test_told_at_the_end(broker, address, topic):
    dead = await kill(broker, address, topic, 1)
    async with Consumer(dead, "archive", nsqd=address) as consumer:
        async for batch in consumer.arrays(2):
            consumer.request_stop()
            deaths = await batch.deaths()
            assert [death and death["reason"] for death in deaths] == ["rejected", None]
            assert batch.finish() == 2


async def test_in_threads(broker, address, topic):
    dead = await kill(broker, address, topic, 1)

    def consume():
        with sync.Consumer(dead, "archive", nsqd=address) as consumer:
            batch = next(consumer.arrays(2))
            deaths = batch.deaths()
            batch.finish()
            return deaths

    deaths = await asyncio.to_thread(consume)
    assert [death and death["error"] for death in deaths] == ["error 0", None]


async def test_of_several_nsqd(broker, address, topic):
    """One of them never heard of it, and is not asked."""
    dead = await kill(broker, address, topic, 1)

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        peer.deliver(1, b"of Go")
        said = [name for name, _ in await peer.part()]
        assert set(said) <= {"RDY", "FIN"}

    async with FakeNsqd(script) as fake:
        nsqd = [address, fake.address]
        async with Consumer(dead, "archive", nsqd=nsqd, config=CONFIG) as consumer:
            found = await take(consumer, 3)
    assert (found[b"alive"], found[b"of Go"], found[b"0"]["topic"]) == (None, None, topic)


@pytest.mark.parametrize(
    "answer",
    [b"OK", b"[]", b"\xff", b'{"%016x": null}' % 1, b'{"%016x": {"reason": "failed"}}' % 1, None],
)
async def test_no_answer(topic, answer):
    """The connection ends, and nothing is known; the consumer goes on."""

    async def script(peer):
        await peer.subscribe(reject=True)
        await peer.expect("RDY")
        peer.deliver(1, b"x")
        _, ids = await peer.expect("DEATHS")
        assert ids == b"%016x" % 1
        if answer is not None:
            peer.respond(answer)
            await peer.read_to_end()

    async with FakeNsqd(script) as fake, Consumer(topic, "c", nsqd=fake.address) as consumer:
        async for batch in consumer.arrays(1):
            assert await batch.deaths() == [None]
            assert batch.finish() == 0
            break


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reason", None),
        ("topic", 1),
        ("failures", "3"),
        ("failures", True),
        ("attempts", 1 << 31),
        ("died", 1 << 63),
        ("published", 1.5),
    ],
)
def test_what_is_no_death(name, value):
    with pytest.raises(ProtocolError, match="no deaths"):
        read_deaths(json.dumps({"1": {**DEATH, name: value}}).encode())


def test_keys_of_later_versions():
    assert read_deaths(json.dumps({"1": {**DEATH, "more": 1}}).encode()) == {"1": DEATH}
