"""Event loops that are strict about what a test leaves behind."""

import asyncio
import gc
from contextlib import contextmanager

import pytest
import uvloop


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
