"""What a web server answers to nsq_to_http: the same status however it is cut, or one error; what follows from it too.

The input is a byte that says where it is cut, and the answer; then the server hangs up.
"""

import asyncio
import atexit
import functools

from fuzz.common import guarded, pieces
from nsqfast.net.http_client import Answer, BrokenError, HttpConnection
from nsqfast.net.http_target import parse_target
from nsqfast.tools.nsq_to_http.destination import WAIT_S_MAX, WAIT_S_MIN, parse_retry_after
from nsqfast.tools.nsq_to_http.requests import ANSWER_SIZE_MAX, RedirectError, Request, redirect
from support.destination import answer

WORDS = [
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.0 503 X\r\n", b"\r\n\r\n"),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"),
    *(
        b"Retry-After: 5\r\n",
        b"Location: /x\r\n",
        b"Upgrade: h2c\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
    ),
    *(b"Wed, 21 Oct 2015 07:28:00 GMT", b"http://[::1]:80/", b"HTTP/1.1 204 X\r\n\r\n"),
]
ASKED = Request(parse_target("http://h/x?y"), {"User-Agent": "me", "Cookie": "c"}, b"body")


def seeds():
    found = [
        answer(200, body=b"hello"),
        answer(503, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"),
        answer(307, "Location: http://[::1]:80/x?y#z"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 X\r\nConnection: close\r\n\r\nmore",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: u\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 2",
    ]
    return [bytes([cut]) + data for data in found for cut in range(3)]


class Transport:
    """Takes everything."""

    def write(self, data):
        pass

    def abort(self):
        pass

    def get_write_buffer_size(self):
        return 0


@functools.cache
def own_loop():
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


async def hear(parts):
    """The answer, or None if there was none."""
    lost = []
    connection = HttpConnection(lost.append, ANSWER_SIZE_MAX)
    connection.connection_made(Transport())
    waiter = connection.ask(b"request", None, 0.0)
    for part in parts:
        if not lost:
            connection.data_received(part)
    connection.connection_lost(None)
    assert waiter.done()
    assert lost == [connection]
    try:
        return waiter.result()
    except BrokenError as error:
        assert "\n" not in str(error)
        return None


@guarded
def check(data):
    loop = own_loop()
    whole = loop.run_until_complete(hear([data[1:]]))
    found = loop.run_until_complete(hear(pieces(data[1:], data[0] if data else 0)))
    assert (whole and whole.status) == (found and found.status)
    if found is None:
        return
    assert found.status >= 200
    wait_s = parse_retry_after(found.headers.get(b"retry-after", b""))
    assert wait_s is None or WAIT_S_MIN <= wait_s <= WAIT_S_MAX
    try:
        location = found.headers.get(b"location", b"")
        after = redirect(ASKED.target, ASKED, Answer(307, headers={b"location": location}))
    except RedirectError:
        return
    assert not set("\r\n \0") & set(after.target.host + after.target.path)
    assert after.target.host.isascii()
