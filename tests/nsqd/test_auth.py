"""AUTH where nsqfast differs from Go or has more: bounds, the log, POST, HTTP."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from functools import partial
from http.client import HTTPSConnection
from types import SimpleNamespace

import pytest
from nsqfast._ext.broker.registry import Registry

from nsqfast.nsqd.auth import QUERIES_MAX, read_grant
from nsqfast.nsqd.drain import Drain
from nsqfast.nsqd.http_api import _routes
from nsqfast.nsqd.http_auth import HttpAuth
from nsqfast.nsqd.http_publish import HttpPublisher
from nsqfast.nsqd.options import Options
from support.authd import AuthServer, Gate, Reply, grant, permit, send
from support.certificates import Certificates
from support.ports import hold_port
from support.prometheus import scrape
from support.server import ROOT, start_nsqd
from support.waiting import eventually, wait_until
from support.web import get, post, request, stats, topic_stats
from support.wire import Client, encode_command

SECONDS_MAX = 50


@pytest.fixture(scope="module")
def authd():
    with AuthServer() as server:
        yield server


@pytest.fixture(scope="module")
def broker(authd, tmp_path_factory):
    folder = tmp_path_factory.mktemp("auth")
    flags = [f"--auth-http-address={authd.address}", "--http-auth-required"]
    flags += ["--http-drain", "--max-auth-failures=0"]
    # Longer than a test: what is shut in behind a Gate waits for it on a slow machine, too.
    flags.append(f"--http-client-request-timeout={SECONDS_MAX}s")
    with start_nsqd("nsqfast", folder, *flags) as server:
        yield server


@pytest.fixture
def secret(authd, request):
    """Named after the test."""
    name = "secret-" + request.node.name
    authd.answers[name] = grant(permit())
    return name


@pytest.fixture
def topic(request):
    return "".join(char if char.isalnum() else "-" for char in request.node.name)[:60]


@pytest.fixture
def client(broker):
    with Client(broker.tcp) as client:
        yield client


def test_a_server_that_is_down_at_the_start(authd, secret, tmp_path):
    """The broker starts and says so once for each; what it says of clients holds until the server is there."""
    port = hold_port()
    down = f"http://{secret}@127.0.0.1:{port}/{secret}"
    flags = [f"--auth-http-address={down}", f"--auth-http-address={authd.address}"]
    with start_nsqd("nsqfast", tmp_path, *flags[:1]) as server:
        server.wait_for_line(
            f" WARNING: AUTH: cannot reach http://127.0.0.1:{port} - connection refused: until one of "
            "--auth-http-address answers, clients get E_AUTH_FAILED and are disconnected"
        )
        assert sum("cannot reach" in line for line in server.lines) == 1
        assert secret not in server.stderr
        with Client(server.tcp) as client:
            client.identify()
            client.send(encode_command("AUTH", body=secret.encode()))
            assert client.read_error() == b"E_AUTH_FAILED AUTH failed"
            assert client.read_to_end() == b""
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        server.wait_for_line(f"cannot reach http://127.0.0.1:{port} - ")
        with Client(server.tcp) as client:
            client.send(encode_command("AUTH", body=secret.encode()))
            assert client.read_response().startswith(b"{")
        assert authd.address not in server.stderr


def test_pipelined_behind_a_slow_server(broker, authd, client, secret, topic):
    gate = authd.answers[secret] = Gate(grant(permit()))
    publishes = b"".join(encode_command("PUB", topic, body=b"%d" % n) for n in range(1000))
    client.send(encode_command("AUTH", body=secret.encode()))
    client.send(encode_command("SUB", topic, "c") + b"RDY 1000\n" + publishes)
    authd.wait_for(secret, 1)
    with Client(broker.tcp) as other:
        other.send(b"NOP\nASDF\n")
        assert other.read_error() == b"E_INVALID invalid command ASDF"
    assert topic_stats(broker.http, topic) is None
    gate.open()
    assert client.read_response().startswith(b"{")
    assert [client.read_response() for _ in range(1001)] == [b"OK"] * 1001
    messages = client.read_messages(1000)
    assert [message.body for message in messages] == [b"%d" % n for n in range(1000)]


@pytest.mark.slow
def test_who_floods_while_it_is_held(broker, authd, secret, topic):
    """It is not read from: what it sends stays with it."""
    gate = authd.answers[secret] = Gate(grant(permit()))
    with Client(broker.tcp, seconds_max=20) as flood:
        before = broker.resident_bytes()
        flood.send(encode_command("AUTH", body=secret.encode()))
        authd.wait_for(secret, 1)
        one = encode_command("PUB", topic, body=bytes(100_000))
        flood.socket.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 1 << 30:
                sent += flood.socket.send((one * 10)[sent % len(one) :])
        assert sent < 32 << 20
        assert broker.resident_bytes() - before < 8 << 20
        gate.open()
        flood.socket.settimeout(20)
        assert flood.read_response().startswith(b"{")
        for _ in range(sent // len(one)):
            assert flood.read_response() == b"OK"


def test_who_leaves_is_forgotten(broker, authd, secret):
    gate = authd.answers[secret] = Gate(grant(permit()))
    with Client(broker.tcp) as client:
        address = "{}:{}".format(*client.socket.getsockname())
        client.send(encode_command("AUTH", body=secret.encode()))
        authd.wait_for(secret, 1)
        # A reset: nobody is left who could be answered.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    broker.wait_for_line(f"PROTOCOL(V2): [{address}] exiting ioloop")
    gate.open()


def test_a_server_that_dies_meanwhile(tmp_path):
    with AuthServer() as authd:
        authd.answers["s"] = hang_up
        flag = f"--auth-http-address={authd.address}"
        server = start_nsqd("nsqfast", tmp_path, flag)
        with server, Client(server.tcp) as client:
            client.command("AUTH", body=b"s")
            assert client.read_error() == b"E_AUTH_FAILED AUTH failed"
            assert client.read_to_end() == b""
            authd.close()
            with Client(server.tcp) as late:
                late.command("AUTH", body=b"s")
                assert late.read_error() == b"E_AUTH_FAILED AUTH failed"


def hang_up(handler):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_many_at_once(broker, authd, secret):
    """They wait for places, and connections to the server are used again."""
    count = 600
    gate = authd.answers[secret] = Gate(grant(permit(), identity="many"))
    before = authd.connections
    clients = [Client(broker.tcp, seconds_max=SECONDS_MAX) for _ in range(count)]
    for client in clients:
        client.command("AUTH", body=secret.encode())
    authd.wait_for(secret, QUERIES_MAX)
    assert [get(broker.http, "/ping").status for _ in range(20)] == [200] * 20
    assert len(authd.asked(secret)) == QUERIES_MAX
    gate.open()
    for client in clients:
        assert client.read_response().startswith(b'{"identity":"many"')
        client.close()
    assert len(authd.asked(secret)) == count
    assert authd.connections - before <= QUERIES_MAX


def endless(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(1000):
        handler.wfile.write(b" " * 1_000_000)


def huge_head(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(100_000):
        handler.wfile.write(b"X-%d: %b\r\n" % (number, b"y" * 1000))


def no_http(handler):
    handler.wfile.write(b"+PONG\r\n\r\n" * 1000)
    hang_up(handler)


def packed(handler):
    """Asked for nothing of the kind."""
    reply = Reply(b"\x1f\x8b garbage", headers={"Content-Encoding": "gzip"})
    send(handler, reply)


@pytest.mark.slow
@pytest.mark.parametrize("answer", [endless, huge_head, no_http, packed])
def test_strange_servers(broker, authd, client, secret, answer):
    authd.answers[secret] = answer
    before = broker.resident_bytes()
    client.command("AUTH", body=secret.encode())
    assert client.read_error() == b"E_AUTH_FAILED AUTH failed"
    assert broker.resident_bytes() - before < 16 << 20
    assert "Traceback" not in broker.stderr


def test_post(authd, tmp_path):
    flags = [f"--auth-http-address={authd.address}", "--auth-http-request-method=post"]
    secret = 'p&<"\u00fc'
    authd.answers[secret] = grant(permit())
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        assert client.ask("AUTH", body=secret.encode()).startswith(b"{")
        with Client(server.tcp) as odd:
            odd.command("AUTH", body=b"a\xff\xfeb")
            odd.read_error()
    first, second = authd.questions[-2:]
    assert (first.method, first.target) == ("POST", "/auth")
    assert first.body == (
        b'{"common_name":[""],"remote_ip":["127.0.0.1"],"secret":["p\\u0026\\u003c\\"\xc3\xbc"],"tls":["false"]}'
    )
    assert first.headers["content-type"] == "application/json"
    assert first.headers["accept"] == "application/vnd.nsq; version=1.0"
    assert json.loads(second.body)["secret"] == ["a\ufffd\ufffdb"]


def test_an_address_that_guesses_is_not_asked_for(authd, secret, tmp_path):
    """Neither over TCP nor over HTTP; who was known keeps on, whoever else sends from there."""
    flags = [f"--auth-http-address={authd.address}", "--http-auth-required"]
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        assert ask(server, "POST", "/topic/create?topic=t", secret).status == 200
        before = len(authd.questions)
        for number in range(15):
            if number % 2:
                with Client(server.tcp) as client:
                    client.command("AUTH", body=b"guess %d" % number)
                    assert client.read_error() == b"E_AUTH_FAILED AUTH failed"
            else:
                answer = ask(server, "POST", "/topic/create?topic=t", f"guess-{number}")
                assert answer.status == 401
        assert before + 10 <= len(authd.questions) < before + 15
        server.wait_for_line("--max-auth-failures")
        assert scrape(server.http).value("nsq_refused_total", reason="wrong_secrets") > 0
        with Client(server.tcp) as client:
            client.command("AUTH", body=secret.encode())
            assert b"permission_count" in client.read_response()


def test_unix_socket(authd, tmp_path):
    secret = "from-a-unix-socket"
    path = tmp_path / "nsqd.sock"
    authd.answers[secret] = grant(permit())
    program = ["-m", "nsqfast.nsqd.main", f"--data-path={tmp_path}", f"--tcp-address={path}"]
    program += ["--http-address=", f"--auth-http-address={authd.address}"]
    process = subprocess.Popen([sys.executable, *program], stderr=subprocess.PIPE, cwd=ROOT)
    try:
        while b"TCP: listening" not in process.stderr.readline():
            assert process.poll() is None
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(SECONDS_MAX)
            peer.connect(str(path))
            peer.sendall(b"  V2" + encode_command("AUTH", body=secret.encode()))
            assert b"permission_count" in peer.recv(1000)
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)
    [asked] = authd.asked(secret)
    assert "remote_ip=&" in asked.target


# ---- the operator's side


def run(*arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS_MAX, check=False
    )


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--http-auth-required"], "--http-auth-required needs an auth server"),
        (
            ["--auth-http-address=x:1", "--auth-http-request-method=put"],
            "--auth-http-request-method must be post or get",
        ),
        (
            ["--auth-http-address=x:1", "--tls-root-ca-file=/no/such/file"],
            "failed to build client TLS config - open /no/such/file: no such file or directory",
        ),
        (
            ["--auth-http-address=x:1", f"--tls-root-ca-file={__file__}"],
            "failed to build client TLS config - ",
        ),
    ],
)
def test_refused_at_start(tmp_path, flags, text):
    program = ["-m", "nsqfast.nsqd.main", f"--data-path={tmp_path}", *flags]
    done = run(*program)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert f"FATAL: failed to instantiate nsqd - {text}" in line
    assert "Traceback" not in done.stderr


def test_nothing_is_imported_for_it_without_auth_servers():
    program = "import sys, nsqfast.nsqd.server, nsqfast.nsqd.http_api\nprint(*sys.modules)"
    done = run("-c", program)
    assert not {"aiohttp", "re2", "nsqfast.nsqd.auth"} & set(done.stdout.split())


def test_secrets_stay_out_of_the_log(authd, tmp_path):
    """Whatever goes wrong. Of an address its password, path and query stay out, too."""
    word = "swordfish"
    authd.answers[word] = Reply(b"", 302, {"Location": f"http://[/{word}"})
    port = hold_port()
    addresses = [
        authd.address,
        f"http://{authd.address}/else?{word}",
        f"http://{word}:{word}@127.0.0.1:{port}/{word}",
        f"http://{word}@127.0.0.1:{port}?{word}",
        "http://127.0.0.1:99999",
        "gopher://x",
    ]
    flags = [f"--auth-http-address={address}" for address in addresses]
    flags += ["--http-auth-required", "--log-level=debug"]
    answers = [
        Reply(word.encode()),
        Reply(b"", 302, {"Location": f"http://[/{word}"}),
        Reply(b"", 302, {"Location": f"ftp://{word}/"}),
        Reply(b"", 302, {"Location": f"/?secret={word}"}),
        Reply(b"", 302, {"Location": f"http://127.0.0.1:1/{word}"}),
        Reply(json.dumps({"https_port": 1, "x": word}).encode(), 403),
        grant(permit(f"({word}")),
        grant(permit(permissions=word)),
        no_http,
        hang_up,
    ]
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        server.wait_for_line("AUTH: cannot reach http://127.0.0.1:99999 - ")
        for answer in answers:
            authd.answers[word] = answer
            with Client(server.tcp) as client:
                client.identify(client_id="x")
                client.command("AUTH", body=word.encode())
                assert client.read_error() == b"E_AUTH_FAILED AUTH failed"
            headers = {"Authorization": f"Bearer {word}"}
            assert request(server.http, "POST", "/pub?topic=t", b"x", headers).status in (401, 503)
        authd.answers[word] = grant(permit(), identity=word)
        headers = {"Authorization": f"Bearer {word}"}
        create = partial(request, server.http, "POST", "/topic/create?topic=t", b"", headers)
        eventually(lambda: create().status == 200)
        log = server.stderr
    assert "failed to auth against" in log
    assert "Traceback" not in log
    assert "ERROR: unexpected" not in log
    assert word not in log


# ---- HTTP


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def ask(broker, method, target, secret, body=b""):
    return request(broker.http, method, target, body, bearer(secret) if secret else None)


OPEN = [
    ("GET", "/ping"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("GET", "/drain"),
    ("GET", "/info"),
    ("GET", "/stats"),
    ("GET", "/stats?format=json"),
]
OPEN += [("GET", "/metrics")]
ON_TOPIC = ["/pub?topic={}", "/mpub?topic={}"]
ON_TOPIC += [f"/topic/{verb}?topic={{}}" for verb in "create pause unpause empty delete".split()]
ON_CHANNEL = [
    f"/channel/{verb}?topic={{}}&channel=c" for verb in "create pause unpause empty delete".split()
]
ON_ALL = [
    ("POST", "/drain/cancel"),
    ("GET", "/config/log_level"),
    ("PUT", "/config/log_level"),
    ("GET", "/debug/pprof/"),
    ("GET", "/debug/pprof/cmdline"),
    ("GET", "/debug/pprof/goroutine"),
    ("GET", "/debug/pprof/heap"),
    ("PUT", "/debug/setblockrate?rate=0"),
    ("POST", "/debug/freememory"),
]
ALL = OPEN + ON_ALL + [("POST", target.format("t")) for target in ON_TOPIC + ON_CHANNEL]


def test_nothing_else_is_open(tmp_path):
    """A new endpoint wants a secret, or stands in OPEN."""
    options = Options(data_path=str(tmp_path))
    lookup = SimpleNamespace(configure=None)
    registry = Registry(options)
    drain = Drain(registry, lookup)
    server = SimpleNamespace(registry=registry, options=options, lookup=lookup, drain=drain)
    router = _routes(server, HttpPublisher(server.registry, options), None).router
    routes = [*router.exact.items(), *router.prefixes.items()]
    found = {
        (method, path) for path, methods in routes for method in methods if not methods[method].need
    }
    assert found == {(method, target.partition("?")[0]) for method, target in OPEN}
    server.registry.topics.close()


@pytest.mark.parametrize(("method", "target"), ALL)
@pytest.mark.parametrize("header", [None, "Basic eDp5", "Bearer", "Bearer ", "Bearer nobody"])
def test_without_a_good_secret(broker, method, target, header):
    headers = {} if header is None else {"Authorization": header}
    answer = request(broker.http, method, target, b"info", headers)
    if (method, target) in OPEN:
        assert answer.status == 200
        return
    assert answer.status == 401
    assert answer.body == b'{"message":"UNAUTHORIZED"}'
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.headers["X-Nsq-Content-Type"] == "nsq; version=1.0"


@pytest.mark.parametrize("target", ON_TOPIC)
def test_a_topic_wants_publish(broker, authd, secret, topic, target):
    assert post(broker.http, f"/topic/create?topic={topic}").status == 401
    authd.answers[secret] = grant(permit(f"^{topic}$", permissions="publish"))
    assert ask(broker, "POST", f"/topic/create?topic={topic}", secret).status == 200
    assert ask(broker, "POST", target.format(topic), secret, b"x").status == 200
    denied = ask(broker, "POST", target.format("other"), secret, b"x")
    assert (denied.status, denied.body) == (403, b'{"message":"FORBIDDEN"}')
    authd.answers[f"{secret}-2"] = grant(permit(f"^{topic}$", permissions="subscribe"))
    assert ask(broker, "POST", target.format(topic), f"{secret}-2", b"x").status == 403
    assert topic_stats(broker.http, "other") is None


@pytest.mark.parametrize("target", ON_CHANNEL)
def test_a_channel_wants_subscribe(broker, authd, secret, topic, target):
    authd.answers["admin"] = grant(permit())
    assert ask(broker, "POST", f"/topic/create?topic={topic}", "admin").status == 200
    mine = f"/channel/create?topic={topic}&channel=c"
    assert ask(broker, "POST", mine, "admin").status == 200
    authd.answers[secret] = grant(permit(f"^{topic}$", ("^c$",), "subscribe"))
    assert ask(broker, "POST", target.format(topic), secret).status == 200
    other = target.format(topic).replace("channel=c", "channel=d")
    assert ask(broker, "POST", other, secret).status == 403
    authd.answers[f"{secret}-2"] = grant(permit(permissions="publish"))
    assert ask(broker, "POST", target.format(topic), f"{secret}-2").status == 403


@pytest.mark.parametrize(("method", "target"), ON_ALL)
def test_the_rest_wants_everything(broker, authd, secret, method, target):
    assert ask(broker, method, target, secret, b"info").status == 200
    authd.answers[f"{secret}-2"] = grant(permit("."), permit(permissions="publish"))
    assert ask(broker, method, target, f"{secret}-2", b"info").status == 403


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("/pub", (400, "MISSING_ARG_TOPIC")),
        ("/pub?topic=", (400, "INVALID_TOPIC")),
        ("/pub?topic=a:b", (400, "INVALID_TOPIC")),
        ("/pub?topic=%ff", (400, "INVALID_TOPIC")),
        ("/pub?topic=a;b", (400, "INVALID_REQUEST")),
        ("/topic/delete?topic=%ff", (404, "TOPIC_NOT_FOUND")),
        ("/channel/create?topic=t", (400, "MISSING_ARG_CHANNEL")),
        ("/channel/create?topic=t&channel=", (400, "INVALID_ARG_CHANNEL")),
        ("/pub?topic=other&topic=^mine$", (403, "FORBIDDEN")),
        ("/channel/create?topic=other&channel=c", (403, "FORBIDDEN")),
        ("/nothing", (404, "NOT_FOUND")),
    ],
)
def test_errors_keep_their_order(broker, authd, secret, target, error):
    authd.answers[secret] = grant(permit("^mine$"))
    answer = ask(broker, "POST", target, secret, b"x")
    assert (answer.status, answer.json()["message"]) == error


def test_scheme_in_any_case(broker, secret, topic):
    headers = {"authorization": f"bEARER   {secret}"}
    assert request(broker.http, "POST", f"/pub?topic={topic}", b"x", headers).status == 200


def test_question_over_http(broker, authd, secret, topic):
    ask(broker, "POST", f"/pub?topic={topic}", secret, b"x")
    ask(broker, "POST", f"/mpub?topic={topic}", secret, b"x")
    [asked] = authd.asked(secret)
    assert "remote_ip=127.0.0.1&" in asked.target
    assert asked.target.endswith("&tls=false")


def test_one_question_for_many(broker, authd, secret, topic):
    """Requests with one secret wait for one answer, and stay in order."""
    gate = authd.answers[secret] = Gate(grant(permit()))
    head = (
        f"POST /pub?topic={topic} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"
    )
    head += "Content-Length: 4\r\n\r\n"
    bodies = [[b"%d %02d" % (client, number) for number in range(20)] for client in range(5)]
    clients = [
        Client(broker.http, b"".join(head.encode() + body for body in mine)) for mine in bodies
    ]
    authd.wait_for(secret, 1)
    gate.open()
    for client in clients:
        answers = b""
        while answers.count(b"\r\n\r\nOK") < 20:
            answers += client.read_exactly(1)
        client.close()
    assert len(authd.asked(secret)) == 1
    assert topic_stats(broker.http, topic)["depth"] == 100
    with Client(broker.tcp) as consumer:
        consumer.ask("AUTH", body=secret.encode())
        consumer.sub(topic, "c", 100)
        got = [message.body for message in consumer.read_messages(100)]
    for number, mine in enumerate(bodies):
        assert [body for body in got if body.startswith(b"%d " % number)] == mine


def test_one_question_although_its_answer_is_just_there():
    """A request that comes between the end of a query and the note of its answer does not ask again."""
    asked = []
    message = SimpleNamespace(
        headers={b"authorization": b"Bearer s"}, remote="127.0.0.1:1", query=b"topic=t"
    )

    async def run():
        loop = asyncio.get_running_loop()
        gate = loop.create_future()

        async def query(*question):
            asked.append(question)
            return await gate

        auth = HttpAuth(SimpleNamespace(query=query), is_tls=False)
        first = auth.check(message, "topic")
        while not asked:
            await asyncio.sleep(0)
        gate.set_result(read_grant(json.dumps({"ttl": 60, "authorizations": [permit()]}).encode()))
        second = loop.create_future()
        loop.call_soon(lambda: second.set_result(auth.check(message, "topic")))
        assert await first is None
        assert await (await second) is None

    asyncio.run(run())
    assert len(asked) == 1


@pytest.mark.slow
def test_a_grant_over_http_runs_out(broker, authd, secret, topic):
    authd.answers[secret] = grant(permit(), ttl=1)
    assert ask(broker, "POST", f"/pub?topic={topic}", secret, b"x").status == 200
    authd.answers[secret] = grant(ttl=1)

    def refused():
        answer = ask(broker, "POST", f"/pub?topic={topic}", secret, b"x")
        assert answer.status != 200 or len(authd.asked(secret)) == 1
        return answer.status != 200 and answer

    assert wait_until(refused).status == 401


def test_no_auth_server_to_ask(broker, authd, secret, topic):
    authd.answers[secret] = Reply(b"", 500)
    answer = ask(broker, "POST", f"/pub?topic={topic}", secret, b"x")
    assert (answer.status, answer.body) == (503, b'{"message":"AUTH_FAILED"}')
    authd.answers[secret] = grant(permit())
    assert ask(broker, "POST", f"/pub?topic={topic}", secret, b"x").status == 200


def test_over_https(authd, secret, tmp_path):
    certificates = Certificates(tmp_path)
    flags = [*certificates.flags(), f"--auth-http-address={authd.address}", "--http-auth-required"]
    listeners = ("TCP", "HTTP", "HTTPS")
    with start_nsqd("nsqfast", tmp_path, *flags, listeners=listeners) as server:
        connect = partial(HTTPSConnection, context=certificates.client_context())
        answers = [
            request(server.https, "POST", "/pub?topic=t", b"x", headers, connect)
            for headers in ({}, bearer(secret))
        ]
    assert [answer.status for answer in answers] == [401, 200]
    [asked] = authd.asked(secret)
    assert asked.target.endswith("&tls=true")


def test_a_stop_while_questions_are_open(authd, tmp_path):
    gate = authd.answers["stop"] = Gate(grant(permit()))
    flags = [f"--auth-http-address={authd.address}", "--http-auth-required"]
    head = b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer stop\r\n"
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        peers = [Client(server.tcp), Client(server.http, head + b"Content-Length: 1\r\n\r\nx")]
        peers[0].command("AUTH", body=b"stop")
        authd.wait_for("stop", 2)
        server.stop()
        assert "unexpected" not in server.stderr
        assert "Traceback" not in server.stderr
        for peer in peers:
            peer.read_to_end()
            peer.close()
    gate.open()


def test_example_server(tmp_path):
    secrets = ROOT / "examples" / "auth_secrets.toml"
    program = [sys.executable, "-u", str(ROOT / "examples" / "auth_server.py"), str(secrets)]
    process = subprocess.Popen([*program, "127.0.0.1", "0"], stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().split("=")[-1].strip()
        with start_nsqd("nsqfast", tmp_path, f"--auth-http-address={address}") as server:
            check_example(server)
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


def check_example(server):
    with Client(server.tcp) as client, Client(server.tcp) as consumer:
        answer = client.ask("AUTH", body=b"billing-secret")
        assert json.loads(answer)["identity"] == "billing"
        client.pub("invoices", b"x")
        [found] = stats(server.http)["producers"]
        assert found["auth_identity"] == "billing"
        client.command("PUB", "payments", body=b"x")
        assert client.read_error().startswith(b"E_UNAUTHORIZED")
        consumer.ask("AUTH", body=b"billing-secret")
        consumer.sub("payments", "billing")
    with Client(server.tcp) as client:
        client.command("AUTH", body=b"nobody")
        assert client.read_error() == b"E_AUTH_FAILED AUTH failed"


@pytest.mark.parametrize("answer", [grant(), grant(permit("^other$"))])
def test_a_withdrawn_grant_ends_its_subscription(broker, authd, secret, topic, answer):
    """Go's nsqd asks at the next command, and a consumer that waits sends none."""
    authd.answers[secret] = grant(permit(), ttl=1)
    with Client(broker.tcp) as client:
        client.ask("AUTH", body=secret.encode())
        client.sub(topic, "c", 1)
        authd.answers[secret] = answer
        assert client.read_error().startswith(b"E_UNAUTHORIZED ")
        assert client.read_to_end() == b""
