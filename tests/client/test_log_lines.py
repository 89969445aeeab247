"""What a producer and a consumer say while all is well, and when it is not; and to whom."""

import asyncio
import logging

import pytest
from aiohttp import web

from nsqfast.client import Config, Consumer, Producer, lifetime
from support.fake_lookup import Lookupd
from support.fake_nsqd import FakeNsqd
from support.waiting import until


class Clock:
    """The seconds of time.monotonic, moved by a test."""

    def __init__(self):
        self.now_s = 1000.0

    def monotonic(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(lifetime, "time", found)
    return found


def unknown():
    return web.json_response({"message": "TOPIC_NOT_FOUND"}, status=404)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (unknown, "nsqlookupd does not know the topic yet"),
        (None, "nsqlookupd knows the topic, but no nsqd to connect to"),
        (lambda: web.Response(status=500), "nsqlookupd: http://"),
    ],
)
async def test_what_is_missing_is_said_once_a_minute(address, topic, caplog, clock, answer, said):
    caplog.set_level(logging.INFO)

    def count():
        return sum(f"{topic}/c: {said}" in record.message for record in caplog.records)

    async with Lookupd() as lookupd:
        lookupd.answer = answer
        config = Config(lookupd_poll_interval="10ms")

        async def polls(count):
            before = len(lookupd.requests)
            await until(lambda: len(lookupd.requests) >= before + count)

        async with Consumer(topic, "c", nsqlookupd=lookupd.address, config=config) as consumer:
            await polls(5)
            assert count() == 1
            clock.now_s += 59
            await polls(5)
            assert count() == 1
            clock.now_s += 1
            await until(lambda: count() == 2)
            await polls(5)
            assert count() == 2
            lookupd.answer, lookupd.addresses = None, [address]
            await until(lambda: consumer.stats().connects == 1)
            lookupd.addresses, lookupd.answer = [], answer
            await until(lambda: count() == 3)


@pytest.mark.parametrize("hung_at", ["IDENTIFY", "SUB"])
async def test_a_hung_nsqd_holds_up_nobody(address, topic, hung_at):
    """The start returns as soon as the healthy one is connected, and messages come; the stop does not wait, either."""
    reached = asyncio.Event()

    async def script(peer):
        if hung_at == "SUB":
            await peer.greet()
            if (command := await peer.command_if_any()) is None:
                return  # the producer has nothing to say
            assert command[0] == "SUB"
        reached.set()
        await peer.read_to_end()

    async with FakeNsqd(script) as fake, Producer([fake.address, address]) as producer:
        await until(lambda: producer.stats().connections[address])
        async with asyncio.timeout(20):
            async with Consumer(topic, "c", nsqd=[fake.address, address]) as consumer:
                assert consumer.stats().connections[address].is_connected
                async with Producer(address) as healthy:
                    await healthy.publish(topic, b"x")
                (await anext(aiter(consumer))).finish()
                await reached.wait()


async def test_a_logger_of_ones_own(address, topic, caplog):
    """Everything goes there, and nothing to nsqfast.client."""
    logger = logging.getLogger("my.program")
    adapter = logging.LoggerAdapter(logger, {"request": 7})

    caplog.set_level(logging.DEBUG)
    async with (
        Producer(address, "127.0.0.1:1", logger=logger),
        Consumer(topic, "c", nsqd=address, nsqlookupd="127.0.0.1:1", logger=adapter),
    ):
        await until(lambda: f"{topic}/c {address}: connected" in caplog.text)
        await until(lambda: f"{topic}/c: nsqlookupd: " in caplog.text)
    ours = [record for record in caplog.records if record.name == "my.program"]
    assert {record.name for record in caplog.records} <= {"my.program", "asyncio"}
    assert any(getattr(record, "request", None) == 7 for record in ours)
