"""What sync.Producer and sync.Consumer have in common.

They start a loop thread at their first use, cannot be pickled, end with the program, and warn about those that nobody
ended.
"""

import atexit
import contextlib
import os
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from nsqfast.client.lifetime import Logger, Register, log
from nsqfast.client.sync.loop_thread import LoopThread, check_threads, run_on_loop
from nsqfast.errors import ClosedError, PublishError

T = TypeVar("T")

# What __del__ began; the end of the program waits for it.
_closing: set[threading.Thread] = set()
CLOSING_TIMEOUT_S = 10.0


class Owner(ABC):
    """It connects at the first use."""

    kind: ClassVar[str]

    def __init__(self, logger: Logger | None) -> None:
        self._is_closed = True  # until it is whole, there is nothing to end
        check_threads()
        self._log: Logger = logger or log
        self._loop_thread: LoopThread | None = None
        self._is_connected = False
        # Of the first use, and the end. A signal handler may come back to it in the thread that holds it.
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

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(PublishError):  # it was logged
                self.close()

    def __del__(self) -> None:
        loop_thread = getattr(self, "_loop_thread", None)
        if loop_thread is None or self._is_closed or not loop_thread.is_ours or sys.is_finalizing():
            return
        warnings.warn(
            f"unclosed {self.kind} {self._name}", ResourceWarning, stacklevel=2, source=self
        )
        # Not here: a collection may happen in the middle of anything, with any lock held, a log handler's, say.
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
        """The loop thread; the first use makes it and connects, and other threads wait for that."""
        loop_thread = self._loop_thread
        if loop_thread is not None and loop_thread.is_ours and not self._is_closed:  # noqa: SIM102 - one question, then the other
            # The loop thread's own threads cannot wait for the connection: it waits for them.
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
            self._check_open()  # a signal handler may have closed it, to whom there was no loop thread yet
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
        """Its answer, found on the loop."""
        return self._ready().call(run_on_loop(question))

    def close(self) -> None:
        """End it; once."""
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
        """As log lines say it."""

    @abstractmethod
    def _make(self) -> None:
        """Make what runs on the loop thread; not connected."""

    @abstractmethod
    def _before_start(self) -> None:
        """The loop thread is there, and can be told what was asked for before."""

    @abstractmethod
    def _after_fork(self, loop_thread: LoopThread) -> None:
        """The loop thread is the parent process's."""

    @abstractmethod
    def _start(self) -> Coroutine[Any, Any, None]:
        """Connect."""

    @abstractmethod
    def _end(self) -> Coroutine[Any, Any, None]:
        """Hang up."""


_open: Register[Owner] = Register()


@atexit.register
def _close_all() -> None:
    """What was sent leaves, and what is in flight is handed back, when a program just ends."""
    is_all_delivered = True
    for owner in _open.list():
        try:
            owner.close()
        except PublishError:  # it was logged
            is_all_delivered = False
    for thread in list(_closing):
        thread.join(CLOSING_TIMEOUT_S)
    if not is_all_delivered:
        _fail_at_exit()


class _UndeliveredAtExitError(Exception):
    """Was said in a log line before."""


class _FailingOutput:
    """Standard output whose last flush fails, for that is what changes a program's exit status this late.

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
    """The exit status is to say that messages were lost, and all other exit functions still run."""
    hook = sys.unraisablehook

    def quiet(unraisable: Any) -> None:
        if unraisable.exc_type is not _UndeliveredAtExitError:
            hook(unraisable)

    sys.unraisablehook = quiet
    sys.stdout = _FailingOutput(sys.stdout)


def _unlock_all() -> None:
    """In a child process: another thread may have held a lock, and that thread is not here."""
    _closing.clear()
    for owner in _open.list():
        owner._lock = threading.RLock()  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_unlock_all)
