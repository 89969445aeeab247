"""SIGTERM and SIGINT stop the consumers that run in the main thread, unless the program handles these signals itself.

A second one does what it did before: messages in flight are not waited for any longer.
"""

import asyncio
import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Generator
from typing import Any

from nsqfast.errors import OptionsError

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_stops: list[Callable[[], None]] = []
_before: dict[int, Any] = {}  # the handlers that ours replace


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None], is_wanted: bool | None) -> Generator[None]:
    """Call `stop` at the first of these signals. None = where nobody else handles it, in the main thread.

    OptionsError: signals are wanted in another thread, which cannot have them.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_wanted and not is_main:
        raise OptionsError("stop_on_signals=True: only the main thread can handle signals")
    if is_wanted is False or not is_main:
        yield
        return
    for number in SIGNALS:
        if number not in _before and (is_wanted or _is_default(signal.getsignal(number))):
            _before[number] = signal.signal(number, _stop_all)
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)
        if not _stops:
            _restore()


def _is_default(handler: object) -> bool:
    """Whether it is Python's own: asyncio.run replaces the one of SIGINT by a method of its Runner."""
    if isinstance(handler, functools.partial):
        handler = getattr(handler.func, "__self__", None)
    is_runner = isinstance(handler, asyncio.Runner)
    return is_runner or handler in (signal.SIG_DFL, signal.default_int_handler)


def _stop_all(_number: int, _frame: object) -> None:
    _restore()
    for stop in _stops.copy():
        stop()


def _restore() -> None:
    """Put back what was there before, except for what somebody has replaced meanwhile."""
    while _before:
        number, handler = _before.popitem()
        if signal.getsignal(number) is _stop_all:
            signal.signal(number, handler)
