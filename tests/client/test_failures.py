"""Messages whose handler fails: what is logged, when the consumer pauses, and where they go in the end."""

import asyncio
import logging
import random

import pytest

import nsqfast.client.sync
from nsqfast.client import Config, Consumer, OptionsError, Producer
from nsqfast.client import failures as failures_module
from nsqfast.client.backoff import RECENT_COUNT, Action, Backoff, ReconnectDelays
from support.fake_nsqd import FakeNsqd
from support.waiting import until
from support.web import topic_stats

# A failed message comes again at once, and nothing waits for it.
FAST = Config(max_in_flight=10, max_attempts=3, default_requeue_delay_s=0)
LAST = Config(max_in_flight=10, max_attempts=1, default_requeue_delay_s=0)


async def publish(address, topic, *bodies):
    async with Producer(address) as producer:
        await producer.publish_many(topic, bodies)


async def take_all(address, topic, count):
    """The bodies of a topic's first messages."""
    async with Consumer(topic, "look", nsqd=address) as consumer:
        bodies = []
        while len(bodies) < count:
            message = await anext(aiter(consumer))
            bodies.append(message.body)
            message.finish()
    return bodies


def lines(caplog, level=logging.WARNING):
    return [record.getMessage() for record in caplog.records if record.levelno == level]


# -- what is logged


async def test_a_failure_says_what_follows(address, topic, caplog):
    """Which message, its attempt, and when it comes again; at the end that it was dropped, and its last error."""

    def handler(message):
        if message.attempts == 3:
            asyncio.get_running_loop().call_soon(consumer.request_stop)
        raise ValueError(f"bad\n{message.body!r} {message.attempts}")

    config = Config(max_attempts=2, default_requeue_delay_s=0.004)
    await publish(address, topic, b"poison")
    consumer = Consumer(topic, "c", nsqd=address, config=config)
    running = asyncio.create_task(consumer.run(handler))
    await until(lambda: any("dropped" in line for line in lines(caplog)))
    consumer.request_stop()
    await running
    first, second, third = (line.partition(": ") for line in lines(caplog))
    assert {first[0], second[0], third[0]} == {f"{topic}/c"}
    identity = first[2].split()[3]
    assert len(identity) == 16
    said = f"the handler failed: {identity} at attempt"
    assert first[2] == f"{said} 1 of 2; it comes again in 0.004 s"
    assert second[2] == f"{said} 2 of 2; it comes again in 0.008 s, to be given up"
    error = repr(ValueError(f"bad\n{b'poison'!r} 2"))
    assert third[2] == (
        f"dropped: {identity} after 2 attempts; the last error: {error} "
        "(dead_letter_topic= or giving_up= keeps such messages)"
    )


async def test_a_failure_after_the_answer(address, topic, caplog):
    def handler(message):
        message.finish()
        consumer.request_stop()
        raise ValueError("too late")

    await publish(address, topic, b"x")
    consumer = Consumer(topic, "c", nsqd=address, config=Config(max_attempts=0))
    await consumer.run(handler)
    (line,) = lines(caplog)
    assert line.endswith(" at attempt 1, after its answer")
    assert consumer.stats().finished == 1


def test_threads_log_the_same(address, topic, caplog):
    def handler(_message):
        raise ValueError("bad")

    asyncio.run(publish(address, topic, b"x"))
    with nsqfast.client.sync.Consumer(topic, "c", nsqd=address, config=LAST) as consumer:

        class Look(logging.Handler):
            def emit(self, record):
                if "dropped" in record.getMessage():
                    consumer.request_stop()

        look = Look()
        logging.getLogger("nsqfast.client").addHandler(look)
        try:
            consumer.run(handler, concurrency=2)
        finally:
            logging.getLogger("nsqfast.client").removeHandler(look)
    failed, dropped = lines(caplog)
    assert failed.endswith("at attempt 1 of 1; it comes again in 0 s, to be given up")
    assert "after 1 attempt; the last error: ValueError('bad')" in dropped


async def test_what_is_kept_of_errors_has_an_end(address, topic, caplog):
    """The oldest error is forgotten, and what cannot be printed is not."""
    consumer = Consumer(topic, "c", nsqd=address, config=LAST)
    failures = consumer.failures

    class Message:
        nsqd, attempts, is_answered = address, 1, True

        def __init__(self, number):
            self.id = b"%016d" % number

    for number in range(failures_module.ERRORS_KEPT_MAX + 5):
        failures.note(Message(number), ValueError("\x1b[2J" * 1000))
    kept = failures._errors
    assert len(kept) == failures_module.ERRORS_KEPT_MAX
    assert (address, b"%016d" % 4) not in kept
    assert all(len(text) <= failures_module.ERROR_LENGTH_MAX for text in kept.values())
    assert "\x1b" not in "".join(kept.values())


# -- where they go


@pytest.mark.parametrize("way", ["asyncio", "threads"])
async def test_a_dead_letter_topic(broker, address, topic, caplog, way):
    """Their bodies are there, the messages are finished, and each line says so."""

    def handler(message):
        if message.body.startswith(b"bad"):
            raise ValueError(message.body.decode())

    dead = f"{topic}.dead"
    await publish(address, topic, b"good", b"bad 1", b"bad 2")
    kind = Consumer if way == "asyncio" else nsqfast.client.sync.Consumer
    consumer = kind(topic, "c", nsqd=address, config=FAST, dead_letter_topic=dead)
    if way == "asyncio":
        running = asyncio.create_task(consumer.run(handler, concurrency=3))
    else:
        running = asyncio.create_task(asyncio.to_thread(consumer.run, handler, 3))
    assert sorted(await take_all(address, dead, 2)) == [b"bad 1", b"bad 2"]
    await until(lambda: sum("moved to" in line for line in lines(caplog)) == 2)
    consumer.request_stop()
    await running
    moved = [line for line in lines(caplog) if "moved to" in line]
    assert all(line.startswith(f"{topic}/c: moved to {dead}: ") for line in moved)
    assert {line.rpartition(": ")[2] for line in moved} == {
        "ValueError('bad 1')",
        "ValueError('bad 2')",
    }
    assert (consumer.stats().finished, consumer.stats().given_up) == (3, 2)
    channel = topic_stats(broker.http, topic)["channels"]["c"]
    assert (channel["depth"], channel["in_flight_count"], channel["deferred_count"]) == (0, 0, 0)
    if way == "threads":
        consumer.close()


async def test_a_dead_letter_topic_that_takes_nothing(topic, caplog):
    """The message is requeued, and the connection on which it came goes on."""
    published, requeued = [], []

    async def script(peer):
        await peer.greet()
        async for name, parameters, body in peer.commands():
            if name == "SUB":
                peer.respond(b"OK")
            elif name == "RDY" and parameters != ["0"] and not requeued:
                peer.deliver(1, attempts=2)
            elif name == "PUB":
                published.append((parameters, body))
                peer.refuse("E_UNAUTHORIZED AUTH failed for PUB")
                return
            elif name == "REQ":
                requeued.append(parameters)
            elif name == "CLS":
                peer.respond(b"CLOSE_WAIT")

    async with FakeNsqd(script) as fake:
        async with Consumer(
            topic, "c", nsqd=fake.address, config=LAST, dead_letter_topic=f"{topic}.dead"
        ) as consumer:
            await until(lambda: requeued)
            assert consumer.stats().connects == 1
        assert published
        assert "requeued, for giving up failed" in caplog.text


async def test_an_nsqd_that_leaves_takes_its_dead_letters_connection(broker, address, topic):
    """Nothing goes on reconnecting for a broker to which the consumer is no longer connected."""

    def handler(_message):
        raise ValueError

    await publish(address, topic, b"x")
    async with Consumer(
        topic, "c", nsqd=address, config=LAST, dead_letter_topic=f"{topic}.dead"
    ) as consumer:
        working = asyncio.create_task(consumer.run(handler))
        await until(lambda: consumer.stats().given_up and consumer.stats().finished)
        assert list(consumer.failures._producers) == [address]
        await consumer.drop_nsqd(address)
        assert consumer.failures._producers == {}
        await until(lambda: not consumer.failures._closing)
        consumer.request_stop()
        await working


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"dead_letter_topic": "t"}, "dead_letter_topic is 't', where the messages come from"),
        ({"dead_letter_topic": "a b"}, "'a b' is no name of a topic; it is 1 to 64 of"),
        ({"dead_letter_topic": "d", "giving_up": print}, "give one of them"),
        ({"dead_letter_topic": "d", "config": Config(max_attempts=0)}, "needs max_attempts"),
        ({"backoff": "often"}, "backoff is 'often'; it is one of share, nsq"),
    ],
)
@pytest.mark.parametrize("kind", [Consumer, nsqfast.client.sync.Consumer])
def test_what_cannot_be(kind, given, error):
    with pytest.raises(OptionsError, match=error):
        kind("t", "c", nsqd="127.0.0.1:4150", **given)


# -- when the consumer pauses


@pytest.mark.parametrize("number", range(20))
def test_below_half_nothing_pauses(number):
    """Any order of outcomes pauses exactly when half of the last ones, or more, are failures."""
    dice = random.Random(number)
    backoff = Backoff(1.0, 10.0, is_by_share=True)
    recent, finished = [False] * RECENT_COUNT, 0
    for _ in range(2000):
        if dice.random() < 0.6:
            finished += 1
            recent = [*recent[1:], False]
            continue
        count = dice.choice([1, 1, 1, 3])
        recent = [*recent, *[True] * count][-RECENT_COUNT:]
        action = backoff.failure(finished, count)
        assert (action is Action.PAUSE) == (sum(recent) * 2 >= RECENT_COUNT)
        if action is Action.PAUSE:
            backoff.pause_over()
            assert backoff.success() is Action.RESUME
            recent = [False] * RECENT_COUNT


async def test_a_few_bad_messages_stall_nobody(address, topic, caplog):
    """Five of a hundred: the others pass, without a pause."""
    caplog.set_level(logging.INFO)

    async def handler(message):
        if int(message.body) % 20 == 0:
            raise ValueError

    config = Config(max_attempts=1, default_requeue_delay_s=0, max_backoff_duration_s=3600)
    consumer = Consumer(topic, "c", nsqd=address, config=config)
    await publish(address, topic, *[b"%d" % number for number in range(100)])
    await consumer.start()
    running = asyncio.create_task(consumer.run(handler, concurrency=8))
    await until(lambda: consumer.stats().given_up == 5)
    consumer.request_stop()
    await running
    assert consumer.stats().finished == 100
    assert not [line for line in lines(caplog, logging.INFO) if "pause" in line]


@pytest.mark.parametrize("rule", ["share", "nsq"])
async def test_a_pause_says_when_it_begins_and_ends(address, topic, caplog, rule):
    """One line each, also while the pauses grow and shrink in between."""
    caplog.set_level(logging.INFO)
    is_down = True

    async def handler(_message):
        if is_down:
            raise OSError("the database is down")

    config = Config(
        max_attempts=0,
        default_requeue_delay_s=0,
        backoff_multiplier="5ms",
        max_backoff_duration="1m",
    )
    await publish(address, topic, *[b"x"] * 40)
    consumer = Consumer(topic, "c", nsqd=address, config=config, backoff=rule)
    await consumer.start()
    running = asyncio.create_task(consumer.run(handler, concurrency=4))

    def said(text):
        return [line for line in lines(caplog, logging.INFO) if text in line]

    await until(lambda: consumer.stats().backoff_level >= 2)
    is_down = False
    await until(lambda: consumer.stats().finished == 40)
    consumer.request_stop()
    await running
    begun, ended = said("deliveries pause for"), said("no more pauses, after")
    why = "a message failed" if rule == "nsq" else "8 of the last 16 messages failed, or more"
    assert begun[0] == f"{topic}/c: deliveries pause for 0.0 s: {why}"
    assert len(begun) <= 10  # once for each longer one
    assert len(ended) == 1


# -- reconnecting


def test_a_connection_that_lasted_ends_long_pauses():
    """When a broker restarts twice, the first pause is short again; not behind one that was closed at once."""
    delays = ReconnectDelays(chance=lambda: 1.0)
    for _ in range(7):
        delays.next_s()
    delays.lost_after(0.1)
    assert delays.next_s() == 10
    delays.lost_after(3.0)
    assert delays.next_s() == pytest.approx(0.1)
