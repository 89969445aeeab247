"""How nodes are asked: what their answers may look like, and what becomes of the connections."""

import asyncio
import contextlib
import dataclasses
import ssl

import pytest

from nsqfast.nsqadmin.cluster import body
from nsqfast.nsqadmin.cluster.answers import UpstreamError
from nsqfast.nsqadmin.cluster.client import CONNECTIONS_PER_HOST, Upstream
from nsqfast.nsqadmin.options import Options
from support.talks import beside

SECONDS_MAX = 50.0
SOON_NS = 300_000_000
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
ANNOUNCED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
OLD = b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"
PACKED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello"
UNTIL_END = b"HTTP/1.1 200 OK\r\n\r\nhello"


class Node:
    """Answers each request by `answer(node, writer)`; counts what comes."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []
        self.tasks = set()
        self.connections = 0
        self.open = 0
        self.open_max = 0

    async def serve(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        self.connections += 1
        self.open += 1
        self.open_max = max(self.open, self.open_max)
        # A task of a stream that is cancelled is an error to asyncio before 3.12.
        gone = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError)
        try:
            with contextlib.suppress(*gone):
                while not writer.is_closing():
                    self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                    await self.answer(self, writer)
        finally:
            self.open -= 1
            writer.close()
            with contextlib.suppress(*gone):
                await writer.wait_closed()


def says(*pieces, ends=False):
    """Writes these one by one, and perhaps closes."""

    async def answer(_node, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if ends:
            writer.close()

    return answer


async def silence(_node, _writer):
    await asyncio.Event().wait()


def run(work, answer, **settings):
    """`work(upstream, node)` with a node at node.address; what fails on the loop fails the test."""

    async def live():
        errors = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        node = Node(answer)
        async with asyncio.timeout(SECONDS_MAX):
            server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
            node.port = server.sockets[0].getsockname()[1]
            node.address = f"127.0.0.1:{node.port}"
            async with server:
                with contextlib.closing(Upstream(Options(**settings))) as upstream:
                    await work(upstream, node)
                # From Python 3.12 on the server waits for its connections, and some are silent for ever.
                for task in node.tasks:
                    task.cancel()
            results = await asyncio.gather(*node.tasks, return_exceptions=True)
        assert [error for error in results if isinstance(error, Exception)] == []
        assert errors == []

    asyncio.run(live())


async def until(reached):
    async with asyncio.timeout(SECONDS_MAX):
        while not reached():
            await asyncio.sleep(0.001)


async def fails(upstream, address, path="/x"):
    with pytest.raises(UpstreamError) as caught:
        await upstream.get(address, path)
    return caught.value


def cut(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1 << 20, 1])
@pytest.mark.parametrize(
    ("data", "ends", "connections"),
    [
        (PLAIN, False, 1),
        (CHUNKED, False, 1),
        (ANNOUNCED, False, 1),
        (LAST, False, 3),
        (OLD, False, 3),
        (UNTIL_END, True, 3),
        (PLAIN, True, 3),
    ],
)
def test_an_answer_however_it_is_cut_and_whether_its_connection_is_used_again(
    data, ends, connections, size
):
    async def work(upstream, node):
        for _ in range(3):
            assert await upstream.get(node.address, "/x?a=1") == b"hello"
        assert node.connections == connections
        head = node.requests[0].split(b"\r\n")
        assert head[:2] == [b"GET /x?a=1 HTTP/1.1", b"Host: " + node.address.encode()]
        assert b"Accept: application/vnd.nsq; version=1.0" in head
        assert b"Accept-Encoding: identity" in head

    run(work, says(*cut(data, size), ends=ends))


@pytest.mark.parametrize("size", [1 << 20, 1])
@pytest.mark.parametrize("more", [b"x", b"HTTP/1.1 200 OK\r\n", PLAIN, b"\0" * 100_000])
def test_what_comes_behind_an_answer_is_no_part_of_the_next(more, size):
    async def work(upstream, node):
        for _ in range(5):
            # More may come before the next request or with it; never instead of its answer.
            with contextlib.suppress(UpstreamError):
                assert await upstream.get(node.address, "/x") == b"hello"
        assert node.connections > 1

    run(work, says(PLAIN, *cut(more, size)[:200]))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "EOF"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "unexpected EOF"),
        (PLAIN[:-1], "unexpected EOF"),
        (CHUNKED[:-3], "unexpected EOF"),
        (b"SSH-2.0-OpenSSH\r\n", "the answer is not one of HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "the answer is not one of HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "the head of the answer is larger than 65536"),
        (CHUNKED[:-2] + b"X: " + b"y" * 700_000, "the head of the answer is larger than 65536"),
        (PACKED, 'the answer is packed ("gzip")'),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 3000, "the head of the answer is larger than 65536"),
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
            'got response 404 Not Found "no"',
        ),
    ],
)
def test_what_is_no_answer(data, text):
    async def work(upstream, node):
        error = await fails(upstream, node.address)
        assert text in str(error)
        assert text in error.message
        assert len(node.requests) == 1  # a new connection that ends is no reason to ask again

    run(work, says(data, ends=True))


@pytest.mark.parametrize("method", ["get", "post"])
@beside(run, says(PLAIN[:-1], b"o", ends=True))
async def test_an_answer_that_is_too_large(upstream, node, *, monkeypatch, method):
    monkeypatch.setattr(body, "SIZE_MAX", 4)
    with pytest.raises(UpstreamError, match="the answer is larger than"):
        await getattr(upstream, method)(node.address, "/x")
    assert upstream._budget.size == 0


@pytest.mark.parametrize(
    ("bound", "data", "text"),
    [
        ("OBJECTS_MAX", b'{"topics":[{},{},{}]}', "the answer has more than 3 objects"),
        ("VALUES_MAX", b'{"topics":["a","b","c","d","e"]}', "the answer has more than 3 values"),
    ],
)
@beside(run, silence)
async def test_an_answer_of_which_too_much_would_be_decoded(
    upstream, node, *, monkeypatch, bound, data, text
):
    monkeypatch.setattr(body, bound, 3)
    node.answer = says(PLAIN[: PLAIN.index(b"\r\n")] + b"\r\n\r\n" + data, ends=True)
    assert text in str(await fails(upstream, node.address))
    assert upstream._budget.size == 0
    monkeypatch.setattr(body, bound, 5)
    assert await upstream.get(node.address, "/x") == data


@beside(run, says(PACKED, ends=True))
async def test_a_packed_answer_to_a_command(upstream, node):
    with pytest.raises(UpstreamError, match=r'the answer is packed \("gzip"\)'):
        await upstream.post(node.address, "/x")
    assert b"Accept-Encoding: identity" in node.requests[0]


@beside(run, silence)
async def test_of_answers_that_are_too_large_together_the_largest_fails(
    upstream, node, *, monkeypatch
):
    monkeypatch.setattr(body, "TOGETHER_SIZE_MAX", 100)
    more = asyncio.Event()

    async def endless(_node, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 98)
        await more.wait()
        writer.write(b"x")
        await silence(_node, writer)

    node.answer = endless
    task = asyncio.create_task(fails(upstream, node.address))
    await until(lambda: upstream._budget.size == 98)
    node.answer = says(PLAIN)
    assert await upstream.get(node.address, "/x") == b"hello"
    await until(lambda: upstream._budget.size == 0)
    more.set()
    assert "the answers of all nodes are larger than" in str(await task)


@beside(run, says(PLAIN))
async def test_an_answer_counts_until_nothing_refers_to_it(upstream, node):
    answer = await upstream.get(node.address, "/x")
    assert upstream._budget.size == len(answer) == 5
    del answer
    await until(lambda: upstream._budget.size == 0)  # asyncio has it until the next turn


def test_a_node_that_ends_a_used_connection_instead_of_answering_is_asked_once_more():
    async def answer(node, writer):
        if len(node.requests) % 2:
            writer.write(PLAIN)
        else:
            writer.close()

    async def work(upstream, node):
        assert await upstream.get(node.address, "/x") == b"hello"
        assert await upstream.get(node.address, "/x") == b"hello"
        assert (len(node.requests), node.connections) == (3, 2)

    run(work, answer)


def test_a_few_connections_to_each_node_and_everybody_has_his_turn():
    async def answer(node, writer):
        await asyncio.sleep(0)
        await says(PLAIN)(node, writer)

    async def work(upstream, node):
        answers = await asyncio.gather(*(upstream.get(node.address, "/x") for _ in range(50)))
        assert answers == [b"hello"] * 50
        assert node.open_max == CONNECTIONS_PER_HOST == node.connections

    run(work, answer)


@beside(run, silence, http_client_request_timeout_ns=SOON_NS)
async def test_a_silent_node_costs_the_time_limit_and_nothing_of_what_comes_then(upstream, node):
    tasks = [asyncio.create_task(fails(upstream, node.address)) for _ in range(9)]
    # Those that wait may have a connection for a moment later on, when the first have given up.
    await until(lambda: len(node.requests) == CONNECTIONS_PER_HOST)
    for error in await asyncio.gather(*tasks):
        assert str(error).endswith(": no answer in time")
        assert "context deadline exceeded (Client.Timeout exceeded" in error.message
    node.answer = says(PLAIN)
    assert await upstream.get(node.address, "/x") == b"hello"


@beside(run, silence)
async def test_who_leaves_hands_his_place_over(upstream, node):
    tasks = [asyncio.create_task(upstream.get(node.address, "/x")) for _ in range(9)]
    await until(lambda: len(node.requests) == CONNECTIONS_PER_HOST)
    node.answer = says(PLAIN)
    for task in tasks[:6]:  # two of them wait for their turn
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert found[6:] == [b"hello"] * 3
    assert all(isinstance(one, asyncio.CancelledError) for one in found[:6])


@beside(run, says(PLAIN))
async def test_a_node_that_is_not_there(upstream, node):
    gone = await asyncio.start_server(node.serve, "127.0.0.1", 0)
    port = gone.sockets[0].getsockname()[1]
    gone.close()
    error = await fails(upstream, f"127.0.0.1:{port}")
    assert str(error) == f"http://127.0.0.1:{port}/x: connection refused"
    dialled = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert error.message == f'Get "http://127.0.0.1:{port}/x": {dialled}'
    assert await upstream.get(f"localhost:{node.port}", "/x") == b"hello"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1\r\nX: y:{port}",
        "127.0.0.1 :{port}",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:999999999999",
        "a..b:{port}",
        "[::1:{port}",
        "[:::::]:{port}",
        ":{port}",
        "\xff:{port}",
        "",
    ],
)
@beside(run, says(PLAIN), http_client_connect_timeout_ns=SOON_NS)
async def test_an_address_that_is_none_is_an_error_and_no_request(upstream, node, *, address):
    await fails(upstream, address.format(port=node.port))
    assert node.requests == []
    # Nor does a path hold a second one.
    with contextlib.suppress(UpstreamError):
        await upstream.get(node.address, "/x HTTP/1.1\r\nA: b\r\n\r\nGET /y")
    assert len(node.requests) <= 1


@beside(run, says(PLAIN))
async def test_idle_connections_end(upstream, node, *, monkeypatch):
    soon = dataclasses.replace(upstream._reader.limits, idle_s=0.05)
    monkeypatch.setattr(upstream._reader, "limits", soon)
    await upstream.get(node.address, "/x")
    await until(lambda: node.open == 0)
    assert upstream._reader._servers == {}


@beside(run, silence)
async def test_the_end_is_an_error_for_who_still_waits(upstream, node):
    task = asyncio.create_task(fails(upstream, node.address))
    await until(lambda: node.requests)
    upstream.close()
    assert str(await task)
    assert len(node.requests) == 1


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_certificate_that_is_not_trusted_is_the_reason(certificates, method):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.path("server.crt"), certificates.path("server.key"))

    async def work(upstream, node):
        server = await asyncio.start_server(node.serve, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            with pytest.raises(UpstreamError) as caught:
                await getattr(upstream, method)(url, "/x")
        reason = "tls: unable to get local issuer certificate"
        assert str(caught.value) == f"{url}/x: {reason}"
        dialled = f"dial tcp {url.removeprefix('https://')}: {reason}"
        assert caught.value.message == f'{method.title()} "{url}/x": {dialled}'
        assert node.requests == []

    run(work, says(PLAIN))
