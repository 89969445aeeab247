"""What goes to stderr does not wait for whoever reads it.

A line is written at once where there is room for it, so that the last one before a crash is there as well. Where there
is none, it waits in a queue, from which a thread writes for as long as anything waits. What the queue has no room for
is counted, and the count is written behind the last line that had room.
"""

import logging
import os
import select
import threading
from collections import deque
from typing import TextIO

QUEUE_SIZE_MAX = 1024 * 1024  # bytes of lines that wait
QUEUE_SIZE_AGAIN = (
    QUEUE_SIZE_MAX // 2
)  # so much is free before a line is taken again that comes behind lost ones
CLOSE_S = 1.0  # for what still waits when the process ends


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
        self._is_writing = False  # the thread is there

    def emit(self, record: logging.LogRecord) -> None:
        """One line, or several with a traceback."""
        try:
            data = self._encode(record)
            with self._changed:
                if self._queue:
                    self._put(data)
                elif rest := self._write_at_once(data):
                    self._push(rest)
        except Exception:
            self.handleError(record)

    def _encode(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _write_at_once(self, data: bytes) -> bytes:
        """What there was no room for. A pipe that can be written to takes PIPE_BUF bytes without waiting."""
        while data and self._poll.poll(0):
            data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
        return data

    def _put(self, data: bytes) -> None:
        size_max = QUEUE_SIZE_AGAIN if self._lost_count else QUEUE_SIZE_MAX
        if self._queue_size + len(data) > size_max:
            self._lost_count += 1
            return
        self._push_lost_count()
        self._push(data)

    def _push_lost_count(self) -> None:
        if self._lost_count:
            text = "%d lines before this one were lost: nobody read what was written here"
            record = logging.LogRecord("", logging.WARNING, "", 0, text, (self._lost_count,), None)
            self._lost_count = 0
            self._push(self._encode(record))

    def _push(self, data: bytes) -> None:
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
        """It stays in the queue until it is written, so that nothing overtakes it; b"" = that was all."""
        with self._changed:
            if not self._queue:
                self._push_lost_count()
            if self._queue:
                return self._queue[0]
            self._is_writing = False
            self._changed.notify_all()
            return b""

    def flush(self) -> None:
        """Called when the process ends: what still waits has a moment to be read."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_writing, CLOSE_S)
