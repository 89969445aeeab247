"""One HTTP connection against a real listener: framing, order, limits and deadlines, with a handler of our own."""

import asyncio
import contextlib
import logging

import pytest

from nsqfast.net.http_message import ACTUAL, DECLARED, TEXT, Response, parse_query
from nsqfast.net.http_receiver import HEAD_SIZE_MAX, IGNORED_BODY_SIZE_MAX
from nsqfast.net.http_routes import Router
from nsqfast.net.http_server import WAITING_COUNT_MAX, HttpLimits, HttpProtocol
from nsqfast.net.slices import Turns
from nsqfast.net.tls import TLS_1_2, ServerTls
from nsqfast.net.tls_protocol import TlsProtocol
from support.certificates import Certificates
from support.talks import beside

BODY_SIZE_MAX = 1000
SHORT = HttpLimits(receive_timeout_s=0.05, idle_timeout_s=0.05, linger_s=0.05)
LONG = HttpLimits()


class Echo:
    """Answers with what it saw; paths choose special behaviour."""

    def __init__(self):
        self.requests = []
        self.waiting = []
        self.connections = set()

    def limit(self, method, path):
        return 0 if path == "/ignored" else BODY_SIZE_MAX

    def __call__(self, request):
        self.requests.append(request)
        if request.oversize:
            return Response(413, {DECLARED: b"declared", ACTUAL: b"actual"}[request.oversize])
        if request.path == "/raise":
            raise RuntimeError("boom")
        if request.path == "/wait":
            future = asyncio.get_running_loop().create_future()
            self.waiting.append((future, request))
            return future
        if request.path == "/big":
            return Response(200, b"b" * 1_000_000)
        if request.path == "/close":
            return Response(200, b"bye", close=True)
        text = f"{request.method} {request.path} {request.query.decode()} ".encode()
        return Response(200, text + request.body, TEXT)


def serve(talk, limits=LONG, ours=None, theirs=None):
    """Runs `talk(echo, connect)` beside a listener; an error that reaches the loop fails the test."""

    async def run():
        loop = asyncio.get_running_loop()
        errors = []
        loop.set_exception_handler(lambda _loop, context: errors.append(context))
        echo = Echo()
        connections = echo.connections

        def make():
            return HttpProtocol(echo, limits, connections)

        def make_under_tls():
            return TlsProtocol(make, ours, Turns())

        server = await loop.create_server(make_under_tls if ours else make, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        writers = []

        async def connect():
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=theirs)
            writers.append(writer)
            return reader, writer

        try:
            async with asyncio.timeout(50):
                await talk(echo, connect)
        finally:
            for writer in writers:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            for connection in list(connections):
                connection.close()
            server.close()
            await server.wait_closed()
        assert not errors

    asyncio.run(run())


async def until(reached):
    """Lets the loop turn until something is so."""
    while not reached():
        await asyncio.sleep(0)


async def exhaust_turns():
    """Return once the loop has done all that it can without being told more: on a loop of its own nobody else is."""
    for _ in range(20):
        await asyncio.sleep(0)


async def read_answer(reader):
    """Status, headers, body of one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")[:-2]
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers.get("Content-Length", 0)))
    return int(first.split()[1]), headers, body


def post(path, body=b"", extra=""):
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def exchange(sent, limits=LONG):
    """All that comes back for some bytes, after which the peer must have closed."""
    got = []

    async def talk(_echo, connect):
        reader, writer = await connect()
        writer.write(sent)
        got.append(await reader.read())

    serve(talk, limits)
    return got[0]


CHUNKED = (
    b"POST /c?q=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nTrailer: 1\r\n\r\n"
)


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (post("/a?x=y", b"hello"), b"POST /a x=y hello"),
        (CHUNKED, b"POST /c q=1 abcdefg"),
        (b"GET http://h:1/p?q HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /p q "),
        (b"GET /t?topic=a#ephemeral HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /t topic=a#ephemeral "),
        (b"GET /%61%2Fb HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /a/b  "),
        (b"GET /a://b/c HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /a://b/c  "),
    ],
)
@beside(serve)
async def test_request_whole_and_byte_by_byte(echo, connect, *, sent, body):
    reader, writer = await connect()
    for pieces in ([sent], [bytes([byte]) for byte in sent], [sent + sent]):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        for _ in range(sum(map(len, pieces)) // len(sent)):
            status, _headers, got = await read_answer(reader)
            assert (status, got) == (200, body)


def test_old_http_closes_unless_asked_not_to():
    answer = exchange(b"GET /a HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"Connection" not in answer
    answer = exchange(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n")
    assert answer.count(b"HTTP/1.0 200 OK") == 2
    assert answer.count(b"Connection: keep-alive") == 1


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /close HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    ],
)
def test_close_is_announced(sent):
    answer = exchange(sent + post("/never"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.count(b"HTTP/1.1") == answer.count(b"Connection: close\r\n") == 1


@pytest.mark.parametrize(
    ("sent", "first", "last"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400 Bad Request", b"missing required Host header"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400 Bad Request", b"Request"),
        (b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", b"400 Bad Request", b"Request"),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", b"505 HTTP Version Not Supported", b"Supported"),
        (b"\x16\x03\x01\x02\x00\x01", b"400 Bad Request", b"Request"),
        (post("/", b"x", "Content-Length: 2\r\n"), b"400 Bad Request", b"Request"),
        (post("/", b"x", "Transfer-Encoding: chunked\r\n"), b"400 Bad Request", b"Request"),
        (post("/", b"x", "Expect: miracles\r\n"), b"417 Expectation Failed", b"\r\n\r\n"),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"400 Bad Request",
            b"Request",
        ),
    ],
)
def test_no_http(sent, first, last, caplog):
    answer = exchange(sent, HttpLimits(linger_s=0.05))
    assert answer.startswith(b"HTTP/1.1 " + first + b"\r\n")
    assert b"\r\nConnection: close\r\n" in answer
    assert answer.endswith(last)
    assert not [record for record in caplog.records if record.exc_info]


@beside(serve, HttpLimits(linger_s=0.05))
async def test_answer_to_garbage_waits_its_turn(echo, connect):
    reader, writer = await connect()
    writer.write(post("/wait", b"x") + post("/b") + b"garbage\r\n")
    await until(lambda: len(echo.requests) >= 2)
    echo.waiting[0][0].set_result(Response(200, b"first"))
    answers = [await read_answer(reader) for _ in range(3)]
    assert [answer[0] for answer in answers] == [200, 200, 400]
    assert await reader.read() == b""


def test_handler_that_raises(caplog):
    async def talk(_echo, connect):
        reader, writer = await connect()
        writer.write(post("/raise") + post("/ok"))
        assert (await read_answer(reader))[0] == 500
        assert (await read_answer(reader))[0] == 200

    with caplog.at_level(logging.ERROR, "nsqfast"):
        logging.getLogger("nsqfast").addHandler(caplog.handler)
        try:
            serve(talk)
        finally:
            logging.getLogger("nsqfast").removeHandler(caplog.handler)
    assert any(record.exc_info for record in caplog.records)


@beside(serve)
async def test_answers_keep_their_order_when_one_waits(echo, connect):
    reader, writer = await connect()
    writer.write(post("/wait", b"1") + post("/b", b"2") + post("/wait", b"3") + post("/d"))
    await until(lambda: len(echo.requests) >= 4)
    first, third = echo.waiting
    third[0].set_result(Response(200, b"third"))
    await exhaust_turns()
    assert not reader._buffer
    first[0].set_result(Response(200, b"first"))
    bodies = [(await read_answer(reader))[2] for _ in range(4)]
    assert bodies == [b"first", b"POST /b  2", b"third", b"POST /d  "]


@beside(serve)
async def test_failed_and_cancelled_futures_answer_500(echo, connect):
    reader, writer = await connect()
    writer.write(post("/wait") * 2)
    await until(lambda: len(echo.waiting) >= 2)
    echo.waiting[0][0].set_exception(OSError("disk"))
    echo.waiting[1][0].cancel()
    assert [(await read_answer(reader))[0] for _ in range(2)] == [500, 500]


@beside(serve)
async def test_waiting_answers_are_bounded(echo, connect):
    reader, writer = await connect()
    count = WAITING_COUNT_MAX * 100
    writer.write(b"".join(post("/wait", b"%d" % number) for number in range(count)))
    answered = 0
    while answered < count:
        await until(lambda: echo.waiting)
        batch, echo.waiting = echo.waiting, []
        assert len(batch) <= WAITING_COUNT_MAX
        for future, request in batch:
            future.set_result(Response(200, request.body))
        for _ in batch:
            assert (await read_answer(reader))[2] == b"%d" % answered
            answered += 1


@beside(serve)
async def test_peer_that_does_not_read_stops_the_handler(echo, connect):
    reader, writer = await connect()
    count = 200
    writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n" * count)
    seen = -1
    while seen != len(echo.requests):
        seen = len(echo.requests)
        await asyncio.sleep(0.02)
    assert 0 < seen < 40  # what kernel and stream buffers take, a megabyte each
    for _ in range(count):
        assert len((await read_answer(reader))[2]) == 1_000_000


def test_a_peer_reads_as_it_likes_under_tls(tmp_path):
    async def talk(_echo, connect):
        reader, writer = await connect()
        writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n" * 40)
        for _ in range(40):
            assert len((await read_answer(reader))[2]) == 1_000_000

    certificates = Certificates(tmp_path)
    files = certificates.path("server.crt"), certificates.path("server.key")
    ours = ServerTls(*files, client_auth_policy="", root_ca_file="", version_min=TLS_1_2).context()
    serve(talk, LONG, ours, certificates.client_context())


@beside(serve, SHORT)
async def test_peer_that_never_reads_is_dropped(echo, connect):
    _reader, writer = await connect()
    writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n" * 200)
    await until(lambda: echo.requests)
    await until(lambda: not echo.connections)


@beside(serve)
async def test_continue_is_said_before_the_body(echo, connect):
    reader, writer = await connect()
    head = post("/a", b"", "Expect: 100-continue\r\n").replace(b"Length: 0", b"Length: 3")
    writer.write(head)
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await read_answer(reader))[2] == b"POST /a  abc"


@beside(serve)
async def test_continue_waits_for_earlier_answers(echo, connect):
    reader, writer = await connect()
    head = post("/a", b"", "Expect: 100-continue\r\n").replace(b"Length: 0", b"Length: 3")
    writer.write(post("/wait") + head)
    await until(lambda: echo.waiting)
    echo.waiting[0][0].set_result(Response(200, b"first"))
    assert (await read_answer(reader))[2] == b"first"
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await read_answer(reader))[2] == b"POST /a  abc"


@pytest.mark.parametrize("extra", ["", "Expect: 100-continue\r\n"])
def test_declared_length_is_refused_without_the_body(extra):
    head = post("/a", b"", extra).replace(b"Length: 0", b"Length: %d" % (BODY_SIZE_MAX + 1))
    answer = exchange(head, HttpLimits(linger_s=0.05))
    assert answer.startswith(b"HTTP/1.1 413 Request Entity Too Large\r\n")
    assert answer.endswith(b"\r\n\r\ndeclared")
    assert answer.count(b"HTTP/1.1") == 1


def test_refused_body_does_not_reset_the_answer():
    body = b"x" * 3_000_000
    answer = exchange(post("/a", body))
    assert answer.endswith(b"\r\n\r\ndeclared")


def test_chunked_body_is_bounded():
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"64\r\n" + b"x" * 100 + b"\r\n"
    answer = exchange(head + chunk * 10 + b"0\r\n\r\n" + post("/close"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    answer = exchange(head + chunk * 1000, HttpLimits(linger_s=0.05))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"\r\n\r\nactual")


def test_ignored_body_is_bounded_too():
    body = b"x" * IGNORED_BODY_SIZE_MAX
    assert b" 200 OK" in exchange(post("/ignored", body, "Connection: close\r\n"))
    answer = exchange(post("/ignored", body + b"x"))
    assert b"\r\nConnection: close\r\n" in answer


ASKED = b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
LONG_HEADER = b"X-Header: %b\r\n" % (b"a" * (HEAD_SIZE_MAX // 11))


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * (HEAD_SIZE_MAX + 100) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * (HEAD_SIZE_MAX * 2),
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * HEAD_SIZE_MAX,
        ASKED + LONG_HEADER * 11 + b"\r\n",
        CHUNKED[:-2] + b"T: " + b"a" * (HEAD_SIZE_MAX * 2),
        CHUNKED[:-2] + b"T: a\r\n" * HEAD_SIZE_MAX,
        CHUNKED[:-20].rpartition(b"\r\n")[0] + b"\r\n5;" + b"e" * (HEAD_SIZE_MAX * 2),
    ],
    ids=["target", "header", "headers", "long headers", "trailer", "trailers", "extension"],
)
def test_endless_heads(sent):
    answer = exchange(sent, HttpLimits(linger_s=0.05))
    assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


def test_a_long_head():
    assert exchange(ASKED + LONG_HEADER * 10 + b"\r\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "sent", [b"GET", b"GET / HTTP/1.1\r\nHo", post("/a", b"12345")[:-1], CHUNKED[:-9]]
)
def test_slow_request_is_given_up(sent):
    answer = exchange(sent, SHORT)
    assert answer.startswith(b"HTTP/1.1 408 ")


@beside(serve, SHORT)
async def test_trickle_does_not_move_the_deadline(echo, connect):
    reader, writer = await connect()
    writer.write(b"GET / HTTP/1.1\r\n")
    while not reader._buffer and not reader.at_eof():
        writer.write(b"a: b\r\n")
        await asyncio.sleep(0.005)
    assert (await read_answer(reader))[0] == 408


@pytest.mark.slow
def test_idle_connection_is_closed():
    # Long enough for a client on a loaded machine to send before it is closed.
    limits = HttpLimits(idle_timeout_s=0.5)
    assert exchange(b"", limits) == b""
    assert exchange(post("/a"), limits).count(b"200 OK") == 1
    assert exchange(b"\r\n\r\n", limits) == b""


@beside(serve, SHORT)
async def test_waiting_for_our_own_answer_is_not_idle(echo, connect):
    reader, writer = await connect()
    writer.write(post("/wait"))
    await until(lambda: echo.waiting)
    idle, _writer = await connect()
    assert await idle.read() == b""  # who really was idle for as long is closed by now
    echo.waiting[0][0].set_result(Response(200, b"late"))
    assert (await read_answer(reader))[2] == b"late"


@beside(serve)
async def test_half_closed_peer_gets_its_answers(echo, connect):
    reader, writer = await connect()
    writer.write(post("/wait") + post("/b"))
    writer.write_eof()
    await until(lambda: echo.waiting)
    await exhaust_turns()
    echo.waiting[0][0].set_result(Response(200, b"first"))
    assert (await reader.read()).count(b"200 OK") == 2


@beside(serve)
async def test_future_after_the_peer_has_gone(echo, connect):
    _reader, writer = await connect()
    writer.write(post("/wait"))
    await until(lambda: echo.waiting)
    writer.transport.abort()
    await exhaust_turns()
    echo.waiting[0][0].set_result(Response(200, b"nobody"))
    await until(lambda: not echo.connections)  # serve() fails on an error that reaches the loop


def test_query():
    assert parse_query(b"") == {}
    assert parse_query(b"a=1&a=2&b&=c&&d=%23+%2B") == {"a": "1", "b": "", "": "c", "d": "# +"}
    for bad in (b"a=%", b"a=%1", b"a=%zz", b"%g0=1", b"a;b", b"x=1&y=;"):
        with pytest.raises(ValueError, match="invalid"):
            parse_query(bad)


def test_router():
    router = Router()
    router.add("GET", "/stats", 1)
    router.add("GET", "/config/:opt", 2)
    router.add("PUT", "/config/:opt", 3)
    router.add("GET", "/debug/pprof/", 4)
    assert router.find("GET", "/stats") == 1
    assert router.find("PUT", "/config/x") == 3
    assert router.find("GET", "/config/") is None
    assert router.find("GET", "/config/a/b") is None
    assert router.allowed("/config/x") == "GET, OPTIONS, PUT"
    assert router.allowed("/nothing") == ""
    assert router.correct("GET", "//STATS/") == "/stats"
    assert router.correct("GET", "/x/../stats") == "/stats"
    assert router.correct("POST", "/stats/") is None
    assert router.correct("GET", "/Config/Some") == "/config/Some"
    assert router.correct("GET", "/config/a/") == "/config/a"
    assert router.correct("GET", "/debug/pprof") == "/debug/pprof/"
    assert router.correct("GET", "/config/") is None
