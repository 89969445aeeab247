"""Callbacks given by users: plain functions and coroutine functions, called the same way."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def call(function: Callable[..., Awaitable[T] | T], *arguments: object) -> T:
    """Call `function` and await its result if necessary. It raises only Exceptions, unless this task is cancelled.

    If it raises a CancelledError although nobody cancelled this task, a task that it waited for was cancelled.
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
    """Whether the running task itself is being cancelled, and not just something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
