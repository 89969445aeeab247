"""SIGTERM and Ctrl-C end `run` quietly, after the handlers that are at work; who handles signals keeps them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from nsqfast.client import Config, Consumer, OptionsError, Producer
from nsqfast.client.sync import Consumer as SyncConsumer
from support.waiting import until
from support.web import topic_stats

SIGNALS = (signal.SIGTERM, signal.SIGINT)

# `signals` is what the program itself does about them.
ASYNCIO = """
import asyncio, sys
from nsqfast.client import Consumer

address, topic = sys.argv[1:]

async def handler(message):
    print("begun", flush=True)
    await asyncio.sleep({work_s})
    print("handled", flush=True)

async def main():
    await Consumer(topic, "c", nsqd=address).run(handler)
    print("ended", flush=True)

asyncio.run(main())
"""
THREADS = """
import sys, time
from nsqfast.client.sync import Consumer

address, topic = sys.argv[1:]

def handler(message):
    print("begun", flush=True)
    # Python handles a signal between two instructions: one that comes right before a sleep waits until its end.
    end_s = time.monotonic() + {work_s}
    while time.monotonic() < end_s:
        time.sleep(0.01)
    print("handled", flush=True)

with Consumer(topic, "c", nsqd=address) as consumer:
    consumer.run(handler, concurrency={concurrency})
    print("ended", flush=True)
"""
UVLOOP = ASYNCIO.replace("asyncio.run(main())", "import uvloop; uvloop.run(main())")
PROGRAMS = {
    "asyncio": ASYNCIO,
    "uvloop": UVLOOP,
    "this thread": THREADS.replace("{concurrency}", "1"),
    "threads": THREADS.replace("{concurrency}", "2"),
}


def publish_one(address, topic):
    async def publish():
        async with Producer(address) as producer:
            await producer.publish(topic, b"x")

    asyncio.run(publish())


def start(program, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("way", PROGRAMS)
def test_a_signal_lets_the_handler_end(broker, address, topic, way, number):
    """The message is finished, the program goes on behind `run`, and nothing stands on stderr."""
    publish_one(address, topic)
    with start(PROGRAMS[way].format(work_s=0.2), address, topic) as program:
        assert program.stdout.readline() == "begun\n"
        program.send_signal(number)
        output, errors = program.communicate(timeout=60)
    assert (output, errors, program.returncode) == ("handled\nended\n", "", 0)
    channel = topic_stats(broker.http, topic)["channels"]["c"]
    assert (channel["depth"], channel["in_flight_count"], channel["requeue_count"]) == (0, 0, 0)


@pytest.mark.parametrize("way", ["asyncio", "this thread"])
def test_a_second_signal_waits_for_nobody(address, topic, way):
    """It does what it would have done without the library."""
    publish_one(address, topic)
    with start(PROGRAMS[way].format(work_s=300), address, topic) as program:
        assert program.stdout.readline() == "begun\n"
        program.send_signal(signal.SIGINT)
        # The first one has been handled as soon as SIGTERM means again what it meant before.
        wait_for_default(program.pid, signal.SIGTERM)
        program.send_signal(signal.SIGTERM)
        output, _ = program.communicate(timeout=60)
    assert (output, program.returncode) == ("", -signal.SIGTERM)


def wait_for_default(pid, number):
    """Until the process catches this signal no longer."""
    while True:
        with open(f"/proc/{pid}/status") as status:
            (caught,) = (int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
        if not caught >> (number - 1) & 1:
            return


async def test_who_handles_signals_keeps_them(address, topic):
    """A handler of the program's own is not replaced, unless it says so."""
    consumer = Consumer(topic, "c", nsqd=address)
    loop = asyncio.get_running_loop()
    got = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, got.set)
    try:
        running = asyncio.create_task(consumer.run(print))
        await until(lambda: consumer._was_run)
        os.kill(os.getpid(), signal.SIGTERM)
        await got.wait()
        assert not running.done()
        consumer.request_stop()
        await running
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def test_all_that_run_stop_and_the_handlers_come_back(address, topic):
    """Several consumers of a loop: one signal ends them all, and Python's own handlers are in their places again."""
    before = [signal.getsignal(number) for number in SIGNALS]

    async def main():
        consumers = [Consumer(topic, f"c{number}", nsqd=address) for number in range(3)]
        running = [asyncio.create_task(one.run(print)) for one in consumers]
        await until(lambda: all(one._was_run for one in consumers))
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.gather(*running)

    asyncio.run(main())
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_not_at_all(address, topic):
    """stop_on_signals=False leaves them alone."""

    async def main():
        consumer = Consumer(topic, "c", nsqd=address)
        before = signal.getsignal(signal.SIGTERM)
        running = asyncio.create_task(consumer.run(print, stop_on_signals=False))
        await until(lambda: consumer._was_run)
        assert signal.getsignal(signal.SIGTERM) is before
        consumer.request_stop()
        await running

    asyncio.run(main())


def test_another_thread_has_no_signals(address, topic):
    """By default nothing happens there; asked for, it is refused."""
    errors = []

    def work():
        with SyncConsumer(topic, "c", nsqd=address, config=Config()) as consumer:
            try:
                consumer.run(print, stop_on_signals=True)
            except OptionsError as error:
                errors.append(str(error))
            consumer.request_stop()
            consumer.run(print)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == ["stop_on_signals=True: only the main thread can handle signals"]
