"""Functions that users give: plain ones and coroutine functions, called the same way."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def call(function: Callable[..., Awaitable[T] | T], *arguments: object) -> T:
    """What it returns, awaited if it has to be. Whatever it raises is an Exception, unless this task is cancelled.

    A CancelledError that comes out of it although nobody cancelled this task is one of a task that it waited for.
    """
    try:
        result = function(*arguments)
        if inspect.isawaitable(result):
            found: T = await result
            return found
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise RuntimeError("it waited for a task that was cancelled") from error
    else:
        return result


def is_cancelled() -> bool:
    """Whether the running task itself is to end, and not just something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
