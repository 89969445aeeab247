"""Event loops that are strict about what a test leaves behind."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def strict(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> Iterator[Callable[[Awaitable[Any]], Any]]:
    """A function that runs a coroutine: errors that nobody saw, and tasks that were left behind, fail the test."""
    problems: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context))

        async def watched(work: Awaitable[Any]) -> Any:
            result = await work
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, left
            return result

        yield lambda work: runner.run(watched(work))
        gc.collect()  # a future with an exception that nobody looked at says so now
    assert problems == []
