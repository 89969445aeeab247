"""Callbacks given by users: plain functions and coroutine functions, called the same way."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nsqfast.errors import OptionsError

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


def is_coroutine_function(function: object) -> bool:
    """Whether it, or the method that calls it, is an `async def`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__
    )


def is_cancelled() -> bool:
    """Whether the running task itself is being cancelled, and not just something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_handler(handler: object, concurrency: object) -> None:
    """Raise OptionsError if the arguments of `run` are invalid."""
    check_call(handler, "a message")
    check_concurrency(concurrency)


def check_concurrency(concurrency: object) -> None:
    """OptionsError: it is no number of handlers."""
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        raise OptionsError(f"concurrency is {concurrency!r}; it is a whole number of at least 1")


def check_call(handler: object, *arguments: str) -> None:
    """OptionsError: the handler cannot be called with these."""
    given = " and ".join(arguments)
    if not callable(handler):
        raise OptionsError(f"a handler is a function that takes {given}, not {handler!r}")
    if fault := find_call_fault(handler, len(arguments)):
        raise OptionsError(f"a handler is called with {given}, and {handler!r}: {fault}")


def find_call_fault(handler: Callable[..., object], count: int) -> str:
    """Why it cannot be called with so many arguments; empty if it can."""
    try:
        # Not of what a decorator wraps: it may give more arguments.
        inspect.signature(handler, follow_wrapped=False).bind(*[None] * count)
    except TypeError as error:
        return str(error)
    except ValueError:  # some of C do not tell
        pass
    return ""
