"""Consuming from real brokers: every style, every answer, the end, and what happens when connections break."""

import asyncio
import contextlib
import random

import pytest

from nsqfast.client import ClosedError, Config, Consumer, OptionsError, Producer, RefusedError
from support.fake_nsqd import FakeNsqd
from support.server import start_nsqd
from support.waiting import until
from support.web import topic_stats

FAST = Config(max_in_flight=100, default_requeue_delay_s=0, max_backoff_duration_s=0)


async def publish(address, topic, count, prefix=b""):
    async with Producer(address) as producer:
        await producer.publish_many(topic, [prefix + b"%d" % number for number in range(count)])


def channel(broker, topic, name="c"):
    return topic_stats(broker.http, topic)["channels"][name]


async def settled(broker, topic):
    """Until nothing is queued or in flight."""
    await until(
        lambda: (
            channel(broker, topic)["depth"] == 0 and channel(broker, topic)["in_flight_count"] == 0
        )
    )


async def test_one_by_one(loop_factory, broker, address, topic):
    await publish(address, topic, 500)
    found = []
    async with Consumer(topic, "c", nsqd=address, config=FAST) as consumer:
        async for message in consumer:
            assert message.attempts == 1
            assert len(message.id) == 16
            assert message.nsqd == address
            assert not message.is_answered
            found.append(message.body)
            assert message.finish()
            assert not message.finish(), "once is enough"
            assert not message.requeue()
            assert not message.touch()
            if len(found) == 500:
                break
        assert found == [b"%d" % number for number in range(500)]
        stats = consumer.stats()
        assert (stats.received, stats.finished, stats.in_flight) == (500, 500, 0)
        assert stats.connections[address].is_connected
        assert stats.connections[address].rdy == 100
    await settled(broker, topic)
    assert channel(broker, topic)["requeue_count"] == 0


async def test_handler_with_failures(loop_factory, broker, address, topic):
    """Each third one fails twice; all arrive in the end, several at a time."""
    seen, at_once = {}, [0, 0]

    async def handler(message):
        at_once[0] += 1
        at_once[1] = max(at_once)
        await asyncio.sleep(0)
        at_once[0] -= 1
        seen[message.body] = seen.get(message.body, 0) + 1
        if int(message.body) % 3 == 0 and message.attempts < 3:
            raise ValueError("not now")
        if sum(seen.values()) == 300 + 2 * 100:
            consumer.request_stop()

    consumer = Consumer(topic, "c", nsqd=address, config=FAST)
    await publish(address, topic, 300)
    await consumer.run(handler, concurrency=10)
    assert consumer.stats().requeued == 200
    await settled(broker, topic)
    assert seen == {b"%d" % n: 3 if n % 3 == 0 else 1 for n in range(300)}
    assert 1 < at_once[1] <= 10


async def test_plain_function_and_kept_messages(broker, address, topic):
    kept = []

    def handler(message):
        message.keep()
        kept.append(message)
        if len(kept) == 10:
            consumer.request_stop()

    consumer = Consumer(topic, "c", nsqd=address, config=FAST)
    await publish(address, topic, 10)
    running = asyncio.create_task(consumer.run(handler))
    await until(lambda: len(kept) == 10)
    assert channel(broker, topic)["in_flight_count"] == 10
    assert [message.finish() for message in kept] == [True] * 10
    await running
    assert consumer.stats().finished == 10
    await settled(broker, topic)


async def test_batches(broker, address, topic):
    await publish(address, topic, 250)
    sizes = []
    async with Consumer(topic, "c", nsqd=address, config=FAST) as consumer:
        async for batch in consumer.batches(max_messages=60, max_wait_s=0.05):
            sizes.append(len(batch))
            assert [message.body for message in batch] == [m.body for m in batch.messages]
            assert batch.touch() == len(batch)
            if len(sizes) == 1:
                assert batch.messages[0].finish()
                assert batch.finish() == len(batch) - 1
            else:
                assert batch.finish() == len(batch)
            if sum(sizes) == 250:
                break
    assert max(sizes) <= 60
    assert sizes[0] == 60
    await settled(broker, topic)


async def test_requeue_with_and_without_delay(broker, address, topic):
    await publish(address, topic, 1)
    times = []
    async with Consumer(topic, "c", nsqd=address, config=FAST) as consumer:
        async for message in consumer:
            times.append(asyncio.get_running_loop().time())
            assert message.attempts == len(times)
            if len(times) == 1:
                message.requeue(delay_s=0.2)
            elif len(times) == 2:
                message.requeue()  # default_requeue_delay is 0 here
            else:
                message.finish()
                break
    assert times[1] - times[0] >= 0.19
    assert times[2] - times[1] < times[1] - times[0]
    await settled(broker, topic)


async def test_the_automatic_delay_grows_up_to_its_maximum():
    delays = []

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        for number, attempts in enumerate([1, 2, 3, 9]):
            peer.deliver(number, attempts=attempts)
            delays.append(int((await peer.expect("REQ"))[0][1]))
        await peer.part()

    config = Config(
        max_attempts=0,
        default_requeue_delay="90s",
        max_requeue_delay="3m",
        max_backoff_duration_s=0,
    )
    async with (
        FakeNsqd(script) as fake,
        Consumer("t", "c", nsqd=fake.address, config=config) as consumer,
    ):
        for _ in range(4):
            (await anext(aiter(consumer))).requeue()
        await until(lambda: len(delays) == 4)
    assert delays == [90_000, 180_000, 180_000, 180_000]


async def test_an_id_that_is_no_text(caplog):
    """What an nsqd sends for an id is its own affair: the message is given up, or shown, like any other."""
    identity = bytes(range(0xF0, 0x100))
    told = []

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        peer.deliver(1, attempts=9, identity=identity)
        peer.deliver(2, identity=identity)
        line = await peer.reader.readuntil(b"FIN " + identity + b"\n")
        told.append(line)
        await peer.part()

    async with (
        FakeNsqd(script) as fake,
        Consumer("t", "c", nsqd=fake.address, config=Config(max_in_flight=2)) as consumer,
    ):
        message = await anext(aiter(consumer))
        assert "\\xf0" in repr(message)
        await until(lambda: told)
    assert "t/c: dropped: \\xf0" in caplog.text


async def test_giving_up(broker, address, topic):
    """More than max_attempts: the hook, then FIN; what the hook raises requeues instead."""
    given_up, handled = [], []

    async def hook(message):
        given_up.append((message.body, message.attempts))
        if len(given_up) == 1:
            raise OSError("the dead-letter store is down")
        consumer.request_stop()

    def handler(message):
        handled.append(message.attempts)
        raise ValueError

    config = Config(
        max_in_flight=1, max_attempts=3, default_requeue_delay_s=0, max_backoff_duration_s=0
    )
    consumer = Consumer(topic, "c", nsqd=address, config=config, giving_up=hook)
    await publish(address, topic, 1)
    await consumer.run(handler)
    assert consumer.stats().given_up == 2
    await settled(broker, topic)
    assert handled == [1, 2, 3]
    assert given_up == [(b"0", 4), (b"0", 5)]


async def test_touch_keeps_a_message(implementation, address, topic):
    """Longer than msg_timeout in a handler, and delivered once."""
    await publish(address, topic, 3)
    config = Config(max_in_flight=3, msg_timeout="1s")
    seen = []
    async with Consumer(topic, "c", nsqd=address, config=config, auto_touch=True) as consumer:
        async for message in consumer:
            seen.append(message)
            if len(seen) == 3:
                break
        # The two that wait in a queue of ours have time, too.
        await until(lambda: consumer.stats().touched >= 12)
        assert [message.attempts for message in seen] == [1, 1, 1]
        assert [message.finish() for message in seen] == [True] * 3
        assert consumer.stats().received == 3


async def test_a_stop_hands_messages_back(broker, address, topic):
    """What nobody took, and what somebody took and did not answer: at once to the next consumer."""
    await publish(address, topic, 50)
    async with Consumer(topic, "c", nsqd=address, config=FAST) as consumer:
        taken = [await anext(aiter(consumer)) for _ in range(10)]
        await until(lambda: consumer.stats().in_flight == 50)
        taken[0].finish()
    assert not taken[1].finish()
    await until(lambda: channel(broker, topic)["requeue_count"] == 49)
    assert channel(broker, topic)["in_flight_count"] == 0
    async with Consumer(topic, "c", nsqd=address, config=FAST) as consumer:
        again = {(await anext(aiter(consumer))).body for _ in range(49)}
    assert again == {b"%d" % number for number in range(1, 50)}


async def test_a_stop_lets_handlers_end(broker, address, topic):
    started, release = asyncio.Event(), asyncio.Event()

    async def handler(_):
        started.set()
        await release.wait()

    await publish(address, topic, 10)
    consumer = Consumer(topic, "c", nsqd=address, config=FAST)
    running = asyncio.create_task(consumer.run(handler, concurrency=2))
    await started.wait()
    consumer.request_stop()
    await until(lambda: channel(broker, topic)["requeue_count"] == 8)
    assert not running.done()
    release.set()
    await running
    assert consumer.stats().finished == 2
    with pytest.raises(ClosedError, match="has stopped; make a new one"):
        aiter(consumer)


@pytest.mark.parametrize("way", ["grace", "cancel"])
async def test_handlers_that_do_not_end(broker, address, topic, way):
    started = asyncio.Event()

    async def handler(_):
        started.set()
        await asyncio.Event().wait()

    await publish(address, topic, 3)
    consumer = Consumer(topic, "c", nsqd=address, config=FAST)
    running = asyncio.create_task(consumer.run(handler, concurrency=2, grace_s=0.05))
    await started.wait()
    if way == "cancel":
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        consumer.request_stop()
        await running
    await until(lambda: channel(broker, topic)["depth"] == 3)
    assert channel(broker, topic)["in_flight_count"] == 0


async def test_forgotten_messages(address, topic):
    """Nobody holds it, nobody answered: it leaves our books, and nsqd delivers it again in time."""
    await publish(address, topic, 3)
    async with Consumer(topic, "c", nsqd=address, config=FAST) as consumer:
        for _ in range(3):
            await anext(aiter(consumer))
        await until(lambda: consumer.stats().in_flight == 0)


async def test_a_cancelled_waiter_leaves_its_message_to_others(address, topic):
    async def one(consumer):
        message = await anext(aiter(consumer))
        message.finish()
        return message.body

    async with Consumer(topic, "c", nsqd=address, config=FAST) as consumer:
        waiting = [asyncio.ensure_future(one(consumer)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await publish(address, topic, 2)
        bodies = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(bodies[0], asyncio.CancelledError)
        assert sorted(bodies[1:]) == [b"0", b"1"]


async def test_a_killed_broker_that_comes_back(implementation, tmp_path, topic):
    """The answer on a broken connection says that it is none; the messages come again on the next one."""
    server = start_nsqd(implementation, tmp_path, "--mem-queue-size=0", "--sync-every=1")
    port = server.tcp[1]
    address = f"127.0.0.1:{port}"
    try:
        await publish(address, topic, 20)
        async with Consumer(topic, "c", nsqd=address, config=FAST) as consumer:
            old = [await anext(aiter(consumer)) for _ in range(5)]
            await until(lambda: consumer.stats().waiting == 15)
            server.kill()
            await until(lambda: not consumer.stats().connections[address].is_connected)
            assert not old[0].finish()
            assert consumer.stats().connections[address].error
            server = await asyncio.to_thread(
                start_nsqd, implementation, tmp_path, f"--tcp-address={address}"
            )
            await publish(address, topic, 5, prefix=b"new")
            bodies = set()
            async for message in consumer:
                bodies.add(message.body)
                message.finish()
                if {b"new%d" % number for number in range(5)} <= bodies:
                    break
            assert consumer.stats().connects == 2
            assert consumer.stats().dropped == 15
    finally:
        server.kill()


async def test_rdy_over_several_brokers(implementation, tmp_path_factory, topic):
    """Shares that add up; the survivors get what a lost one had, and it gets its part when it is back."""
    servers = [start_nsqd(implementation, tmp_path_factory.mktemp("n")) for _ in range(3)]
    addresses = ["{}:{}".format(*server.tcp) for server in servers]
    try:
        config = Config(max_in_flight=10)
        async with Consumer(topic, "c", nsqd=addresses, config=config) as consumer:

            def rdy():
                return [consumer.stats().connections[address].rdy for address in addresses]

            await until(lambda: sorted(rdy()) == [3, 3, 4])
            servers[1].kill()
            await until(lambda: rdy() == [5, 0, 5])
            servers[1] = await asyncio.to_thread(
                start_nsqd,
                implementation,
                tmp_path_factory.mktemp("n"),
                f"--tcp-address={addresses[1]}",
            )
            await until(lambda: sorted(rdy()) == [3, 3, 4])
            for server in servers:
                await publish("{}:{}".format(*server.tcp), topic, 20)
            async for message in consumer:
                message.finish()
                assert consumer.stats().in_flight <= 10
                if consumer.stats().finished == 60:
                    break
    finally:
        for server in servers:
            server.kill()


async def test_more_brokers_than_messages_allowed(topic):
    """RDY 1 goes round; whoever is idle makes room."""
    had = set()

    def script(number):
        async def talk(peer):
            await peer.subscribe()
            async for name, parameters, _ in peer.commands():
                if name == "CLS":
                    peer.respond(b"CLOSE_WAIT")
                elif parameters == ["1"]:
                    had.add(number)

        return talk

    config = Config(max_in_flight=1, low_rdy_idle_timeout="1s", rdy_redistribute_interval="20ms")
    async with contextlib.AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(FakeNsqd(script(n))) for n in range(3)]
        addresses = [fake.address for fake in fakes]
        async with Consumer(topic, "c", nsqd=addresses, config=config) as consumer:
            await until(lambda: had == {0, 1, 2})
            assert sum(one.rdy for one in consumer.stats().connections.values()) == 1


async def test_backoff_on_the_wire(topic):
    """RDY 0 before the REQ, a pause, RDY 1 for one message, RDY as before after enough successes."""
    said = []

    async def script(peer):
        await peer.subscribe()
        said.append(await peer.command())
        peer.deliver(1)
        for number in (2, 3):
            while True:
                command = await peer.command()
                said.append(command)
                if command[0] == "RDY" and command[1] != ["0"]:
                    break
            peer.deliver(number)
        said.extend(await peer.part())

    config = Config(max_in_flight=7, backoff_multiplier="10ms", default_requeue_delay_s=0)
    async with (
        FakeNsqd(script) as fake,
        Consumer(topic, "c", nsqd=fake.address, config=config, backoff="nsq") as consumer,
    ):
        (await anext(aiter(consumer))).requeue()
        assert consumer.stats().backoff_level == 1
        message = await anext(aiter(consumer))
        assert message.finish()
        assert consumer.stats().backoff_level == 0
        (await anext(aiter(consumer))).finish()
    names = [(command[0], *command[1][:1]) for command in said]
    ids = ["0000000000000001", "0000000000000002", "0000000000000003"]
    assert names == [
        ("RDY", "7"),
        ("RDY", "0"),
        ("REQ", ids[0]),
        ("RDY", "1"),
        ("RDY", "7"),
        ("FIN", ids[1]),
        ("FIN", ids[2]),
    ]


async def test_answers_that_come_too_late(caplog, topic):
    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        peer.deliver(1)
        await peer.expect("FIN")
        peer.refuse("E_FIN_FAILED FIN 0000000000000001 failed ID not in flight")
        peer.deliver(2)
        await peer.part()

    async with FakeNsqd(script) as fake, Consumer(topic, "c", nsqd=fake.address) as consumer:
        for _ in range(2):
            (await anext(aiter(consumer))).finish()
        assert consumer.stats().connects == 1
    assert "an answer came too late: E_FIN_FAILED" in caplog.text


@pytest.mark.parametrize(
    "answer", ["E_BAD_CHANNEL SUB no", "E_SUB_FAILED SUB failed", "E_UNAUTHORIZED no"]
)
async def test_refused_at_the_start(topic, answer):
    async def script(peer):
        await peer.greet()
        await peer.expect("SUB")
        peer.refuse(answer)

    async with FakeNsqd(script) as fake:
        with pytest.raises(RefusedError) as refused:
            async with Consumer(topic, "c", nsqd=fake.address):
                pass
        assert refused.value.code == answer.split()[0]


@pytest.mark.parametrize("silent_at", ["IDENTIFY", "SUB"])
async def test_a_stop_while_connecting(topic, silent_at):
    """What is half connected is hung up, too."""
    reached, ended = asyncio.Event(), asyncio.Event()

    async def script(peer):
        if silent_at == "SUB":
            await peer.greet()
            await peer.expect("SUB")
        reached.set()
        await peer.read_to_end()
        ended.set()

    async with FakeNsqd(script) as fake:
        consumer = Consumer(topic, "c", nsqd=fake.address)
        starting = asyncio.create_task(consumer.start())
        await reached.wait()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await ended.wait()


async def test_a_dead_address_does_not_keep_others_from_work(dead, address, topic):
    await publish(address, topic, 3)
    async with Consumer(topic, "c", nsqd=[dead, address], config=FAST) as consumer:
        for _ in range(3):
            (await anext(aiter(consumer))).finish()
        assert "refused" in consumer.stats().connections[dead].error


async def test_beginning_and_end(address, topic):
    consumer = Consumer(topic, "c", nsqd=address)
    with pytest.raises(ClosedError, match="not started"):
        aiter(consumer)
    await consumer.stop()
    async with consumer:
        with pytest.raises(ClosedError, match="started before"):
            await consumer.start()
        await asyncio.gather(consumer.stop(), consumer.stop())
    with pytest.raises(ClosedError, match="has stopped; make a new one"):
        aiter(consumer)


@pytest.mark.parametrize(
    ("topic", "channel", "where"),
    [
        ("a b", "c", {"nsqd": "h:1"}),
        ("t", "", {"nsqd": "h:1"}),
        ("t", "c", {}),
        ("t", "c", {"nsqd": ["h"]}),
        ("t", "c", {"nsqlookupd": "h"}),
    ],
)
def test_options(topic, channel, where):
    with pytest.raises(OptionsError):
        Consumer(topic, channel, **where)


async def test_every_message_once_under_random_answers(broker, address, topic):
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    finished = []

    async def handler(message):
        for _ in range(dice.randrange(3)):
            await asyncio.sleep(0)
        if dice.random() < 0.3:
            message.requeue(delay_s=dice.choice([0, 0.001, 0.02]), backoff=dice.random() < 0.5)
        elif dice.random() < 0.2:
            message.touch()
            raise ValueError
        else:
            finished.append(message.body)
            if len(finished) == 1000:
                consumer.request_stop()

    config = Config(
        max_in_flight=37,
        max_attempts=0,
        default_requeue_delay_s=0,
        backoff_multiplier="1ms",
        max_backoff_duration="2ms",
    )
    consumer = Consumer(topic, "c", nsqd=address, config=config, backoff="nsq")
    await publish(address, topic, 1000)
    await consumer.run(handler, concurrency=13)
    await settled(broker, topic)
    assert sorted(finished) == sorted(b"%d" % number for number in range(1000))
