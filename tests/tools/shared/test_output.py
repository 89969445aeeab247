"""Writing to standard output without ever standing still; a pipe of the test stands in for it."""

import asyncio
import os

import pytest
import uvloop

from nsqfast.tools.shared import output as output_module
from nsqfast.tools.shared.output import Output
from nsqfast.tools.shared.program import OutputClosedError, ToolError

SECONDS_MAX = 50


class Pipe:
    """Closed at the end of a test, as far as that has not done so."""

    def __init__(self):
        self.reader, self.writer = os.pipe()

    def close_reader(self):
        os.close(self.reader)
        self.reader = -1

    def close(self):
        if self.reader >= 0:
            os.close(self.reader)
        os.close(self.writer)


@pytest.fixture
def pipe(monkeypatch):
    pipe = Pipe()
    monkeypatch.setattr(output_module, "STDOUT", pipe.writer)
    yield pipe
    pipe.close()


def run(work):
    async def limited():
        async with asyncio.timeout(SECONDS_MAX):
            return await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(limited())


def read_exactly(pipe, size):
    data = b""
    while len(data) < size:
        data += os.read(pipe.reader, size - len(data))
    return data


@pytest.mark.parametrize("is_blocking", [True, False])
def test_a_full_pipe_stops_only_who_writes(pipe, is_blocking):
    os.set_blocking(pipe.writer, is_blocking)
    data = os.urandom(1 << 20)

    async def work():
        output = Output()
        write = asyncio.create_task(output.write(data))
        # The loop goes on: this is read in another thread while the write waits for it.
        assert await asyncio.to_thread(read_exactly, pipe, len(data)) == data
        await write

    run(work)


def test_in_order_and_not_what_was_given_up(pipe):
    async def work():
        output = Output()
        large = asyncio.create_task(output.write(bytes(1 << 20)))
        given_up = asyncio.create_task(output.write(b"given up"))
        last = asyncio.create_task(output.write(b"last"))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.to_thread(read_exactly, pipe, 1 << 20)
        await large
        await last
        assert os.read(pipe.reader, 100) == b"last"

    run(work)


def test_nobody_reads(pipe):
    async def work():
        output = Output()
        told = asyncio.Event()
        output.watch_closed(told.set)
        await output.write(b"x")
        assert not told.is_set()
        pipe.close_reader()
        await told.wait()
        with pytest.raises(OutputClosedError):
            await output.write(b"y")

    run(work)


def test_disk_full(monkeypatch):
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(output_module, "STDOUT", full.fileno())

        async def work():
            output = Output()
            output.watch_closed(pytest.fail)  # that is no pipe
            with pytest.raises(ToolError, match="no space left on device"):
                await output.write(b"x")

        run(work)
