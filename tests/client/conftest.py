"""Event loops that are strict about what a test leaves behind."""

import asyncio
import gc
import inspect
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


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that is a coroutine runs in a loop of its own: uvloop's, or one of `loop_factory`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    with strict(arguments.get("loop_factory", uvloop.new_event_loop)) as run:
        run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture
def run():
    with strict(uvloop.new_event_loop) as function:
        yield function


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request):
    """For a test on asyncio's own loop, and on uvloop."""
    return request.param
