"""An event loop that stands still, and a transport that keeps what is written: what the client's links need of both."""

import asyncio
from collections import deque


class Loop:
    """What is called soon waits for `turn`; deadlines never come."""

    def __init__(self):
        self.soon = deque()

    def create_future(self):
        return asyncio.Future(loop=self)

    def call_soon(self, callback, *arguments, **_):
        self.soon.append((callback, arguments))

    def call_later(self, *_):
        return asyncio.TimerHandle(0, None, (), self)

    def _timer_handle_cancelled(self, handle):
        pass

    def get_debug(self):
        return False

    def call_exception_handler(self, context):
        raise AssertionError(context)

    def turn(self):
        for _ in range(len(self.soon)):
            callback, arguments = self.soon.popleft()
            callback(*arguments)


class Transport:
    """Takes everything at once."""

    def __init__(self):
        self.written = b""
        self.is_closing = False

    def set_write_buffer_limits(self, high):
        pass

    def write(self, data):
        assert not self.is_closing
        self.written += data

    def close(self):
        self.is_closing = True

    abort = close


def deliver(link, data):
    """As reads of the socket would, until the connection ends."""
    while data and link.is_open:
        with memoryview(link.get_buffer(-1)) as room:
            size = min(len(room), len(data))
            room[:size] = data[:size]
        link.buffer_updated(size)
        data = data[size:]
