"""Millions of messages and thousands of opens and closes: memory, descriptors and threads stay what they were."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

GROWTH_BYTES_MAX = 8 << 20

SHARED = """
import asyncio, gc, json, os, sys, threading
import uvloop
from nsqfast.client import Config, Consumer, Producer
from nsqfast.client import sync

address, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
config = Config(max_in_flight=2500)
seen = []

def look():
    gc.collect()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    seen.append([resident, len(os.listdir("/proc/self/fd")), threading.active_count()])
"""


MESSAGES_IN_THREADS = """
with sync.Producer(address) as producer, sync.Consumer(
    topic, "c", nsqd=address, config=config
) as consumer:
    for part in range(20):
        for _ in range(count // 20):
            producer.send(topic, b"x" * 100)
        producer.flush()
        for _ in range(count // 20):
            consumer.get().finish()
        for _ in range(1000):
            producer.publish(topic, b"x")
        for _ in range(1000):
            consumer.get().finish()
        look()
"""

OPENS = """
async def main():
    async with Producer(address) as producer:
        await producer.publish(topic, b"x")
        async with Consumer(topic, "c", nsqd=address, config=config) as consumer:
            (await anext(aiter(consumer))).requeue(0, backoff=False)

def in_threads():
    with sync.Producer(address) as producer:
        for _ in range(3):
            producer.publish(topic, b"x")
        producer.send(topic, b"x")
    with sync.Consumer(topic, "c", nsqd=address, config=config) as consumer:
        consumer.get().finish()

for part in range(20):
    for _ in range(count // 20):
        uvloop.run(main())
        in_threads()
    look()
"""


def measure(program, address, topic, count):
    """The looks of a process of its own: bytes, descriptors, threads."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SHARED + program + "print(json.dumps(seen))",
            address,
            topic,
            str(count),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    print(program.strip().partition("\n")[0], seen[0], seen[len(seen) // 4], seen[-1])
    return seen


@pytest.mark.parametrize("implementation", ["nsqfast"], indirect=True)
@pytest.mark.parametrize(("program", "count"), [(MESSAGES_IN_THREADS, 1_000_000), (OPENS, 1000)])
def test_nothing_grows(address, topic, program, count):
    """From the first quarter, when pools and buffers have their sizes, to the end."""
    seen = measure(program, address, topic, count)
    (early, fds, threads), (late, fds_late, threads_late) = seen[len(seen) // 4], seen[-1]
    assert late - early < GROWTH_BYTES_MAX
    assert (fds_late, threads_late) == (fds, threads)
