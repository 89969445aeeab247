"""One connection to an HTTP server: a request, its answer, the next request.

This does not use aiohttp: a request costs 110 µs of CPU time there and 15 here (200 bytes, 100 at a time, one local
server), while all of Go's tool takes 120 per message. httptools parses the answers, of which only the status and two
headers matter.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

from nsqfast.errors import NsqfastError

# Most bytes read of one answer, including its head: the same as Go's limit for a head. The body does not matter.
ANSWER_SIZE_MAX = 1024 * 1024
FINAL = 200  # lower statuses only announce another answer

Waiter = asyncio.Future["Answer"]


class RequestError(NsqfastError):
    """A request got no answer."""


class StaleError(RequestError):
    """The server had closed a connection that was kept open; no part of an answer came."""


class Answer(NamedTuple):
    """The relevant parts of an answer."""

    status: int
    location: bytes = b""
    retry_after: bytes = b""


class Connection(asyncio.Protocol):
    """`on_free` is called when it can take the next request, `on_lost` when it never will again."""

    def __init__(
        self, on_free: Callable[["Connection"], None], on_lost: Callable[["Connection"], None]
    ) -> None:
        self.deadline_s = 0.0  # of the request
        self.idle_since_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: Waiter | None = None
        self._is_used = False  # has had an answer before
        self._start_answer()

    def _start_answer(self) -> None:
        self._size = 0
        self._status = 0  # set when the head is complete
        self._location = self._retry_after = b""
        self._is_complete = False
        self._is_last = False  # nothing may follow on this connection, or something did

    # -- the request

    def ask(self, request: bytes, deadline_s: float) -> Waiter:
        """The answer, or RequestError."""
        assert self._waiter is None
        self.deadline_s = deadline_s
        waiter = self._waiter = self._loop.create_future()
        if self._transport is None:
            self._end(StaleError("the connection was closed"))
        else:
            self._transport.write(request)
        return waiter

    def time_out(self) -> None:
        """The time is over; a status that came already counts, as in Go."""
        self._end(RequestError("no answer in time"))

    def abort(self) -> None:
        """Abort: nobody waits any more."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self._on_lost(self)

    def _end(self, error: RequestError) -> None:
        """End the request by the part of the answer that came, and take no other."""
        self.abort()
        if self._status:
            self._resolve()
        else:
            self._reject(error)

    def _resolve(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(Answer(self._status, self._location, self._retry_after))

    def _reject(self, error: RequestError) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.abort()  # an answer without a request
            return
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._is_complete:
                self._end(RequestError("the answer is not one of HTTP"))
                return
            self._is_last = True
        if self._is_complete:
            self._finish()
        elif self._size > ANSWER_SIZE_MAX:
            self._end(
                RequestError(f"the head of the answer is larger than {ANSWER_SIZE_MAX} bytes")
            )

    def _finish(self) -> None:
        """The whole answer has arrived."""
        transport = self._transport
        assert transport is not None
        if self._is_last or transport.get_write_buffer_size():
            self.abort()
            self._resolve()
            return
        self._resolve()
        self._is_used = True
        self._start_answer()
        self._on_free(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, lost = None, self._transport
        if lost is not None:
            self._on_lost(self)
        if self._waiter is None:
            return
        if self._is_used and not self._size:
            self._end(StaleError("the server closed the connection"))
        else:
            reason = f": {error}" if error else ""
            self._end(RequestError(f"the connection broke before the answer was there{reason}"))

    # -- the parser's side

    def on_message_begin(self) -> None:
        self._is_last = self._is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_complete:
            return
        size = len(name)
        if size == 8 and name.lower() == b"location":
            self._location = value
        elif size == 11 and name.lower() == b"retry-after":
            self._retry_after = value

    def on_headers_complete(self) -> None:
        if not self._is_complete:
            status = self._parser.get_status_code()
            if status >= FINAL:
                self._status = status
            else:
                self._location = self._retry_after = b""

    def on_message_complete(self) -> None:
        if self._status and not self._is_complete:
            self._is_complete = True
            # Only now: after the end of the answer the parser no longer knows.
            self._is_last = not self._parser.should_keep_alive()
