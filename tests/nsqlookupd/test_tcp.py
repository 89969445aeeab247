"""Connections of nsqlookupd and their deadlines, against a real listener."""

import asyncio
import contextlib
import os
import socket
import struct
import time

import pytest
import uvloop
from nsqfast._ext.dev.probes import fix_parts

from nsqfast.nsqlookupd.registry import Registry
from nsqfast.nsqlookupd.session import COMMAND_UNITS, Desk
from nsqfast.nsqlookupd.tcp import PeerConnection, TcpLimits
from support.lookup import identify_as
from support.talks import beside

OK = b"\0\0\0\2OK"
HOUR_S = 3600.0


def serve(talk, **limits):
    """Runs `talk(desk, connections, connect)`; limits that are not named are an hour, which no test waits for."""
    patience = dict.fromkeys(("magic_timeout_s", "command_timeout_s", "linger_s"), HOUR_S)

    async def run():
        loop = asyncio.get_running_loop()
        errors = []
        loop.set_exception_handler(lambda _loop, context: errors.append(context))
        desk = Desk(Registry(10**12, 10**12), b"{}")
        connections = set()
        server = await loop.create_server(
            lambda: PeerConnection(desk, connections, TcpLimits(**patience | limits)),
            "127.0.0.1",
            0,
        )
        writers = []

        async def connect():
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            return reader, writer

        try:
            async with asyncio.timeout(50):
                await talk(desk, connections, connect)
        finally:
            for writer in writers:
                writer.transport.abort()
            for connection in list(connections):
                connection.abort()
            server.close()
            await asyncio.sleep(0)
        assert errors == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@pytest.fixture(autouse=True)
def parts():
    yield
    fix_parts(0)


async def read_to_end(reader):
    with contextlib.suppress(ConnectionResetError):
        return await reader.read()
    return b""


@pytest.mark.parametrize("sent", [b"", b"  V"])
@beside(serve, magic_timeout_s=0.05)
async def test_no_magic(desk, connections, connect, *, sent):
    reader, writer = await connect()
    writer.write(sent)
    assert await read_to_end(reader) == b""
    assert not connections


@beside(serve, magic_timeout_s=0.1)
async def test_what_came_while_the_loop_stood_still_is_read_first(desk, connections, connect):
    """Timers are what it looks at next."""
    loop = asyncio.get_running_loop()
    _, writer = await connect()
    ours, theirs = socket.socketpair()
    stood_still = asyncio.Event()

    def stand_still():
        loop.remove_reader(ours)
        os.write(writer.transport.get_extra_info("socket").fileno(), b"V1PING\n")
        time.sleep(0.2)
        stood_still.set()

    with ours, theirs:
        writer.write(b"  ")
        loop.add_reader(ours, stand_still)
        theirs.send(b"x")
        await stood_still.wait()
        while not desk.commands["PING"]:
            await asyncio.sleep(0)
            assert connections


UNFINISHED = [b"REGIST", b"IDENTIFY\n", b"IDENTIFY\n\0\0", b"IDENTIFY\n\0\0\0\5{"]


@pytest.mark.parametrize("sent", UNFINISHED)
@pytest.mark.parametrize("dribbles", [False, True])
@beside(serve, command_timeout_s=0.05)
async def test_a_command_that_is_not_finished(desk, connections, connect, *, sent, dribbles):
    """Further bytes do not put the deadline off."""
    reader, writer = await connect()
    writer.write(b"  V1PING\n")
    assert await reader.readexactly(len(OK)) == OK
    writer.write(sent if not dribbles else sent[:-1])
    if dribbles:
        writer.write(sent[-1:])
    assert await read_to_end(reader) == b""
    assert not connections


@beside(serve, command_timeout_s=0.1)
async def test_a_slow_dribble_ends(desk, connections, connect):
    reader, writer = await connect()
    writer.write(b"  V1")
    ended = asyncio.ensure_future(read_to_end(reader))
    while not ended.done():
        writer.write(b"x")
        await asyncio.wait([ended], timeout=0.005)
    assert ended.result() == b""


@beside(serve, magic_timeout_s=0.05, command_timeout_s=0.05)
async def test_silence_between_commands_is_allowed(desk, connections, connect):
    quiet, quiet_writer = await connect()
    quiet_writer.write(b"  V1PING\nPI")
    assert await quiet.readexactly(len(OK)) == OK
    quiet_writer.write(b"NG\n")
    assert await quiet.readexactly(len(OK)) == OK
    # Others run into both deadlines meanwhile.
    for sent in (b"", b"  V1PIN"):
        reader, writer = await connect()
        writer.write(sent)
        assert await read_to_end(reader) == b""
    quiet_writer.write(b"PING\n")
    assert await quiet.readexactly(len(OK)) == OK
    assert len(connections) == 1


@beside(serve, command_timeout_s=0.05)
async def test_the_registrations_of_who_is_given_up_go(desk, connections, connect):
    reader, writer = await connect()
    writer.write(b"  V1" + identify_as() + b"REGISTER t c\nREGISTER u")
    await reader.readexactly(6 + len(OK))
    assert desk.registry.registration_count == 2
    assert await read_to_end(reader) == b""
    assert desk.registry.registration_count == 0


@beside(serve)
async def test_an_error_arrives_whatever_follows(desk, connections, connect):
    reader, writer = await connect()
    writer.write(b"  V1nope\n" + b"PING\n" * 100_000)
    error = b"E_INVALID invalid command nope"
    assert await reader.read() == struct.pack(">i", len(error)) + error
    # Ours is shut; what still comes is read until the other side closes too.
    for _ in range(10):
        writer.write(b"PING\n" * 10_000)
        await writer.drain()


@beside(serve, linger_s=0.05)
async def test_who_goes_on_after_an_error_is_ended(desk, connections, connect):
    reader, writer = await connect()
    writer.write(b"  V1\n")
    await reader.read()
    assert len(connections) == 1
    with contextlib.suppress(ConnectionError):
        while connections:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.001)
    assert not connections


@pytest.mark.slow
@beside(serve, command_timeout_s=0.1)
async def test_who_reads_no_answers(desk, connections, connect):
    """Reading from it stops when its answers pile up, and after a while it is ended."""
    reader, writer = await connect()
    writer.transport.pause_reading()
    pings, sent = b"PING\n" * 10_000, 0
    writer.write(b"  V1")
    while not connections:
        await asyncio.sleep(0)
    (connection,) = connections
    # On a busy machine it may be over before that is seen.
    while sent < 20_000_000 and connections and not connection._is_write_paused:
        writer.write(pings)
        sent += 10_000
        await asyncio.sleep(0)
    while connections:
        await asyncio.sleep(0.001)
    assert desk.commands["PING"] < sent
    del reader


@pytest.mark.soak
@pytest.mark.slow
@beside(serve)
async def test_who_reads_its_answers_late_gets_all(desk, connections, connect):
    reader, writer = await connect()
    writer.transport.pause_reading()
    count = 0
    writer.write(b"  V1")

    def is_paused():
        return any(connection._is_write_paused for connection in connections)

    while not is_paused():
        writer.write(b"PING\n" * 10_000)
        count += 10_000
        # A slow server must not be given more and more, all of which has to be answered later.
        while not is_paused() and desk.commands.total() < count:
            await asyncio.sleep(0)
    writer.transport.resume_reading()
    assert await reader.readexactly(len(OK) * count) == OK * count


@beside(serve)
async def test_memory_of_a_connection_is_bounded(desk, connections, connect):
    reader, writer = await connect()
    writer.write(b"  V1" + b"x" * 10_000_000)
    assert b"E_INVALID command longer" in await reader.read()
    (connection,) = connections
    assert len(connection._session._input) == 0


class Counter:
    """How many commands were run between two turns of the loop, at most."""

    def __init__(self, desk):
        self.most = 0
        self._desk = desk
        self._before = 0
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self):
        while True:
            await asyncio.sleep(0)
            count = self._desk.commands.total()
            self.most, self._before = max(self.most, count - self._before), count

    def end(self):
        self._task.cancel()


@pytest.mark.parametrize("greedy_count", [1, 5])
@beside(serve)
async def test_who_registers_much_has_a_part_of_each_turn(
    desk, connections, connect, *, greedy_count
):
    """Counted in commands; all that waits in a socket used to be worked off in one go."""
    per_part, count = 10, 3000

    async def register(desk, connect):
        reader, writer = await connect()
        writer.write(b"  V1" + identify_as(hostname="n"))
        await reader.readexactly(4 + 2)
        writer.write(b"".join(b"REGISTER t%d\n" % number for number in range(count)) + b"PING\n")
        assert await reader.readexactly(len(OK) * (count + 1)) == OK * (count + 1)

    fix_parts(per_part * COMMAND_UNITS)
    counter = Counter(desk)
    await asyncio.gather(*(register(desk, connect) for _ in range(greedy_count)))
    counter.end()
    # Of those that go on one in a turn, and the first words of each.
    assert counter.most <= per_part * (2 + greedy_count)
    assert desk.commands["REGISTER"] == count * greedy_count


@beside(serve)
async def test_who_is_held_and_goes(desk, connections, connect):
    fix_parts(COMMAND_UNITS)
    reader, writer = await connect()
    writer.write(b"  V1" + identify_as(hostname="n") + b"REGISTER t\n" * 1000)
    await reader.readexactly(4 + 2 + len(OK))
    writer.transport.abort()
    while connections:
        await asyncio.sleep(0)
    assert desk.commands["REGISTER"] < 1000
    assert desk.registry.client_count == 0


@beside(serve)
async def test_an_error_behind_what_is_held_is_the_last_answer(desk, connections, connect):
    fix_parts(COMMAND_UNITS)
    reader, writer = await connect()
    writer.write(b"  V1" + b"PING\n" * 500 + b"NONSENSE\n" + b"PING\n" * 500)
    writer.write_eof()
    answers = await read_to_end(reader)
    assert answers.startswith(OK * 500)
    assert answers[500 * len(OK) + 4 :] == b"E_INVALID invalid command NONSENSE"
    while connections:
        await asyncio.sleep(0)
