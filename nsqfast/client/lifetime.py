"""Common to every Producer and Consumer: it belongs to one event loop in one process, from start to end, and raises an
error if it is used elsewhere.
"""

import asyncio
import contextlib
import functools
import logging
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

from nsqfast.errors import ClosedError, OptionsError

# SIGTERM and SIGINT stop the consumers that run in the main thread, unless the program handles these signals itself. A
# second one does what it did before: messages in flight are not waited for any longer.

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


log = logging.getLogger("nsqfast.client")

Logger = logging.Logger | logging.LoggerAdapter[Any]

T = TypeVar("T")

REPEAT_S = 60.0  # how often to repeat a log line about a state that lasts


class Register(Generic[T]):
    """A set of objects that does not keep them alive.

    Threads add objects while others list them, which a WeakSet does not support.
    """

    def __init__(self) -> None:
        self._kept: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()

    def add(self, one: T) -> None:
        self._kept[id(one)] = one

    def discard(self, one: T) -> None:
        self._kept.pop(id(one), None)

    def clear(self) -> None:
        self._kept.clear()

    def list(self) -> list[T]:
        """All objects at one moment."""
        return [one for found in self._kept.valuerefs() if (one := found()) is not None]


# The objects that were started and not ended.
_open: "Register[Resource]" = Register()


class RepeatedLines:
    """Log lines about states that last: each is written once, and again every minute."""

    def __init__(self, log: Logger, name: str) -> None:
        self._log = log
        self._name = name
        self._said_s: dict[str, float] = {}

    def say(self, key: str, level: int, text: str) -> None:
        """Write it, if `key` has had no line for a minute."""
        now_s = time.monotonic()
        if now_s - self._said_s.get(key, -REPEAT_S) >= REPEAT_S:
            self._said_s[key] = now_s
            self._log.log(level, "%s: %s", self._name, text)

    def end(self, key: str) -> None:
        """The state has ended; its next line is written at once."""
        self._said_s.pop(key, None)


class Resource:
    """Call `_begin` at the start, `_check_use` at each use, `_finish` at the end."""

    kind: ClassVar[str]

    def __init__(self, logger: Logger | None) -> None:
        self._log: Logger = logger or log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._why_unusable = ""

    # Hidden from type checkers, which refuse such uses by themselves.
    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            self._use_sync("`async with`", "`with`")

        def __exit__(self, *_: object) -> None:
            """Only for the error of `__enter__`."""

        def __iter__(self) -> NoReturn:
            self._use_sync("`async for`", "`for`")

        def _use_sync(self, here: str, there: str) -> NoReturn:
            name = type(self).__name__
            raise TypeError(
                f"nsqfast.{name} works with {here}; {there} is for nsqfast.client.sync.{name}"
            )

    def _begin(self) -> None:
        if self._why_unusable:
            raise ClosedError(f"the {self.kind} {self._why_unusable}")
        if self._loop is not None:
            raise ClosedError(f"the {self.kind} was started before")
        self._loop = asyncio.get_running_loop()
        _open.add(self)

    def _finish(self) -> None:
        """Note that it ended properly, so there is nothing left to warn about."""
        _open.discard(self)

    def _check_use(self) -> None:
        if self._why_unusable:
            raise ClosedError(f"the {self.kind} {self._why_unusable}")
        if self._loop is None:
            name = type(self).__name__
            raise ClosedError(f"the {self.kind} was not started: `async with {name}(...)`")

    def _check_loop(self) -> None:
        """Like `_check_use`, for methods that wait: they work only in its own event loop."""
        self._check_use()
        if asyncio.get_running_loop() is not self._loop:
            raise ClosedError(
                f"the {self.kind} was started in another event loop; make one in each event loop"
            )

    def _forbid(self, why: str) -> None:
        """Make every use from here on raise ClosedError."""
        self._why_unusable = why

    def _forbid_after_loop(self, what: str) -> None:
        """Its event loop ends, and nobody ended it before."""
        if not self._why_unusable:
            self._forbid("was started in an event loop that has ended; make one in each event loop")
            _open.discard(self)
            warnings.warn(
                f"unclosed {self.kind} {what}", ResourceWarning, stacklevel=2, source=self
            )


def open_resources() -> list[Resource]:
    """All resources of this process that were started and not ended."""
    return _open.list()


def warn_of_other_consumer(one: Resource, name: str) -> None:
    """Warn if the consumer of this name of an earlier run of the same notebook cell is still open."""
    others = [each for each in open_resources() if type(each) is type(one) and each is not one]
    if hasattr(sys, "ps1") and any(getattr(other, "name", "") == name for other in others):
        one._log.warning(  # noqa: SLF001 - of this module
            "%s: another consumer of this program is still open and gets a part of the messages; stop it",
            name,
        )


def _forbid_in_child() -> None:
    for resource in open_resources():
        resource._forbid(  # noqa: SLF001 - of this module
            "was made before a fork, and its connections belong to the parent; make one in the child"
        )
    _open.clear()


os.register_at_fork(after_in_child=_forbid_in_child)
