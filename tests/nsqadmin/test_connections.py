"""Connections of browsers: how long one may take to ask, how many there may be, and TLS."""

import asyncio
import contextlib
import http.client
import resource
import signal
import socket
import ssl
import threading
import time

import pytest
from aiohttp import web

from nsqfast.nsqadmin.access import connection
from nsqfast.nsqadmin.options import parse
from nsqfast.wire.refusals import REFUSED
from support.access import probed, refusal, run_admin, with_nsqd, write_users
from support.certificates import Certificates
from support.fake_stats import FakeStats, stats
from support.server import Server, program
from support.waiting import wait_until
from support.web import get, request

SOON_S = 0.3
SECONDS_MAX = 50.0
HALF_HEAD = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nX: "
HALF_BODY = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nna"
WHOLE = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(connection, "HEAD_S", SOON_S)


@contextlib.contextmanager
def connected(address):
    with socket.create_connection(address, SECONDS_MAX) as made:
        yield made


def ping(made):
    made.sendall(WHOLE)
    answer = http.client.HTTPResponse(made)
    answer.begin()
    assert (answer.status, answer.read()) == (200, b"OK")


def is_cut_off(made, drip=b""):
    """Sends these bytes again and again until the connection ends."""
    made.settimeout(SOON_S / 10)
    ends_s = time.monotonic() + SECONDS_MAX
    while time.monotonic() < ends_s:
        with contextlib.suppress(TimeoutError):
            try:
                made.sendall(drip)
                if not made.recv(1000):
                    return True
            except ConnectionError:
                return True
    return False


@pytest.mark.parametrize(
    ("begin", "drip", "count"), [(b"", b"", 0), (HALF_HEAD, b"y", 1), (HALF_BODY, b"", 1)]
)
def test_a_request_that_does_not_become_whole_is_cut_off(soon, begin, drip, count):
    before = REFUSED["slow_request"]
    with run_admin() as admin, connected(admin.http) as slow:
        slow.sendall(begin)
        assert get(admin.http, "/ping").status == 200
        assert is_cut_off(slow, drip)
    assert REFUSED["slow_request"] == before + count


def test_neither_one_that_waits_for_its_answer_nor_one_between_two_requests(soon):
    may_answer = threading.Event()

    async def wait(_request):
        while not may_answer.is_set():
            await asyncio.sleep(0.01)
        return web.Response(text="OK")

    def add(app, _context):
        app.router.add_get("/probe/wait", wait)

    with probed(add) as address, connected(address) as idle, connected(address) as waiting:
        ping(idle)
        waiting.sendall(WHOLE.replace(b"ping", b"probe/wait"))
        with connected(address) as silent:
            assert is_cut_off(silent)
        may_answer.set()
        assert waiting.recv(1000).startswith(b"HTTP/1.1 200 ")
        ping(idle)
        idle.sendall(HALF_HEAD)
        assert is_cut_off(idle, b"y")


def test_further_connections_are_told_so_until_one_has_ended():
    before = REFUSED["too_many_connections"]
    with run_admin("--max-connections=2") as admin:
        with connected(admin.http) as one, connected(admin.http) as other:
            ping(one)
            ping(other)
            answer = get(admin.http, "/ping")
            assert (answer.status, answer.json()) == (503, {"message": "TOO_MANY_CONNECTIONS"})
            ping(one)
        wait_until(lambda: get(admin.http, "/ping").status == 200)
    assert REFUSED["too_many_connections"] > before


def test_descriptors_are_left_for_asking_the_nodes():
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    with FakeStats(lambda *_: stats()) as node, contextlib.ExitStack() as stack:
        flags = with_nsqd([f"--nsqd-http-address={node.address}", "--poll-interval=100ms"])
        admin = Server([*program("nsqadmin", "nsqfast"), *flags], ("HTTP",), limit)
        with admin:
            for _ in range(150):
                stack.enter_context(connected(admin.http))
            admin.wait_for_line("no more connections accepted")
            asked = len(node.asked)
            wait_until(lambda: len(node.asked) > asked + 3)
            stack.close()
            wait_until(lambda: get(admin.http, "/ping").status == 200)


@pytest.fixture
def certificates(tmp_path):
    return Certificates(tmp_path)


def ask_https(address, certificates, target="/ping", method="GET", body=None, headers=None):
    context = ssl.create_default_context(cafile=certificates.path("ca.crt"))

    def connect(host, port, timeout):
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)

    return request(address, method, target, body, headers, connect)


def serial(address, certificates):
    context = ssl.create_default_context(cafile=certificates.path("ca.crt"))
    with (
        connected(address) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as made,
    ):
        return made.getpeercert()["serialNumber"]


def tls_flags(certificates):
    return [
        f"--tls-cert={certificates.path('server.crt')}",
        f"--tls-key={certificates.path('server.key')}",
    ]


def test_pages_over_tls_and_a_new_certificate(certificates, tmp_path):
    users = write_users(tmp_path / "users", ("ana", "admin", "right"))
    flags = [*tls_flags(certificates), f"--auth-file={users}"]
    admin = Server([*program("nsqadmin", "nsqfast"), *with_nsqd(flags)], ("HTTPS",))
    with admin:
        address = admin.addresses["HTTPS"]
        assert ask_https(address, certificates).text == "OK"
        page = ask_https(address, certificates, "/login")
        assert "<form" in page.text
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = ask_https(
            address, certificates, "/login", "POST", b"name=ana&password=right&next=", form
        )
        assert "Secure" in answer.headers["Set-Cookie"]
        first = serial(address, certificates)
        certificates.issue_server("server")
        admin.process.send_signal(signal.SIGHUP)
        admin.wait_for_line("SIGHUP: certificate reloaded")
        second = serial(address, certificates)
        assert second != first
        (tmp_path / "server.crt").write_text("none")
        admin.process.send_signal(signal.SIGHUP)
        admin.wait_for_line("; it stays as it was")
        assert serial(address, certificates) == second


def test_a_client_without_tls_is_told_and_one_that_stops_in_the_handshake_counts(certificates):
    with run_admin(*tls_flags(certificates), "--max-connections=1") as admin:
        assert get(admin.http, "/ping").status == 400
        with connected(admin.http):
            wait_until(lambda: ask_https(admin.http, certificates).status == 503)
        wait_until(lambda: ask_https(admin.http, certificates).status == 200)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--tls-cert=a"], "--tls-key must be specified with --tls-cert"),
        (["--tls-key=a"], "--tls-cert must be specified with --tls-key"),
        (["--tls-cert=a", "--tls-key=b"], "open a: no such file or directory"),
        (["--max-connections=-1"], "--max-connections must be at least 0"),
    ],
)
def test_what_cannot_be_is_refused_at_the_start(flags, text):
    assert text in refusal(parse(with_nsqd(flags)))
