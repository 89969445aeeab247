"""Tells of an event loop that stands still while a consumer's handlers run on it, and of the line that blocks it.

One thread watches all loops of a process; each of them has to answer within its limit.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType

from nsqfast.client import workers
from nsqfast.client.lifetime import Logger

LOOKS_PER_LIMIT = 4
LOOK_S_MIN = 0.01
OWN_FOLDERS = tuple(f"{Path(name).parent}/" for name in (asyncio.__file__, Path(__file__).parent))
WORKERS = workers.__file__


class Watched:
    """One loop, from the moment at which it last turned."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit_s: Callable[[], float], log: Logger, name: str
    ) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._find_limit_s = limit_s
        self._log = log
        self._name = name
        self._is_said = False
        self._turn()

    def _turn(self) -> None:
        """On the loop: note that it turns."""
        self._turned_s = time.monotonic()
        self.limit_s = self._find_limit_s()  # as of this turn: it may change before the next one
        self._is_said = False
        self._timer = self._loop.call_later(self.pause_s(), self._turn)

    def pause_s(self) -> float:
        """Time between two looks."""
        return max(self.limit_s / LOOKS_PER_LIMIT, LOOK_S_MIN)

    def look(self, now_s: float) -> None:
        """In the other thread: warn, once, if the loop has stood still for too long."""
        still_s = now_s - self._turned_s
        if still_s < self.limit_s or self._is_said or not self._loop.is_running():
            return
        self._is_said = True
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - documented, for debuggers
        self._log.warning(
            "%s: the event loop has stood still for %.1f s in %s: nothing else runs, and messages time out; "
            "await, use asyncio.to_thread, or nsqfast.client.sync",
            self._name,
            still_s,
            _blocked_line(frame),
        )

    def end(self) -> None:
        """On the loop."""
        self._timer.cancel()


def _blocked_line(frame: FrameType | None) -> str:
    """The line of the handler, or else of what asyncio called: the user's, whatever it calls itself."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.insert(0, frame)
        frame = frame.f_back
    names = [one.f_code.co_filename for one in frames]
    own = [number for number, name in enumerate(names) if name.startswith(OWN_FOLDERS)]
    handlers = [number for number in own if names[number] == WORKERS]
    first = (handlers[-1:] or own[:1] or [-1])[0]
    for number in range(first + 1, len(frames)):
        if number not in own:
            code = frames[number].f_code
            return f"{code.co_qualname} ({names[number]}:{frames[number].f_lineno})"
    return "code that is not Python's"


class Watcher:
    """The thread, and what it watches; it lives as long as there is something."""

    def __init__(self) -> None:
        self._watched: list[Watched] = []
        self._changed = threading.Condition()
        self._is_running = False

    def add(self, watched: Watched) -> None:
        with self._changed:
            self._watched.append(watched)
            if not self._is_running:
                self._is_running = True
                threading.Thread(
                    target=self._look_on, name="nsqfast loop watch", daemon=True
                ).start()
            self._changed.notify()

    def discard(self, watched: Watched) -> None:
        with self._changed:
            self._watched.remove(watched)
            self._changed.notify()

    def _look_on(self) -> None:
        with self._changed:
            while self._watched:
                pause_s = min(watched.pause_s() for watched in self._watched)
                before_s = time.monotonic()
                self._changed.wait(pause_s)
                now_s = time.monotonic()
                if now_s - before_s > 2 * pause_s:
                    continue  # this thread stood still, too: the process was stopped, or has no processor
                for watched in self._watched:
                    watched.look(now_s)
            self._is_running = False


_watcher = Watcher()


@contextlib.contextmanager
def watch_loop(limit_s: Callable[[], float], log: Logger, name: str) -> Generator[None]:
    """Warn when the running loop stands still for longer than the limit."""
    watched = Watched(asyncio.get_running_loop(), limit_s, log, name)
    watcher = _watcher
    watcher.add(watched)
    try:
        yield
    finally:
        watched.end()
        watcher.discard(watched)


def _begin_anew() -> None:
    """In a child process, which has no such thread."""
    global _watcher  # noqa: PLW0603 - one for each process
    _watcher = Watcher()


os.register_at_fork(after_in_child=_begin_anew)
