"""One connection to nsqd or nsqlookupd: a request, its answer, the next request.

This does not use aiohttp: a request costs 90 µs of CPU time there and 30 here, and one topic may be on a hundred nodes.
httptools parses the answers.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import httptools

from nsqfast.nsqadmin.cluster.body import Body, BrokenError, Budget
from nsqfast.wire.gotext import os_error, quote

HEAD_SIZE_MAX = 64 << 10  # also of what follows a body
FINAL = 200  # lower statuses only announce another answer
NO_HEADERS: Mapping[str, str] = {}


class ClosedError(BrokenError):
    """The connection ended before any part of an answer came."""


class Answer(NamedTuple):
    """An answer with any status."""

    status: int
    reason: str
    body: Body
    headers: Mapping[str, str] = NO_HEADERS


class Connection(asyncio.Protocol):
    """`on_lost` is called when it cannot take another request."""

    def __init__(self, on_lost: Callable[["Connection"], None], budget: Budget) -> None:
        self.idle_since_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._budget = budget
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._start_answer()

    def _start_answer(self) -> None:
        self._has_begun = False
        self._head_size = 0  # received since the last piece of a body
        self._status = 0  # set when the head is complete
        self._reason = b""
        self._body = Body(self._budget)
        self._error: BrokenError | None = None
        self._has_length = False  # or chunks: its end is known
        self._is_complete = False
        self._is_last = False  # the node wants to close, or sent more than one answer

    @property
    def is_open(self) -> bool:
        """Whether it accepts a request."""
        return self._transport is not None

    async def ask(self, request: bytes) -> Answer:
        """BrokenError; cancelling a waiting request closes the connection."""
        assert self._waiter is None
        if self._transport is None:
            raise ClosedError("EOF")
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        self._waiter = waiter
        self._transport.write(request)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._waiter = None

    def abort(self) -> None:
        """Close: nobody uses it any more."""
        self._body.drop()  # the parser and this refer to each other, so it would stay for a while
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self._on_lost(self)

    def _fail(self, error: BrokenError) -> None:
        self.abort()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def _finish(self) -> None:
        assert self._waiter is not None
        try:
            body = self._body.finish()
        except BrokenError as error:
            self._fail(error)
            return
        answer, is_last = Answer(self._status, self._reason.decode("latin-1"), body), self._is_last
        self._start_answer()
        if is_last:
            self.abort()
        if not self._waiter.done():
            self._waiter.set_result(answer)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.abort()  # an answer without a request
            return
        self._has_begun = True
        self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._is_complete:
                self._fail(BrokenError("the answer is not one of HTTP"))
                return
            self._is_last = True
        if self._error is not None:
            self._fail(self._error)
        elif self._is_complete:
            self._finish()
        elif self._head_size > HEAD_SIZE_MAX:
            self._fail(BrokenError(f"the head of the answer is larger than {HEAD_SIZE_MAX} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, lost = None, self._transport
        if lost is not None:
            self._on_lost(self)
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if error is None and self._status and not self._has_length:
            self._is_last = True
            self._finish()
        elif not self._has_begun:
            self._fail(ClosedError(_text_of(error) or "EOF"))
        else:
            self._fail(BrokenError(_text_of(error) or "unexpected EOF"))

    # -- the parser's side

    def on_message_begin(self) -> None:
        self._is_last = self._is_complete

    def on_status(self, reason: bytes) -> None:
        if not self._is_complete:
            self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        elif name == b"content-encoding" and (text := packed_reason(value.decode("latin-1"))):
            self._error = BrokenError(text)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._is_complete:
            return
        if status >= FINAL:
            self._status = status
        else:
            self._reason, self._has_length = b"", False

    def on_body(self, piece: bytes) -> None:
        self._head_size = 0
        if self._status and not self._is_complete and self._error is None:
            try:
                self._body.add(piece)
            except BrokenError as error:
                self._error = error  # the parser would hide it

    def on_message_complete(self) -> None:
        if self._status and not self._is_complete:
            self._is_complete = True
            # Only now: after the end of the answer the parser no longer knows.
            self._is_last = not self._parser.should_keep_alive()


def packed_reason(encoding: str) -> str:
    """Why an answer with this Content-Encoding is not read; '' if it is not packed, as was asked for."""
    encoding = encoding.strip().lower()
    return (
        ""
        if encoding in ("", "identity")
        else f"the answer is packed ({quote(encoding)}), which was not asked for"
    )


def _text_of(error: Exception | None) -> str:
    return os_error(error) if isinstance(error, OSError) else str(error or "")
