"""Common to sync.Producer and sync.Consumer.

They start a loop thread at their first use, cannot be pickled, end with the program, and warn if nobody ended them.
"""

import atexit
import contextlib
import os
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar

from nsqfast.client.lifetime import Logger, Register, log
from nsqfast.client.sync.loop_thread import LoopThread, check_threads, run_on_loop
from nsqfast.errors import ClosedError, PublishError

T = TypeVar("T")

# Closes that __del__ began; the end of the program waits for them.
_closing: set[threading.Thread] = set()
CLOSING_TIMEOUT_S = 10.0


class Owner(ABC):
    """Connects at the first use."""

    kind: ClassVar[str]

    def __init__(self, logger: Logger | None) -> None:
        self._is_closed = True  # until construction is complete there is nothing to end
        check_threads()
        self._log: Logger = logger or log
        self._loop_thread: LoopThread | None = None
        self._is_connected = False
        # Protects the first use and the end. A signal handler may enter it again in the thread that holds it.
        self._lock = threading.RLock()
        self._make()
        self._is_closed = False
        _open.add(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} has connections and cannot be pickled; make it where it is used, "
            "in Spark inside the function that runs on the executors"
        )

    def __enter__(self) -> Self:
        return self

    # Hidden from type checkers, which refuse such uses by themselves.
    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            name = type(self).__name__
            raise TypeError(
                f"nsqfast.client.sync.{name} works with `with`; `async with` is for nsqfast.{name}"
            )

        async def __aexit__(self, *_: object) -> None:
            """Only for the error of `__aenter__`."""

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(PublishError):  # already logged
                self.close()

    def __del__(self) -> None:
        loop_thread = getattr(self, "_loop_thread", None)
        if loop_thread is None or self._is_closed or not loop_thread.is_ours or sys.is_finalizing():
            return
        warnings.warn(
            f"unclosed {self.kind} {self._name}", ResourceWarning, stacklevel=2, source=self
        )
        # Not here: garbage collection can run in the middle of anything, with any lock held, for example a log
        # handler's.
        closing = threading.Thread(target=self._close_quietly, daemon=True)
        _closing.add(closing)
        closing.start()

    def _close_quietly(self) -> None:
        try:
            self._log.warning(
                "%s: the %s was left without close(); it is closed now", self._name, self.kind
            )
            with contextlib.suppress(PublishError):
                self.close()
        finally:
            _closing.discard(threading.current_thread())

    def _ready(self) -> LoopThread:
        """Return the loop thread; the first use creates it and connects, and other threads wait for that."""
        loop_thread = self._loop_thread
        if loop_thread is not None and loop_thread.is_ours and not self._is_closed:  # noqa: SIM102 - one question, then the other
            # The loop thread's own threads cannot wait for the connection, because it waits for them.
            if self._is_connected or loop_thread.is_inside:
                return loop_thread
        with self._lock:
            self._check_open()
            if self._loop_thread is not None and not self._loop_thread.is_ours:
                self._after_fork(self._loop_thread)
            if self._loop_thread is None:
                self._connect()
            assert self._loop_thread is not None
            return self._loop_thread

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"the {self.kind} is closed")

    def _connect(self) -> None:
        self._loop_thread = loop_thread = LoopThread(f"nsqfast {self.kind}")
        try:
            self._check_open()  # a signal handler may have closed it before there was a loop thread
            self._before_start()
            loop_thread.call(self._start())
            self._is_connected = True
        except BaseException:
            loop_thread.stop()
            if not self._is_closed:
                self._loop_thread = None
                self._make()
            raise

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask on the loop, and return the answer."""
        return self._ready().call(run_on_loop(question))

    def close(self) -> None:
        """End it; only the first call has an effect."""
        with self._lock:
            loop_thread = None if self._is_closed else self._loop_thread
            self._is_closed = True
        if loop_thread is None or not loop_thread.is_ours:
            return
        try:
            loop_thread.call(self._end())
        finally:
            loop_thread.stop()

    @property
    @abstractmethod
    def _name(self) -> str:
        """The name that log lines show."""

    @abstractmethod
    def _make(self) -> None:
        """Create the object that runs on the loop thread, without connecting it."""

    @abstractmethod
    def _before_start(self) -> None:
        """The loop thread exists now: pass on the requests made before."""

    @abstractmethod
    def _after_fork(self, loop_thread: LoopThread) -> None:
        """Handle a fork: the loop thread is the parent's."""

    @abstractmethod
    def _start(self) -> Coroutine[Any, Any, None]:
        """Connect."""

    @abstractmethod
    def _end(self) -> Coroutine[Any, Any, None]:
        """Disconnect."""


_open: Register[Owner] = Register()


@atexit.register
def _close_all() -> None:
    """At the end of the program, send what is left to send and hand back messages in flight."""
    is_all_delivered = True
    for owner in _open.list():
        try:
            owner.close()
        except PublishError:  # already logged
            is_all_delivered = False
    for thread in list(_closing):
        thread.join(CLOSING_TIMEOUT_S)
    if not is_all_delivered:
        _fail_at_exit()


class _UndeliveredAtExitError(Exception):
    """Already logged."""


class _FailingOutput:
    """Standard output whose last flush fails: only that changes the exit status of a program this late.

    https://docs.python.org/3/library/sys.html#sys.exit: an error in flushing makes it 120.
    """

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()
        if sys.is_finalizing():
            raise _UndeliveredAtExitError


def _fail_at_exit() -> None:
    """Make the exit status say that messages were lost, and still let all other exit functions run."""
    hook = sys.unraisablehook

    def quiet(unraisable: Any) -> None:
        if unraisable.exc_type is not _UndeliveredAtExitError:
            hook(unraisable)

    sys.unraisablehook = quiet
    sys.stdout = _FailingOutput(sys.stdout)


def _unlock_all() -> None:
    """In a child process: replace locks that another thread, which is not here, may have held."""
    _closing.clear()
    for owner in _open.list():
        owner._lock = threading.RLock()  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_unlock_all)
