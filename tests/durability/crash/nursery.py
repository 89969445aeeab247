"""The process that opens rebuilt folders: it has everything imported and forks a child for each.

    stdin   a pickled Request each          stdout   a pickled Found each

A child is a whole broker, started as the program starts it, whose queues are read by sessions without sockets. It
never stops in good order: what it leaves behind is what a kill -9 leaves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, BinaryIO

from durability.crash import dying
from durability.crash.found import Found, Request
from durability.crash.modes import ALWAYS
from nsqfast.nsqd.http_api import HttpApi
from nsqfast.nsqd.options import parse
from nsqfast.nsqd.server import Server
from support.core import Peer

if TYPE_CHECKING:
    from nsqfast._ext.broker.registry import Registry

HOUR_NS = 3600 * 1_000_000_000
SECONDS_MAX = 20
# Once nothing new came for that many turns of a loop that has nothing to do, there is nothing.
STILL_TURNS = 3
# As long as what is due has time to come before the clock is put forward.
DUE_TURNS = 10
# The clock is put forward by an hour, for what is deferred: no heartbeat is missed meanwhile.
RARE_HEARTBEATS = b'{"heartbeat_interval":360000000}'
FLAGS = (
    "--tcp-address=127.0.0.1:0",
    "--http-address=127.0.0.1:0",
    "--broadcast-address=127.0.0.1",
    "--max-rdy-count=10000000",
    "--msg-timeout=1000h",
    "--max-msg-timeout=1000h",
    "--max-heartbeat-interval=1000h",
)


class Lines(logging.Handler):
    """Warnings and errors of the broker."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage()[:300])


class Readers:
    """One consumer per channel that takes all there is and finishes nothing."""

    def __init__(self, registry: Registry, found: Found) -> None:
        self.registry = registry
        self.found = found
        self.peers: dict[str, Peer] = {}
        self.topics: set[str] = set()
        self.join_new()

    def join_new(self) -> None:
        """A topic of dead letters may be made while others are read."""
        registry, found = self.registry, self.found
        for topic in registry.topics.sorted():
            if topic.name in self.topics:
                continue
            self.topics.add(topic.name)
            found.names.add(topic.name)
            found.names |= {f"{topic.name}:{channel.name}" for channel in topic.channels()}
            if not topic.channels():
                topic.channel("crash")
            topic.unpause()
            for channel in topic.channels():
                channel.unpause()
                peer = self.peers[f"{topic.name}:{channel.name}"] = Peer(registry)
                size = len(RARE_HEARTBEATS).to_bytes(4, "big")
                peer.send(b"IDENTIFY\n" + size + RARE_HEARTBEATS)
                peer.subscribe(topic.name.encode(), channel.name.encode(), 10_000_000)

    def turn(self) -> bool:
        """Whether something came."""
        has_come = False
        self.join_new()
        for target, peer in self.peers.items():
            messages = [data for kind, data in peer.receive() if kind == 2]
            bodies = [data[26:] for data in messages]
            self.found.bodies.setdefault(target, []).extend(bodies)
            attempts = self.found.attempts.setdefault(target, {})
            for data in messages:
                attempts[data[26:]] = int.from_bytes(data[8:10], "big")
            has_come = has_come or bool(bodies)
        return has_come

    def waiting(self) -> int:
        """What is in the queues still."""
        topics = self.registry.topics.sorted()
        channels = [channel for topic in topics for channel in topic.channels()]
        deferred = sum(channel.deferred_count for channel in channels)
        return deferred + sum(queue.depth for queue in [*topics, *channels])


async def start(request: Request) -> Server:
    options = parse([f"--data-path={request.folder}", *request.flags, *FLAGS])
    server = Server(options, HttpApi)
    await server.start()
    return server


async def read_all(request: Request, found: Found) -> None:
    server = await start(request)
    found.is_started = True
    if request.start_only:
        return
    readers = Readers(server.registry, found)
    end = time.monotonic() + SECONDS_MAX / 2
    if request.is_timed:
        still = 0
        while time.monotonic() < end and still < DUE_TURNS:
            await asyncio.sleep(0.001)
            still = 0 if readers.turn() else still + 1
        found.due_ns = time.time_ns()
        found.due = {target: set(bodies) for target, bodies in found.bodies.items()}
    still = 0
    while time.monotonic() < end and still < STILL_TURNS:
        # An fsync that is waited for ends in a thread.
        await asyncio.sleep(0.001 if still or readers.waiting() else 0)
        server.registry.timers.run(time.monotonic_ns() + HOUR_NS)
        still = 0 if readers.turn() or readers.waiting() else still + 1
    found.left = readers.waiting()
    found.health = server.registry.durability.health()


def open_folder(request: Request) -> Found:
    """In the child."""
    found, lines = Found(), Lines()
    logging.getLogger("nsqd").addHandler(lines)
    signal.alarm(SECONDS_MAX)
    if request.die_at:
        dying.die_at(request.folder, request.die_at)
    try:
        asyncio.run(read_all(request, found))
    except Exception as error:
        found.error = f"{type(error).__name__}: {error}"
    found.lines = lines.lines
    return found


def answer(request: Request) -> Found:
    """What a child found, or how it died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(open_folder(request), pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        return Found(error=f"the broker died with status {status}")
    found = pickle.loads(data)
    assert isinstance(found, Found)
    return found


async def warm_up() -> None:
    """Start and stop once, so that no child has to import anything."""
    with tempfile.TemporaryDirectory() as folder:
        server = await start(Request(folder, ALWAYS.flags))
        server.registry.topics.ensure("warm").put(b"up")
        readers = Readers(server.registry, Found())
        while readers.waiting():
            await asyncio.sleep(0)
            readers.turn()
        await server.stop()


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    asyncio.run(warm_up())
    # A thread would not live on in the children.
    assert threading.active_count() == 1
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(answer(request), answers)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
