"""The HTTP client of nsq_to_http, against servers that behave in every way."""

import asyncio
import itertools
import ssl
import time

import pytest

from nsqfast.net.http_target import parse_target
from nsqfast.tools.nsq_to_http import requests
from nsqfast.tools.nsq_to_http.destination import FailedError
from nsqfast.tools.nsq_to_http.requests import (
    ANSWER_SIZE_MAX,
    FAILURES,
    RedirectError,
    Request,
    describe,
    follow,
    make_client,
)
from nsqfast.tools.nsq_to_http.target import Head
from support.destination import Destination, answer
from support.waiting import until

SECONDS_MAX = 50
HEADERS = {"User-Agent": "test"}
OK = answer(200)


def run(work):
    async def bounded():
        async with asyncio.timeout(SECONDS_MAX):
            return await work

    return asyncio.run(bounded())


async def ask(client, url, body=b"body"):
    """A POST; the status, or FailedError in the tool's words."""
    target = parse_target(url)
    data = Head("POST", target, HEADERS).with_body(body)
    try:
        return (await client.ask(target.origin, data, None, client.deadline_s())).status
    except FAILURES as error:
        raise FailedError(describe(error)) from None


async def ask_once(url, body=b"body", connect_s=2.0, request_s=10.0):
    client = make_client(connect_s, request_s)
    try:
        return await ask(client, url, body)
    finally:
        client.close()


async def ask_often(url, count):
    client = make_client(2.0, 10.0)
    try:
        return [await ask(client, url, b"%d" % number) for number in range(count)]
    finally:
        client.close()


def test_a_connection_takes_one_request_after_the_other():
    with Destination() as server:
        assert run(ask_often(server.url, 5)) == [200] * 5
        assert server.connections == 1
        assert server.bodies == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("said", "status", "connections"),
    [
        (answer(204), 204, 1),
        (answer(500, body=b"oh"), 500, 1),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(201), 201, 1),
        (b"HTTP/1.1 103 Hints\r\nLocation: /x\r\n\r\n" + answer(202), 202, 1),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200, 1),
        (answer(200, "Connection: close"), 200, 3),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, 3),
    ],
)
def test_answers_whole_and_in_pieces(said, status, connections):
    def in_pieces(caller, request):
        if request.body == b"1":
            for number in range(len(said)):
                caller.say(said[number : number + 1])
            return None
        return said

    with Destination(in_pieces) as server:
        assert run(ask_often(server.url, 3)) == [status] * 3
        assert server.connections == connections


@pytest.mark.parametrize("more", [OK, b"HTTP/1.1 2", b"garbage", answer(200, "Connection: close")])
def test_what_stands_behind_an_answer_is_not_the_next_one(more):
    with Destination(lambda *_: OK + more) as server:
        assert run(ask_often(server.url, 3)) == [200] * 3
        assert server.connections == 3


def test_an_answer_that_nobody_waits_for_ends_the_connection():
    with Destination() as server:

        async def work():
            client = make_client(2.0, 10.0)
            await ask(client, server.url)
            idle = client._servers[parse_target(server.url).origin].idle
            assert len(idle) == 1
            next(iter(server._peers)).sendall(answer(200))
            await until(lambda: not idle)
            server.conduct = lambda _caller, _request: answer(503)
            assert await ask(client, server.url) == 503
            client.close()

        run(work())
        assert server.connections == 2


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"", "the connection broke before the answer was there"),
        (b"HTTP/1.1 20", "the connection broke before the answer was there"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "the connection broke before the answer was there"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "the connection broke before the answer was there"),
        (b"SSH-2.0-OpenSSH_9\r\n", "not one of HTTP"),
        (b"HTTP/1.1 200 OK\r\n\0: x\r\n\r\n", "not one of HTTP"),
        (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "not one of HTTP"),
    ],
)
def test_what_is_no_answer_is_an_error(said, text):
    def end(caller, _request):
        caller.say(said)
        caller.hang_up()

    with Destination(end) as server, pytest.raises(FailedError, match=text):
        run(ask_once(server.url))


def test_a_status_counts_although_the_body_behind_it_never_ends_as_it_should():
    def die(caller, _request):
        caller.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        caller.hang_up()

    with Destination(die) as server:
        assert run(ask_once(server.url)) == 200


def test_an_endless_body_is_cut_and_costs_the_connection():
    def flood(caller, _request):
        caller.say(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in itertools.count():
            caller.say(b"x" * 65536)

    with Destination(flood) as server:
        assert run(ask_often(server.url, 2)) == [200, 200]
        assert server.connections == 2


@pytest.mark.parametrize(
    ("start", "more"),
    [(b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n")],
)
def test_an_endless_head_is_an_error(start, more):
    def flood(caller, _request):
        caller.say(start)
        for _ in itertools.count():
            caller.say(more * 1000)

    with Destination(flood) as server, pytest.raises(FailedError, match=str(ANSWER_SIZE_MAX)):
        run(ask_once(server.url))


def test_a_server_that_says_nothing_runs_out_of_time():
    with Destination(lambda caller, _: caller.hang()) as server:
        began_s = time.monotonic()
        with pytest.raises(FailedError, match="no answer in time"):
            run(ask_once(server.url, request_s=0.1))
        assert time.monotonic() - began_s < 5


def test_each_request_has_its_own_deadline():
    """The second one begins later, and has its whole time."""

    def late(caller, request):
        if request.body == b"never":
            caller.hang()
        return OK

    with Destination(late) as server:

        async def work():
            client = make_client(2.0, 0.2)
            first = asyncio.create_task(ask(client, server.url, b"never"))
            await until(lambda: server.requests)
            statuses = [await ask(client, server.url) for _ in range(3)]
            with pytest.raises(FailedError, match="no answer in time"):
                await first
            with pytest.raises(FailedError, match="no answer in time"):
                await ask(client, server.url, b"never")
            client.close()
            return statuses

        assert run(work()) == [200] * 3


def test_a_status_that_came_in_time_counts():
    def trickle(caller, _request):
        caller.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        caller.hang()

    with Destination(trickle) as server:
        assert run(ask_once(server.url, request_s=0.1)) == 200


def test_a_refused_connection_and_a_name_that_nobody_knows():
    with Destination() as server:
        url = server.url
    with pytest.raises(FailedError, match="connection refused"):
        run(ask_once(url))
    with pytest.raises(FailedError, match="dial tcp no-such-host.invalid:80"):
        run(ask_once("http://no-such-host.invalid/"))


def test_connecting_takes_its_time_and_no_more(monkeypatch):
    async def never(*_, **__):
        await asyncio.Event().wait()

    async def work():
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        await ask_once("http://127.0.0.1:1/", connect_s=0.05)

    with pytest.raises(FailedError, match="timeout"):
        run(work())


def test_a_connection_that_the_server_closed_meanwhile_costs_nothing():
    """The request goes over a new one, once; what was read already does not go twice."""
    with Destination() as server:

        async def work():
            client = make_client(2.0, 10.0)
            for number in range(3):
                assert await ask(client, server.url, b"%d" % number) == 200
                server.conduct = close_then_answer(server.connections)
            client.close()

        def close_then_answer(old):
            def conduct(caller, _request):
                if server.connections == old:
                    caller.hang_up()
                    return None
                return OK

            return conduct

        run(work())
        assert server.bodies == [b"0", b"1", b"1", b"2", b"2"]
        assert server.connections == 3


def test_idle_connections_are_closed(monkeypatch):
    monkeypatch.setattr(requests, "IDLE_TIMEOUT_S", 0.05)
    with Destination() as server:

        async def work():
            client = make_client(2.0, 10.0)
            await ask(client, server.url)
            assert client._servers[parse_target(server.url).origin].idle
            await until(lambda: not client._servers)
            client.close()

        run(work())


def test_a_request_that_is_cancelled_takes_its_connection_along():
    with Destination(lambda caller, _: caller.hang()) as server:

        async def work():
            client = make_client(2.0, 10.0)
            task = asyncio.create_task(ask(client, server.url))
            await until(lambda: server.requests)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not client._servers
            assert not client._open
            client.close()

        run(work())


def test_a_large_body_and_an_answer_before_its_end():
    def refuse_early(caller, _request):
        return OK

    with Destination(refuse_early) as server:
        assert run(ask_once(server.url, b"\0\n" * (1 << 19))) == 200
        assert server.bodies == [b"\0\n" * (1 << 19)]


def server_context(certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.path("server.crt"), certificates.path("server.key"))
    return context


def test_https(certificates, monkeypatch):
    with Destination(context=server_context(certificates)) as server:
        with pytest.raises(FailedError, match="certificate verify failed"):
            run(ask_once(server.url))
        monkeypatch.setenv("SSL_CERT_FILE", certificates.path("ca.crt"))
        assert run(ask_often(server.url, 3)) == [200] * 3
        assert server.bodies == [b"0", b"1", b"2"]


# -- redirects


async def ask_through(url, headers, body=b"body"):
    client = make_client(2.0, 10.0)
    target = parse_target(url)
    try:
        data = Head("POST", target, headers).with_body(body)
        found = await client.ask(target.origin, data, None, client.deadline_s())
        request = Request(target, headers, body)
        return (await follow(client, request, found, client.deadline_s())).status
    finally:
        client.close()


def test_redirects_end():
    with Destination(lambda *_: answer(307, "Location: /again")) as server:
        with pytest.raises(RedirectError, match="stopped after 10 redirects"):
            run(ask_through(server.url, HEADERS))
        assert [request.path for request in server.requests] == ["/"] + ["/again"] * 10


@pytest.mark.parametrize("location", ["ftp://x/", "http://h:99999/", "http://a b/"])
def test_redirects_to_nowhere(location):
    with (
        Destination(lambda *_: answer(302, f"Location: {location}")) as server,
        pytest.raises(RedirectError, match="redirected to"),
    ):
        run(ask_through(server.url, HEADERS))
