"""Write to stderr without waiting for its reader.

A line is written at once if there is room for it, so that the last one before a crash is there as well. Otherwise it
waits in a queue, from which a thread writes as long as anything waits. Lines that do not fit into the queue are
counted, and the count is written after the last line that fitted.
"""

import logging
import os
import select
import threading
from collections import deque
from typing import TextIO

QUEUE_SIZE_MAX = 1024 * 1024  # bytes of waiting lines
QUEUE_SIZE_AGAIN = (
    QUEUE_SIZE_MAX // 2
)  # this much must be free before lines are accepted again after some were lost
CLOSE_S = 1.0  # for waiting lines at the end of the process


class StderrHandler(logging.Handler):
    """Writes to the descriptor of a stream; OSError if it has none."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._fd = stream.fileno()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._queue_size = 0
        self._lost_count = 0
        self._is_writing = False  # the thread exists

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, or several with a traceback."""
        try:
            data = self._encode(record)
            with self._changed:
                if self._queue:
                    self._put(data)
                elif rest := self._write_at_once(data):
                    self._enqueue(rest)
        except Exception:
            self.handleError(record)

    def _encode(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _write_at_once(self, data: bytes) -> bytes:
        """Write as much as fits; returns the rest. A writable pipe takes PIPE_BUF bytes without blocking."""
        while data and self._poll.poll(0):
            data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
        return data

    def _put(self, data: bytes) -> None:
        size_max = QUEUE_SIZE_AGAIN if self._lost_count else QUEUE_SIZE_MAX
        if self._queue_size + len(data) > size_max:
            self._lost_count += 1
            return
        self._push_lost_count()
        self._enqueue(data)

    def _push_lost_count(self) -> None:
        if self._lost_count:
            text = "%d lines before this one were lost: nobody read what was written here"
            record = logging.LogRecord("", logging.WARNING, "", 0, text, (self._lost_count,), None)
            self._lost_count = 0
            self._enqueue(self._encode(record))

    def _enqueue(self, data: bytes) -> None:
        self._queue.append(data)
        self._queue_size += len(data)
        if not self._is_writing:
            self._is_writing = True
            threading.Thread(target=self._write_queue, name="stderr", daemon=True).start()

    def _write_queue(self) -> None:
        while data := self._next_waiting():
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                pass  # nobody will read it any more
            with self._changed:
                self._queue_size -= len(self._queue.popleft())

    def _next_waiting(self) -> bytes:
        """The next line; it stays in the queue until it is written, so nothing overtakes it. b"" = none is left."""
        with self._changed:
            if not self._queue:
                self._push_lost_count()
            if self._queue:
                return self._queue[0]
            self._is_writing = False
            self._changed.notify_all()
            return b""

    def flush(self) -> None:
        """Called at the end of the process: waiting lines get a moment to be read."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_writing, CLOSE_S)
