"""The receiving half of an HTTP/1 connection: bytes in, bounded requests out.

It knows no transport. Subclasses handle complete requests and answer input that is not HTTP.
"""

import logging
from abc import abstractmethod
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol, cast

import httptools

from nsqfast._ext.protocol.body import Body
from nsqfast.net.http_message import ACTUAL, DECLARED, Request, Response
from nsqfast.net.slices import Turns

if TYPE_CHECKING:
    from nsqfast._ext.core.log_quota import LogQuota

log = logging.getLogger(__name__)

LARGE_SIZE = (
    16 * 1024
)  # of a body that is not whole yet: from there on it shares a turn with others
HEAD_SIZE_MAX = 64 * 1024  # request line, headers and trailers of one request
IGNORED_BODY_SIZE_MAX = 1024 * 1024  # bytes read and dropped for a handler that wants no body
NO_MEMORY = "503 Service Unavailable: no memory left for a body of this size"
NO_HOST = "400 Bad Request: missing required Host header"


class Handler(Protocol):
    """The object that answers requests."""

    def __call__(self, request: Request) -> Response | Awaitable[Response]:
        """The answer, or a future of it; later answers of the connection wait for it."""

    def limit(self, method: str, path: str) -> int:
        """The largest body that this route takes, 0 if it takes none; asked before the body is read.

        With a larger body the handler gets an empty one and `oversize` set, and the connection ends.
        """


class _StopParsingError(Exception):
    """Leaves the parser from inside a callback; the answer was given before."""


class HttpReceiver:
    """Collects one request after the other and enforces every size limit."""

    def __init__(self, handler: Handler, turns: Turns) -> None:
        self._handler = handler
        self._turns = turns
        self._parser = httptools.HttpRequestParser(self)
        self._remote = ""
        self._lines: LogQuota | None = None
        self._is_input_over = False  # nothing more is parsed
        self._is_lingering = False  # the peer may still be sending when the last answer leaves
        # the request being received
        self._receiving = False
        self._begun: float = 0.0  # 0 = the clock was not read yet
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_size = 0
        self._request: Request | None = None  # set when its headers are complete
        self._body: bytes | Body = b""
        self._body_size = self._announced_size = 0
        self._body_size_max = 0
        self._steps = (
            0  # callbacks so far: distinguishes a parser that swallows bytes from one that works
        )
        self._swallowed = 0
        self._continue_owed = False

    @abstractmethod
    def _take(self, request: Request) -> None:
        """Take a request that is complete, or known to be too large."""

    @abstractmethod
    def _pay_continue(self) -> None:
        """Send "100 Continue", if it is due and no other answer comes first."""

    @abstractmethod
    def _answer_bad(self, status: int, text: str | None = None) -> None:
        """Answer input that is not HTTP; nothing is parsed after it."""

    def _release(self) -> None:
        """Stop receiving. The parser refers to our methods, and breaking this cycle relieves the collector."""
        del self._parser

    def _feed(self, data: bytes | memoryview) -> None:
        steps = self._steps
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # an offer to switch protocols; we decline by answering as usual and closing
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _StopParsingError):
                log.exception("HTTP: client(%s) broke the parser", self._remote)
                self._answer_bad(500)
        except httptools.HttpParserError:
            if not self._is_input_over:
                self._answer_bad(400)
        if steps != self._steps or not self._receiving:
            self._swallowed = 0
            return
        # The parser keeps a header's bytes to itself until the header is complete.
        self._swallowed += len(data)
        if self._swallowed > HEAD_SIZE_MAX:
            self._answer_bad(431)

    # the parser's callbacks

    def on_message_begin(self) -> None:
        if self._is_input_over:
            raise _StopParsingError
        self._receiving = True
        self._begun = 0.0
        self._url = b""
        self._headers = {}
        self._head_size = 0
        self._request = None
        self._drop_body()
        self._body_size = 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)
        if self._request is not None:  # a trailer
            return
        name = name.lower()
        if name == b"host" and name in self._headers:
            self._refuse(400)
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        self._steps += 1
        headers = self._headers
        try:
            method = self._parser.get_method().decode()
            request = Request(method, self._url, self._remote)
            request.lines = self._lines
        except ValueError:
            self._refuse(400)
        version = self._parser.get_http_version()
        if version == "1.0":
            request.is_http10 = True
        elif version != "1.1":
            self._refuse(505)
        elif b"host" not in headers:
            self._refuse(400, NO_HOST)
        request.headers = headers
        request.close = not self._parser.should_keep_alive() or self._parser.should_upgrade()
        self._request = request
        limit = self._handler.limit(method, request.path)
        self._body_size_max = limit or IGNORED_BODY_SIZE_MAX
        self._announced_size = length = int(headers.get(b"content-length", 0))
        if length > self._body_size_max:
            self._take_oversize(DECLARED)
        if b"expect" in headers and version == "1.1":
            self._expect(headers[b"expect"], length or b"transfer-encoding" in headers)

    def on_body(self, body: bytes) -> None:
        self._steps += 1
        self._continue_owed = False
        self._body_size += len(body)
        if self._body_size > self._body_size_max:
            self._take_oversize(ACTUAL)
        if not self._body:
            self._body = body
            return
        if self._turns.memory.is_full():
            self._refuse(503, NO_MEMORY)
        if isinstance(self._body, bytes):
            first, self._body = self._body, Body(self._announced_size, self._turns.memory)
            self._body.add(first)
        self._body.add(body)

    def on_chunk_header(self) -> None:
        self._steps += 1

    def on_message_complete(self) -> None:
        self._receiving = False
        self._continue_owed = False
        request = self._request
        if request is None or self._is_input_over:
            raise _StopParsingError
        self._request = None  # its body goes when it was handled
        request.body, self._body = self._body, b""
        if request.close:
            self._is_input_over = True
        self._take(request)

    @property
    def _is_large(self) -> bool:
        """Whether more than LARGE_SIZE of the body has come, and the rest is still to come."""
        return self._receiving and self._body_size > LARGE_SIZE

    def _drop_body(self) -> None:
        if isinstance(self._body, Body):
            self._turns.join(self._body.free)  # many may be dropped at once
        self._body = b""

    # refusing

    def _count_head(self, size: int) -> None:
        self._steps += 1
        self._head_size += size
        if self._head_size > HEAD_SIZE_MAX:
            self._refuse(431)

    def _expect(self, expectation: bytes, has_body: object) -> None:
        if expectation.lower() != b"100-continue":
            self._refuse(417, "")
        if has_body:
            self._continue_owed = True
            self._pay_continue()

    def _take_oversize(self, kind: int) -> None:
        """Pass on a request without its body: the handler words the refusal."""
        request = cast("Request", self._request)
        self._receiving = False
        self._is_input_over = self._is_lingering = True
        self._drop_body()
        request.oversize = kind
        request.close = True
        self._take(request)
        raise _StopParsingError

    def _refuse(self, status: int, text: str | None = None) -> None:
        """Answer input that is not HTTP, and leave the parser."""
        self._answer_bad(status, text)
        raise _StopParsingError
