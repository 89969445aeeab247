"""The end of a producer that could not deliver all: how long it waits, what it says and raises, how a program ends."""

import asyncio
import gc
import subprocess
import sys
import time
import warnings

import pytest

from nsqfast.client import (
    ClosedError,
    NotConnectedError,
    OutcomeUnknownError,
    Producer,
    PublishRefusedError,
    UndeliveredError,
)
from nsqfast.client import sync as threaded
from support.commands import run_command
from support.fake_nsqd import FakeNsqd
from support.server import start_nsqd
from support.waiting import until

SLACK_S = 4.0  # of a busy machine


def errors(caplog):
    return [record.message for record in caplog.records if record.levelname == "ERROR"]


async def test_nobody_there(loop_factory, dead, caplog):
    producer = Producer(dead, close_timeout_s=0.1)
    await producer.start()
    for number in range(5):
        producer.send(f"t{number % 2}", b"x")
    producer.send_many("many", [b"x"] * 10)
    producer.send_later("later", b"x", 1.0)
    began_s = time.monotonic()
    with pytest.raises(UndeliveredError) as undelivered:
        await producer.close()
    assert time.monotonic() - began_s < SLACK_S
    error = undelivered.value
    assert error.topics == {"t0": 3, "t1": 2, "many": 10, "later": 1}
    assert error.count == 16
    assert isinstance(error.__cause__, NotConnectedError)
    assert str(error) == (
        f"not delivered: 16 messages to later, many, t0, t1; the producer was closed: {dead}: connection refused"
    )
    await producer.close()  # it was told
    with pytest.raises(ClosedError, match="the producer is closed"):
        await producer.publish("t", b"x")
    assert errors(caplog) == [str(error)]


def test_an_exception_in_the_block_comes_first(run, dead, caplog):
    """What the program raised is not hidden; the loss is said all the same."""

    async def main():
        async with Producer(dead, close_timeout_s=0.05) as producer:
            producer.send("t", b"x")
            raise KeyError("mine")

    with pytest.raises(KeyError):
        run(main())
    assert len(errors(caplog)) == 1
    assert errors(caplog)[0].startswith("not delivered: 1 message to t; ")


async def test_an_nsqd_that_hangs(caplog):
    """It took the messages and says nothing: nobody knows whether they are there. Hanging up does not wait again."""
    got, closed = asyncio.Event(), asyncio.Event()

    async def script(peer):
        await peer.greet()
        await peer.expect("PUB")
        got.set()
        await closed.wait()

    async with FakeNsqd(script) as fake:
        producer = Producer(fake.address, close_timeout_s=0.1)
        await producer.start()
        for _ in range(3):
            producer.send("t", b"x" * 3_000_000)  # more than a socket holds
        await got.wait()
        began_s = time.monotonic()
        with pytest.raises(UndeliveredError) as undelivered:
            await producer.close()
        assert time.monotonic() - began_s < SLACK_S
        closed.set()
        assert undelivered.value.count == 3
        assert isinstance(undelivered.value.__cause__, OutcomeUnknownError)
    assert len(errors(caplog)) == 1


async def test_what_was_refused_earlier_counts(address, topic, caplog):
    """flush tells it, and then the end does not; otherwise the end does."""
    for is_flushed in (True, False):
        producer = Producer(address)
        await producer.start()
        producer.send(topic, b"good")
        producer.send(topic, b"x" * (1 << 20) + b"y")
        if is_flushed:
            with pytest.raises((PublishRefusedError, OutcomeUnknownError)):
                await producer.flush()
            await producer.close()
            assert errors(caplog) == []
        else:
            with pytest.raises(UndeliveredError) as undelivered:
                await producer.close()
            assert undelivered.value.topics == {topic: 1}
    assert len(errors(caplog)) == 1


async def test_awaited_publishes_are_told_to_who_awaits_them(dead, caplog):
    producer = Producer(dead, close_timeout_s=0)
    await producer.start()
    waiting = asyncio.create_task(producer.publish("t", b"x"))
    await asyncio.sleep(0)
    await producer.close()
    with pytest.raises(NotConnectedError):
        await waiting
    assert errors(caplog) == []


@pytest.mark.filterwarnings("ignore:unclosed producer:ResourceWarning")
def test_a_loop_that_ends(dead, caplog):
    """asyncio.run ends, nobody closed: said at once, and later uses are told what is wrong."""

    async def main():
        producer = Producer(dead)
        await producer.start()
        for _ in range(3):
            producer.send("t", b"x")
        return producer

    producer = asyncio.run(main())
    assert len(errors(caplog)) == 1
    assert errors(caplog)[0].startswith("not delivered: 3 messages to t; ")
    for use in (
        lambda: producer.send("t", b"x"),
        lambda: asyncio.run(producer.publish("t", b"x")),
        lambda: asyncio.run(producer.flush()),
    ):
        with pytest.raises(ClosedError, match="in an event loop that has ended; make one in each"):
            use()


def test_the_synchronous_one(dead, caplog):
    producer = threaded.Producer(dead, close_timeout_s=0.1, buffer_count_max=10)
    for _ in range(5):
        producer.send("a", b"x")
    for _ in range(50):  # more than the buffer holds: they wait in front of it
        producer.send("b", b"x")
    began_s = time.monotonic()
    with pytest.raises(UndeliveredError) as undelivered:
        producer.close()
    assert time.monotonic() - began_s < SLACK_S
    assert undelivered.value.topics == {"a": 5, "b": 50}
    assert errors(caplog) == [str(undelivered.value)]


PROGRAM = """
import atexit, sys
atexit.register(lambda: print("others still run"))
from nsqfast.client.sync import Producer
producer = Producer(sys.argv[1], close_timeout_s=0.2)
for number in range(5):
    producer.send("orders", b"x")
{ending}
"""


@pytest.mark.parametrize(
    "ending", ["", "raise SystemExit(3)", "raise ValueError('no')", "sys.exit()"]
)
def test_a_program_that_just_ends(dead, ending):
    """One line, and an exit status that is not 0; exit functions of others run, and output is not lost."""
    done = run_command(sys.executable, "-c", PROGRAM.format(ending=ending), dead)
    said = [line for line in done.stderr.splitlines() if "not delivered" in line]
    assert said == [
        f"not delivered: 5 messages to orders; the producer was closed: {dead}: connection refused"
    ]
    assert done.returncode not in {0, -6}
    assert done.stdout == "others still run\n"
    if "ValueError" not in ending:
        assert "Traceback" not in done.stderr


def test_a_program_whose_nsqd_comes_in_time(tmp_path, topic):
    """The end waits for it: nothing is lost, nothing is said but that it was not there at first."""
    server = start_nsqd("nsqfast", tmp_path)
    address = "{}:{}".format(*server.tcp)
    server.kill()
    program = PROGRAM.format(ending="").replace("0.2", "20")
    with subprocess.Popen(
        [sys.executable, "-c", program, address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert "no connection" in running.stderr.readline()
        server = start_nsqd("nsqfast", tmp_path, f"--tcp-address={address}")
        try:
            said = running.stderr.read()
            assert running.wait(30) == 0, said
            assert "not delivered" not in said
        finally:
            server.kill()


def test_a_loop_that_ends_warns(dead):
    async def main():
        producer = Producer(dead)
        await producer.start()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    (warning,) = [one for one in caught if issubclass(one.category, ResourceWarning)]
    assert str(warning.message) == f"unclosed producer {dead}"


async def test_nothing_is_lost_without_a_word_when_one_is_dropped(caplog):
    """What the dropped nsqd did not answer goes to the other one."""

    async def hang(peer):
        await peer.greet()
        await peer.read_to_end()

    taken = []

    async def take(peer):
        await peer.greet()
        async for name, _, body in peer.commands():
            assert name == "PUB"
            taken.append(body)
            peer.respond(b"OK")

    async with (
        FakeNsqd(hang) as hung,
        FakeNsqd(take) as good,
        Producer(hung.address, good.address, close_timeout_s=0.05) as producer,
    ):
        await until(lambda: all(producer.stats().connections.values()))
        for number in range(10):
            producer.send("t", b"%d" % number)
        await producer.drop_nsqd(hung.address)
        await producer.flush()
        assert sorted(taken) == [b"%d" % number for number in range(10)]
        assert list(producer.stats().connections) == [good.address]
    assert errors(caplog) == []
