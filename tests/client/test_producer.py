"""Publishing to real brokers, and to one that refuses, is silent, or goes away."""

import asyncio

import numpy as np
import pytest
from nsqfast._ext.protocol.records import encode

from nsqfast.client import (
    BufferFullError,
    ClosedError,
    Middleware,
    NotConnectedError,
    OptionsError,
    OutcomeUnknownError,
    Producer,
    PublishError,
    PublishRefusedError,
    RefusedError,
)
from support.fake_nsqd import FakeNsqd
from support.ports import hold_port
from support.server import start_nsqd
from support.waiting import until
from support.web import topic_stats
from support.wire import Client


def bodies_in(server, topic, count):
    """What a plain client finds in the topic."""
    with Client(server.tcp) as client:
        client.ask("SUB", topic, "ch")
        client.command("RDY", str(min(2500, count)))
        found = []
        for message in (client.read_message() for _ in range(count)):
            client.command("FIN", message.id)
            found.append(message.body)
        client.barrier()
        return found


async def test_every_way(loop_factory, broker, address, topic):
    async with Producer(address) as producer:
        await producer.publish(topic, b"one")
        await producer.publish_many(topic, [b"two", b"three"])
        await producer.publish_many(topic, [])
        await producer.publish_later(topic, b"later", delay_s=0.01)
        await producer.send(topic, b"four")
        producer.send_many(topic, iter([b"five", b"six"]))
        await producer.send_many(topic, [])
        producer.send_later(topic, b"much later", delay_s=0.02)
        await producer.publish(topic, bytearray(b"seven"))
        await producer.publish(topic, memoryview(b"eight"))
        await producer.flush()
        stats = producer.stats()
        assert (stats.published, stats.failed, stats.waiting, stats.waiting_bytes) == (
            8,
            0,
            0,
            0,
        )
        assert stats.connections == {address: True}
    found = bodies_in(broker, topic, 10)
    words = b"one two three later four five six seven eight".split()
    assert sorted(found) == sorted([*words, b"much later"])


async def test_order_and_sizes_of_many(broker, address, topic):
    bodies = [b"%d" % number * (number % 50 + 1) for number in range(2000)]
    bodies[7] = b"x" * 900_000
    async with Producer(address) as producer:
        for body in bodies:
            producer.send(topic, body)
    assert bodies_in(broker, topic, len(bodies)) == bodies


@pytest.mark.parametrize(
    ("bad_topic", "body", "error"),
    [
        ("a b", b"x", "E_BAD_TOPIC"),
        ("", b"x", "E_BAD_TOPIC"),
        ("x" * 65, b"x", "E_BAD_TOPIC"),
        ("good", b"", "E_BAD_MESSAGE"),
        ("good", b"x" * (1 << 20) + b"y", "E_BAD_MESSAGE PUB message too big 1048577 > 1048576"),
    ],
)
async def test_what_is_refused(address, topic, bad_topic, body, error):
    async with Producer(address) as producer:
        for attempt in (
            producer.publish(bad_topic, body),
            producer.publish_many(topic, [b"a", b""]),
        ):
            with pytest.raises(PublishRefusedError) as refused:
                await attempt
            assert str(refused.value).startswith(("E_BAD_MESSAGE", error))
            assert refused.value.code in {"E_BAD_TOPIC", "E_BAD_MESSAGE"}
        await producer.publish(topic, b"and on it goes")


async def test_types(address, topic):
    async with Producer(address) as producer:
        with pytest.raises(TypeError, match="bytes, not str"):
            await producer.publish(topic, "text")
        with pytest.raises(TypeError):
            producer.send(None, b"x")
        with pytest.raises(ValueError, match="a delay of -1 s"):
            await producer.publish_later(topic, b"x", delay_s=-1)


async def test_one_bad_message_costs_no_other(implementation, broker, address, topic):
    """nsqd closes the connection over it and looks at nothing behind it."""
    if implementation == "go":
        pytest.skip("Go's nsqd closes over unread input, and its error frame is lost to a reset")
    async with Producer(address, retries=0) as producer:
        await producer.publish(topic, b"first")
        before = [producer.send(topic, b"a%d" % number) for number in range(50)]
        bad = producer.send(topic, b"x" * (2 << 20))
        behind = [producer.send(topic, b"b%d" % number) for number in range(50)]
        with pytest.raises(PublishRefusedError, match="message too big"):
            await producer.flush()
        assert isinstance(bad.exception(), PublishRefusedError)
        await asyncio.gather(*before, *behind)
        assert producer.stats().connects == 2
        assert producer.stats().resent == 0
    expected = [b"first", *[b"a%d" % n for n in range(50)], *[b"b%d" % n for n in range(50)]]
    assert bodies_in(broker, topic, 101) == expected
    assert topic_stats(broker.http, topic)["message_count"] == 101


async def test_a_killed_broker_that_comes_back(implementation, tmp_path, topic):
    """What waits is published when it is back; retries=0 would have given up what was on its way."""
    server = start_nsqd(implementation, tmp_path)
    port = server.tcp[1]
    try:
        async with Producer(f"127.0.0.1:{port}") as producer:
            await producer.publish(topic, b"before")
            server.kill()
            waiting = [producer.send(topic, b"%d" % number) for number in range(100)]
            server = await asyncio.to_thread(
                start_nsqd, implementation, tmp_path, f"--tcp-address=127.0.0.1:{port}"
            )
            await asyncio.gather(*waiting)
            assert producer.stats().connects == 2
        found = await asyncio.to_thread(bodies_in, server, topic, 100)
    finally:
        server.kill()
    assert {b"%d" % number for number in range(100)} <= {*found, b"before"} | {b"99"}


async def test_several_take_turns_and_one_dies(implementation, tmp_path_factory, topic):
    servers = [start_nsqd(implementation, tmp_path_factory.mktemp("n")) for _ in range(3)]
    addresses = ["{}:{}".format(*server.tcp) for server in servers]
    try:
        async with Producer(*addresses) as producer:
            await until(lambda: all(producer.stats().connections.values()))
            for number in range(90):
                await producer.publish(topic, b"%d" % number)
            counts = [topic_stats(server.http, topic)["message_count"] for server in servers]
            assert counts == [30, 30, 30]
            servers[1].kill()
            for number in range(50):
                await producer.publish(topic, b"after %d" % number)
            assert producer.stats().failed == 0
        left = [topic_stats(servers[i].http, topic)["message_count"] for i in (0, 2)]
        assert sum(left) >= 110
    finally:
        for server in servers:
            server.kill()


async def test_sticky(implementation, tmp_path_factory, topic):
    servers = [start_nsqd(implementation, tmp_path_factory.mktemp("n")) for _ in range(2)]
    addresses = ["{}:{}".format(*server.tcp) for server in servers]
    try:
        async with Producer(*addresses, sticky=True) as producer:
            await until(lambda: all(producer.stats().connections.values()))
            for number in range(10):
                await producer.publish(topic, b"%d" % number)
            assert topic_stats(servers[0].http, topic)["message_count"] == 10
            servers[0].kill()
            for number in range(10, 20):
                await producer.publish(topic, b"%d" % number)
        found = await asyncio.to_thread(bodies_in, servers[1], topic, 10)
        assert found == [b"%d" % number for number in range(10, 20)]
    finally:
        for server in servers:
            server.kill()


async def lose(peer):
    """Takes a publish and hangs up; who comes again may leave without one."""
    await peer.greet()
    if (command := await peer.command_if_any()) is not None:
        assert command[0] == "PUB"


async def test_outcome_unknown():
    async with FakeNsqd(lose) as fake, Producer(fake.address, retries=0) as producer:
        with pytest.raises(OutcomeUnknownError, match="no answer: nsqd closed the connection"):
            await producer.publish("t", b"x")
        assert producer.stats().resent == 0


async def test_retries_are_counted():
    """A message that kills every broker it comes to is not sent for ever."""
    async with FakeNsqd(lose) as fake, Producer(fake.address, retries=2) as producer:
        with pytest.raises(OutcomeUnknownError):
            await producer.publish("t", b"x")
        assert producer.stats().resent == 2
        assert fake.connections == 3


async def test_one_that_stops_is_passed_over():
    """E_PUB_FAILED says that this nsqd cannot: another one may."""

    async def refuse(peer):
        await lose(peer)
        peer.refuse("E_PUB_FAILED PUB failed exiting")

    async def accept(peer):
        await peer.greet()
        async for name, _, _ in peer.commands():
            assert name == "PUB"
            peer.respond(b"OK")

    async with FakeNsqd(refuse) as bad, FakeNsqd(accept) as good:
        async with Producer(bad.address, good.address, sticky=True) as producer:
            await until(lambda: all(producer.stats().connections.values()))
            await producer.publish("t", b"x")
        async with Producer(bad.address, retries=1) as producer:
            with pytest.raises(PublishRefusedError, match="E_PUB_FAILED PUB failed exiting"):
                await producer.publish("t", b"x")


async def test_no_answer_in_time():
    async def script(peer):
        await peer.greet()
        await peer.read_to_end()

    async with FakeNsqd(script) as fake, Producer(fake.address) as producer:
        sent = producer.send("t", b"x" * 10)
        producer._dispatcher.expire(asyncio.get_running_loop().time() * 1e9 + 29e9)
        assert not sent.done()
        producer._dispatcher.expire(asyncio.get_running_loop().time() * 1e9 + 31e9)
        with pytest.raises(OutcomeUnknownError, match="no answer in time"):
            await sent
        # Its answer may still come, so its place is kept.
        assert producer.stats().waiting == 1
        with pytest.raises(OutcomeUnknownError):
            await producer.flush()


async def test_a_full_buffer(address, topic):
    async with Producer(address, buffer_count_max=10, buffer_bytes_max=1000) as producer:
        for _ in range(10):
            producer.send(topic, b"x")
        with pytest.raises(BufferFullError, match="10 publishes of 10 bytes wait"):
            producer.send(topic, b"x")
        await producer.drain()
        assert producer.stats().waiting <= 5
        await producer.flush()
        producer.send(topic, b"y" * 400)
        with pytest.raises(BufferFullError):
            producer.send(topic, b"z" * 700)
        await producer.drain()
        await producer.send(topic, b"z" * 700)
        # One alone may be larger than the bound.
        await producer.publish(topic, b"z" * 5000)
        sent = 0
        while sent < 200:
            try:
                producer.send(topic, b"%d" % sent)
                sent += 1
            except BufferFullError:
                await producer.drain()


async def test_a_caller_that_goes_away(address, topic):
    """A publish that was cancelled keeps its place among the answers."""
    async with Producer(address) as producer:
        task = asyncio.create_task(producer.publish(topic, b"x"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await asyncio.gather(*[producer.publish(topic, b"y") for _ in range(10)])
        assert producer.stats().published == 11
        assert producer.stats().waiting == 0


async def test_beginning_and_end(address, topic):
    producer = Producer(address)
    with pytest.raises(ClosedError, match="not started"):
        producer.send(topic, b"x")
    async with producer:
        with pytest.raises(ClosedError, match="started before"):
            await producer.start()
        waiting = producer.send(topic, b"x")
    assert waiting.done()
    with pytest.raises(ClosedError, match="closed"):
        await producer.publish(topic, b"x")
    await producer.close()
    await Producer(address).close()


async def test_an_error_within_hangs_up_without_waiting(topic):
    async def script(peer):
        await peer.greet()
        await peer.read_to_end()

    async def fail(address, sent):
        async with Producer(address) as producer:
            sent.append(producer.send(topic, b"x"))
            raise ZeroDivisionError

    async with FakeNsqd(script) as fake:
        sent = []
        with pytest.raises(ZeroDivisionError):
            await fail(fake.address, sent)
        assert isinstance(sent[0].exception(), OutcomeUnknownError)


async def test_refused_at_the_start():
    async def script(peer):
        await peer.greet(auth_required=True)
        await peer.read_to_end()

    async with FakeNsqd(script) as fake:
        with pytest.raises(RefusedError, match="E_AUTH_FIRST"):
            async with Producer(fake.address):
                pass


@pytest.mark.parametrize(
    ("addresses", "options"),
    [((), {}), (("nowhere",), {}), (("h:1",), {"timeout_s": 0}), (("h:1",), {"retries": -1})],
)
def test_options(addresses, options):
    with pytest.raises(OptionsError):
        Producer(*addresses, **options)


def test_errors_have_one_root():
    assert all(
        issubclass(kind, PublishError)
        for kind in (BufferFullError, NotConnectedError, OutcomeUnknownError, PublishRefusedError)
    )


async def test_time_is_up_when_it_is():
    """Connected or not, and not at the next whole second."""
    timeout_s = 0.05

    async def hang(peer):
        await peer.greet()
        await peer.read_to_end()

    loop = asyncio.get_running_loop()
    async with FakeNsqd(hang) as fake:
        for address, kind in (
            (fake.address, OutcomeUnknownError),
            ("127.0.0.1:1", NotConnectedError),
        ):
            async with Producer(address, timeout_s=timeout_s) as producer:
                began_s = loop.time()
                first = asyncio.create_task(producer.publish("t", b"x"))
                await asyncio.sleep(timeout_s / 2)  # the second one is due later
                with pytest.raises(kind):
                    await producer.publish("t", b"x")
                assert timeout_s * 1.4 <= loop.time() - began_s < 0.9
                with pytest.raises(kind):
                    await first


async def test_it_is_there_again_soon(implementation, tmp_path, topic):
    """The pauses between attempts stay short, for publishes wait; the reason is in the figures meanwhile."""
    server = start_nsqd(implementation, tmp_path)
    address = f"127.0.0.1:{server.tcp[1]}"
    server.kill()
    async with Producer(address) as producer:
        (reconnector,) = producer._reconnectors.values()
        assert producer.stats().errors == {address: "connection refused"}
        reconnector._delays.tries = 20
        assert reconnector._delays.next_s() <= 2.0
        server = await asyncio.to_thread(
            start_nsqd, implementation, tmp_path, f"--tcp-address={address}"
        )
        try:
            await producer.ping(timeout_s=10)
            assert producer.stats().errors == {}
        finally:
            server.kill()


async def test_what_flush_raises_says_how_many(address, topic):
    async with Producer(address) as producer:
        producer.send(topic, b"x")
        producer.send(topic, b"x" * (1 << 20) + b"y")
        with pytest.raises((PublishRefusedError, OutcomeUnknownError)) as failed:
            await producer.flush()
        assert failed.value.__notes__ == [
            f"not delivered: 1 message to {topic}; since the last flush"
        ]


async def test_what_waits_for_a_connection_can_be_failed(topic):
    """None of it was sent, and what comes later waits again."""
    address = f"127.0.0.1:{hold_port()}"
    async with Producer(address, close_timeout_s=0) as producer:
        waiting = [asyncio.ensure_future(producer.publish(topic, b"x")) for _ in range(3)]
        await until(lambda: producer.stats().waiting == 3)
        producer.fail_waiting()
        for one in waiting:
            with pytest.raises(NotConnectedError, match="no connection: "):
                await one
        assert producer.stats().waiting == 0
        later = asyncio.ensure_future(producer.publish(topic, b"x"))
        await until(lambda: producer.stats().waiting == 1)
        producer.fail_waiting()
        with pytest.raises(NotConnectedError):
            await later


@pytest.mark.parametrize("has_middleware", [False, True])
async def test_bodies_that_stand_in_one_block(broker, address, topic, has_middleware):
    """As the utilities publish them; a middleware gets them one by one."""
    bodies, _ = encode(
        b"one.two",
        np.array([0, 4], np.int64),
        np.array([3, 7], np.int64),
        np.ones(2, np.uint8),
        0,
        10,
        1000,
    )
    around = [Middleware()] if has_middleware else []
    async with Producer(address, middleware=around) as producer:
        await producer.send_encoded(topic, bodies)
        with pytest.raises(PublishRefusedError):
            await producer.send_encoded("no good", bodies)
    assert bodies_in(broker, topic, 2) == [b"one", b"two"]
