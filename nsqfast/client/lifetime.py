"""Common to every Producer and Consumer: it belongs to one event loop in one process, from start to end, and raises an
error if it is used elsewhere.
"""

import asyncio
import logging
import os
import warnings
import weakref
from typing import Any, ClassVar, Generic, TypeVar

from nsqfast.errors import ClosedError

log = logging.getLogger("nsqfast.client")

Logger = logging.Logger | logging.LoggerAdapter[Any]

T = TypeVar("T")


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


class Resource:
    """Call `_begin` at the start, `_check_use` at each use, `_finish` at the end."""

    kind: ClassVar[str]

    def __init__(self, logger: Logger | None) -> None:
        self._log: Logger = logger or log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._why_unusable = ""

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

    def _left_behind(self, what: str) -> None:
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


def _forbid_in_child() -> None:
    for resource in open_resources():
        resource._forbid(  # noqa: SLF001 - of this module
            "was made before a fork, and its connections belong to the parent; make one in the child"
        )
    _open.clear()


os.register_at_fork(after_in_child=_forbid_in_child)
