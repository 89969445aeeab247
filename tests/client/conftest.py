"""Brokers of both implementations, and event loops that are strict about what a test leaves behind."""

import asyncio
import gc
import itertools
from contextlib import contextmanager

import pytest
import uvloop

from support.ports import hold_port
from support.server import start_nsqd

TOPIC_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module", params=["nsqfast", pytest.param("go", marks=pytest.mark.go)])
def implementation(request):
    return request.param


@pytest.fixture(scope="module")
def broker(request, implementation, tmp_path_factory):
    flags = getattr(request.module, "NSQD_FLAGS", ())
    folder = tmp_path_factory.mktemp(implementation)
    with start_nsqd(implementation, folder, *flags) as server:
        yield server


@pytest.fixture
def address(broker):
    return "{}:{}".format(*broker.tcp)


@pytest.fixture
def topic():
    """A topic that no other test has."""
    return f"topic-{next(TOPIC_NUMBERS)}"


@pytest.fixture
def dead():
    """An address where nobody listens."""
    return f"127.0.0.1:{hold_port()}"


@contextmanager
def strict(loop_factory):
    """A function that runs a coroutine: errors that nobody saw, and tasks that were left behind, fail the test."""
    problems = []
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context))

        async def watched(work):
            result = await work
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, left
            return result

        yield lambda work: runner.run(watched(work))
        gc.collect()  # a future with an exception that nobody looked at says so now
    assert problems == []


@pytest.fixture
def run():
    with strict(uvloop.new_event_loop) as function:
        yield function


@pytest.fixture(params=["asyncio", "uvloop"])
def run_anywhere(request):
    """On asyncio's own loop, and on uvloop."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop
    with strict(factory) as function:
        yield function
