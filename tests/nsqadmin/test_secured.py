"""A cluster that wants a secret and TLS: nsqadmin works with it, and tells nobody else the secret."""

import asyncio
import contextlib
import http.client
import http.server
import json
import ssl
import threading

import pytest

from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.options import Options, parse
from support.access import refusal, start_admin, with_nsqd
from support.admin import start_nsqadmin, text_of, wait_for_channel
from support.authd import AuthServer, grant, permit
from support.certificates import Certificates
from support.server import start_nsqd, start_nsqlookupd
from support.strict_http import StrictHTTPServer
from support.web import get, request

SECRET = "the-secret"
BEARER = {"Authorization": f"Bearer {SECRET}"}
JSON_TYPE = {"Content-Type": "application/json"}


@pytest.fixture
def certificates(tmp_path):
    return Certificates(tmp_path)


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    return str(path)


class Node:
    """Answers each request by `answer(path)`, a status and JSON; `heard` has paths and what came as Authorization."""

    def __init__(self, answer, tls=None):
        node, self.heard = self, []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                node.heard.append((self.path.partition("?")[0], self.headers["Authorization"]))
                status, body = answer(self.path.partition("?")[0])
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            do_POST = do_GET  # noqa: N815 - http.server calls it

            def log_message(self, *_):
                pass

        self.server = StrictHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        self.address = f"127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.01])

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def server_context(certificates, name="server"):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.path(f"{name}.crt"), certificates.path(f"{name}.key"))
    return context


def fine(_path):
    return 200, {"topics": []}


def ask(address, **settings):
    """A GET and a POST."""

    async def live():
        with contextlib.closing(Upstream(Options(**settings))) as upstream:
            for send in (upstream.get, upstream.post):
                await send(address, "/x")

    asyncio.run(live())


def test_configured_nsqd_are_told_the_secret(secret_file):
    with Node(fine) as node:
        ask(node.address, nsqd_http_addresses=[node.address], auth_secret_file=secret_file)
    assert node.heard == [("/x", BEARER["Authorization"])] * 2


def test_others_are_told_over_verified_tls_alone(secret_file, certificates):
    with (
        Node(fine, server_context(certificates)) as tls,
        Node(lambda _: (403, {"https_port": tls.port})) as plain,
        Node(fine) as lookupd,
    ):
        settings = {
            "nsqlookupd_http_addresses": [lookupd.address],
            "auth_secret_file": secret_file,
            "http_client_tls_root_ca_file": certificates.path("ca.crt"),
        }
        ask(plain.address, **settings)
        ask(lookupd.address, **settings)
        assert plain.heard == lookupd.heard == [("/x", None)] * 2
        assert tls.heard == [("/x", BEARER["Authorization"])] * 2
        ask(plain.address, **settings, http_client_tls_insecure_skip_verify=True)
        assert tls.heard[2:] == [("/x", None)] * 2


def test_an_nsqlookupd_that_is_asked_over_tls(certificates, secret_file):
    """By a program of its own, whose end ends connections that wait for the other side's TLS."""
    lists = {
        "/nodes": {"producers": []},
        "/topics": {"topics": ["t"]},
        "/info": {"version": "1.3.0"},
    }
    flags = [
        f"--http-client-tls-root-ca-file={certificates.path('ca.crt')}",
        f"--auth-secret-file={secret_file}",
    ]
    with (
        Node(lambda path: (200, lists.get(path, {})), server_context(certificates)) as lookupd,
        start_admin(f"--lookupd-http-address=https://{lookupd.address}", *flags) as admin,
    ):
        assert get(admin.http, "/api/topics").json()["topics"] == ["t"]
        assert request(admin.http, "DELETE", "/api/topics/t/c").status == 200
    assert ("/channel/delete", None) in lookupd.heard
    with (
        Node(fine, server_context(certificates, "other-server")) as stranger,
        start_admin(f"--lookupd-http-address=https://{stranger.address}", *flags) as admin,
    ):
        answer = get(admin.http, "/api/topics")
        assert answer.status == 502
        assert "certificate" in answer.json()["message"]
    assert stranger.heard == []


@pytest.fixture(params=["lookupd", "direct"])
def secured(request, tmp_path, certificates, secret_file):
    """nsqd, and nsqadmin beside it."""
    with contextlib.ExitStack() as stack:
        auth = stack.enter_context(AuthServer())
        auth.answers[SECRET] = grant(permit())
        flags = [
            *certificates.flags(),
            "--tls-required=true",
            f"--auth-http-address={auth.address}",
            "--http-auth-required",
        ]
        lookupds = []
        if request.param == "lookupd":
            lookupds = [stack.enter_context(start_nsqlookupd("nsqfast"))]
            flags.append(f"--lookupd-tcp-address={text_of(lookupds[0].tcp)}")
        listeners = ("TCP", "HTTP", "HTTPS")
        nsqd = stack.enter_context(start_nsqd("nsqfast", tmp_path, *flags, listeners=listeners))
        more = [
            f"--http-client-tls-root-ca-file={certificates.path('ca.crt')}",
            f"--auth-secret-file={secret_file}",
            "--poll-interval=200ms",
        ]
        nsqds = [] if lookupds else [nsqd]
        admin = start_nsqadmin("nsqfast", *more, lookupds=lookupds, nsqds=nsqds)
        yield nsqd, stack.enter_context(admin)


@pytest.mark.slow
def test_a_cluster_that_wants_tls_and_a_secret(secured, certificates):
    nsqd, admin = secured
    context = certificates.client_context()

    def tell(target, body=b""):
        def connect(host, port, timeout):
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)

        assert request(nsqd.https, "POST", target, body, BEARER, connect).status == 200

    def act(method, target, body):
        answer = request(admin.http, method, target, json.dumps(body).encode(), JSON_TYPE)
        assert (answer.status, answer.json()) == (200, {"message": ""})

    for target in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
        tell(target)
    tell("/pub?topic=t", b"waits")
    wait_for_channel(admin, "t", "c", 1)
    act("POST", "/api/topics/t/c", {"action": "pause"})
    (channel,) = get(admin.http, "/api/topics/t").json()["channels"]
    assert (channel["paused"], channel["depth"]) == (True, 1)
    (shown,) = get(admin.http, "/ui/messages?topic=t&channel=c").json()["nodes"]
    assert "waits" in json.dumps(shown)
    connection = http.client.HTTPConnection(*admin.http, timeout=50)
    connection.request("POST", "/ui/tail", b'{"topic": "t"}', JSON_TYPE)
    events = connection.getresponse()
    assert events.status == 200, events.read()
    while b'"nodes":1' not in events.readline():
        pass
    tell("/pub?topic=t", b"comes now")
    while b"comes now" not in events.readline():
        pass
    connection.close()
    act("POST", "/api/topics/t/c", {"action": "empty"})
    act("DELETE", "/api/topics/t", {})


@pytest.mark.parametrize(
    ("flags", "content", "text"),
    [
        (["--lookupd-http-address=127.0.0.1:1"], "x", "--http-client-tls-root-ca-file"),
        ([], "two words", "--auth-secret-file"),
        ([], "", "--auth-secret-file"),
        ([], None, "no such file or directory"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, flags, content, text):
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    assert text in refusal(parse(with_nsqd([*flags, f"--auth-secret-file={path}"])))
