"""AUTH over TCP (spec nsqd-tcp §11): the same with nsqfast and with Go, and what both ask an auth server."""

import itertools
import json
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from support.authd import AuthServer, Reply, grant, permit
from support.certificates import TlsSocket
from support.server import go_program, start_nsqd
from support.waiting import wait_until
from support.web import get, post, stats, topic_stats
from support.wire import Client, encode_command, encode_messages

SECONDS_MAX = 50
NUMBERS = itertools.count(1)
SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(scope="module")
def authd():
    with AuthServer() as server:
        yield server


@pytest.fixture(scope="module")
def broker(implementation, authd, tmp_path_factory):
    folder = tmp_path_factory.mktemp(implementation)
    flags = [f"--auth-http-address={authd.address}", "--http-client-request-timeout=1s"]
    if implementation == "nsqfast":
        flags.append("--max-auth-failures=0")
    with start_nsqd(implementation, folder, *flags) as server:
        yield server


@pytest.fixture
def secret(authd):
    """One that no other test has, and that may do everything."""
    name = f"secret-{next(NUMBERS)}"
    authd.answers[name] = grant(permit())
    return name


def authenticate(client, secret):
    return json.loads(client.ask("AUTH", body=secret.encode()))


def fatal(client, *command, body=None):
    """The error that a command gets, and the end behind it."""
    client.command(*command, body=body)
    error = client.read_error()
    assert client.read_to_end() == b""
    return error


# ---- AUTH itself


def test_answer(client, authd, secret):
    assert client.identify(feature_negotiation=True)["auth_required"] is True
    authd.answers[secret] = grant(
        permit(), permit("x"), identity="j<o>e ü", identity_url="http://x/?a=1&b"
    )
    answer = client.ask("AUTH", body=secret.encode())
    assert answer.decode() == (
        '{"identity":"j\\u003co\\u003ee ü","identity_url":"http://x/?a=1\\u0026b","permission_count":2}'
    )


def test_question(client, authd, secret):
    authenticate(client, secret)
    [asked] = authd.asked(secret)
    assert asked.method == "GET"
    assert asked.target == f"/auth?common_name=&remote_ip=127.0.0.1&secret={secret}&tls=false"
    assert asked.body == b""
    assert asked.headers["accept"] == "application/vnd.nsq; version=1.0"
    assert asked.headers["host"] == authd.address
    assert not asked.headers.keys() & {"content-length", "content-type", "transfer-encoding"}


def test_secret_with_every_byte(client, authd):
    raw = bytes(range(256))
    client.command("AUTH", body=raw)
    client.read_error()
    assert authd.questions[-1].target.partition("&secret=")[2] == f"{quote_plus(raw)}&tls=false"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (b"AUTH x\n\0\0\0\1x", b"E_INVALID AUTH invalid number of parameters"),
        (b"AUTH \n\0\0\0\1x", b"E_INVALID AUTH invalid number of parameters"),
        (b"AUTH\n\0\0\0\0", b"E_BAD_BODY AUTH invalid body size 0"),
        (b"AUTH\n\xff\xff\xff\xff", b"E_BAD_BODY AUTH invalid body size -1"),
        (b"AUTH\n\0\0", b"E_BAD_BODY AUTH failed to read body size"),
        (b"AUTH\n\0\0\0\5abc", b"E_BAD_BODY AUTH failed to read body"),
    ],
)
def test_what_is_no_question(client, command, error):
    client.send(command)
    client.socket.shutdown(socket.SHUT_WR)
    assert client.read_error() == error


def test_twice(client, secret):
    authenticate(client, secret)
    assert fatal(client, "AUTH", body=secret.encode()) == b"E_INVALID AUTH already set"


def test_not_after_sub(client, secret, topic):
    authenticate(client, secret)
    client.sub(topic, "c")
    assert fatal(client, "AUTH", body=b"x") == b"E_INVALID cannot AUTH in current state"


def test_identify_in_between(client, secret, topic):
    authenticate(client, secret)
    client.identify(client_id="x")
    client.pub(topic, b"x")


BAD_ANSWERS = {
    "unknown": Reply(b"{}", 404),
    "forbidden": Reply(b"no", 403),
    "forbidden without a port": Reply(b"{}", 403),
    "broken server": Reply(b"", 500),
    "created": grant(permit())._replace(status=201),
    "empty": Reply(b""),
    "no JSON": Reply(b"hello"),
    "null": Reply(b"null"),
    "a list": Reply(b"[]"),
    "two values": Reply(b'{"ttl":1}{}'),
    "not a number": Reply(b'{"ttl":NaN}'),
    "no ttl": Reply(json.dumps({"authorizations": [permit()]}).encode()),
    "ttl 0": grant(permit(), ttl=0),
    "ttl below 0": grant(permit(), ttl=-1),
    "ttl null": grant(permit(), ttl=None),
    "ttl 1.5": grant(permit(), ttl=1.5),
    "ttl 1.0": grant(permit(), ttl=1.0),
    "ttl as text": grant(permit(), ttl="60"),
    "ttl true": grant(permit(), ttl=True),
    "ttl too large": grant(permit(), ttl=1 << 64),
    "permission": grant(permit(permissions="publish admin")),
    "permission in capitals": grant(permit(permissions="Publish")),
    "one bad of many": grant(permit(), permit(permissions="x")),
    "topic": grant(permit("(")),
    "channel": grant(permit(channels=(".*", "["))),
    "identity": grant(permit(), identity=5),
    "identity url": grant(permit(), identity_url=[]),
    "topic a number": grant({"topic": 1}),
    "channels a text": grant({"channels": ".*"}),
    "permissions a text": grant({"permissions": "publish"}),
    "permission null": grant({"permissions": [None]}),
    "authorizations an object": Reply(b'{"ttl":5,"authorizations":{}}'),
    "authorization a text": Reply(b'{"ttl":5,"authorizations":[".*"]}'),
    "redirected in a circle": Reply(b"", 302, {"Location": "?"}),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_bad_answers(client, authd, secret, name):
    answer = BAD_ANSWERS[name]
    if answer.status == 302:
        answer = answer._replace(headers={"Location": f"/again?secret={secret}"})
    authd.answers[secret] = answer
    assert fatal(client, "AUTH", body=secret.encode()) == b"E_AUTH_FAILED AUTH failed"
    assert len(authd.asked(secret)) == (10 if answer.status == 302 else 1)


@pytest.mark.parametrize(
    "answer",
    [
        grant(),
        Reply(b'{"ttl":5}'),
        Reply(b'{"ttl":5,"authorizations":null,"identity":null}'),
        Reply(b'{"ttl":5,"authorizations":[],"more":[{}]}'),
    ],
)
def test_nobody(client, authd, secret, answer):
    authd.answers[secret] = answer
    error = fatal(client, "AUTH", body=secret.encode())
    assert error == b"E_UNAUTHORIZED AUTH no authorizations found"


@pytest.mark.parametrize(
    "body",
    [
        b'{"TTL":5,"Authorizations":[{"Topic":"","CHANNELS":[null],"permissions":["publish"]}]}',
        b' {"ttl":0,"ttl":5,"Ttl":null,"authorizations":[{"channels":[""],"permissions":["publish"]}]}\n',
        b'{"ttl":5,"identity":"\\ud800","authorizations":[null,{"channels":["","\\ud800"],"permissions":["publish"]}]}',
    ],
)
def test_unusual_answers(client, authd, secret, topic, body):
    authd.answers[secret] = Reply(body, headers={"Content-Type": "text/html"})
    authenticate(client, secret)
    client.pub(topic, b"x")


def test_redirect(client, authd, secret, topic):
    authd.answers[secret] = Reply(b"", 307, {"Location": f"/else?secret={secret}-2"})
    authd.answers[f"{secret}-2"] = grant(permit())
    authenticate(client, secret)
    [second] = authd.asked(f"{secret}-2")
    assert second.headers["accept"] == "application/vnd.nsq; version=1.0"


def trickle(handler):
    """An answer that never ends, a byte at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(300):
        handler.wfile.write(b" ")
        time.sleep(0.01)


def hang_up(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    handler.close_connection = True


def say_nothing(handler):
    handler.rfile.read(1)


@pytest.mark.parametrize("answer", [trickle, hang_up, say_nothing])
@pytest.mark.slow
def test_servers_in_trouble(client, authd, secret, answer):
    authd.answers[secret] = answer
    start = time.monotonic()
    assert fatal(client, "AUTH", body=secret.encode()) == b"E_AUTH_FAILED AUTH failed"
    assert time.monotonic() - start < SECONDS_MAX


# ---- what is checked, and when


COMMANDS = {
    "PUB": b"PUB %s\n\0\0\0\1x",
    "DPUB": b"DPUB %s 10\n\0\0\0\1x",
    "MPUB": b"MPUB %s\n\0\0\0\x09\0\0\0\1\0\0\0\1x",
    "SUB": b"SUB %s c\n",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_auth_comes_first(broker, client, topic, name):
    client.send(COMMANDS[name] % topic.encode())
    assert client.read_error() == f"E_AUTH_FIRST AUTH required before {name}".encode()
    assert topic_stats(broker.http, topic) is None


@pytest.mark.parametrize("name", COMMANDS)
def test_denied(broker, client, authd, secret, topic, name):
    authd.answers[secret] = grant(permit("^other$"))
    authenticate(client, secret)
    client.send(COMMANDS[name] % topic.encode())
    channel = "c" if name == "SUB" else ""
    error = f'E_UNAUTHORIZED AUTH failed for {name} on "{topic}" "{channel}"'
    assert client.read_error() == error.encode()
    assert client.read_to_end() == b""
    assert topic_stats(broker.http, topic) is None


@pytest.mark.parametrize("name", COMMANDS)
def test_permitted(client, secret, topic, name):
    authenticate(client, secret)
    for _ in range(1 if name == "SUB" else 3):
        client.send(COMMANDS[name] % topic.encode())
        assert client.read_response() == b"OK"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (b"PUB\n", b"E_INVALID PUB insufficient number of parameters"),
        (b"PUB a:b\n", b'E_BAD_TOPIC PUB topic name "a:b" is not valid'),
        (b"PUB a\n\0\0\0\0", b"E_BAD_MESSAGE PUB invalid message body size 0"),
        (b"PUB a\n\0\0\0\2x", b"E_BAD_MESSAGE PUB failed to read message body"),
        (b"DPUB a x\n\0\0\0\1x", b"E_INVALID DPUB could not parse timeout x"),
        (b"DPUB a 1\n\0\0\0\0", b"E_BAD_MESSAGE DPUB invalid message body size 0"),
        (b"MPUB a:b\n", b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "a:b" is not valid'),
        (b"MPUB a\n", b"E_AUTH_FIRST AUTH required before MPUB"),
        (b"SUB a\n", b"E_INVALID SUB insufficient number of parameters"),
        (b"SUB a b:c\n", b'E_BAD_CHANNEL SUB channel name "b:c" is not valid'),
        (b"NOP\nRDY 1\n", b"E_INVALID cannot RDY in current state"),
    ],
)
def test_order_of_checks(client, command, error):
    client.send(command)
    client.socket.shutdown(socket.SHUT_WR)
    assert client.read_error() == error


RULES = [
    # topic, channels, permissions, publishing to "pubany", subscribing to "pubany" "c"
    (".*", [".*"], "publish subscribe", True, True),
    (".*", [".*"], "publish", True, False),
    (".*", [".*"], "subscribe", False, True),
    (".*", [".*"], "", False, False),
    (".*", [], "publish subscribe", False, False),
    ("", [""], "publish subscribe", True, True),
    ("pub", [".*"], "publish subscribe", True, True),
    ("^any", [".*"], "publish subscribe", False, False),
    ("any$", [".*"], "publish subscribe", True, True),
    ("ANY", [".*"], "publish subscribe", False, False),
    ("(?i)ANY", [".*"], "publish subscribe", True, True),
    (".*", ["^c$"], "publish subscribe", False, True),
    (".*", ["^$"], "publish subscribe", True, False),
    (".*", ["x", "c"], "publish subscribe", False, True),
    (".*", ["x", "(^$|d)"], "publish subscribe", True, False),
    ("^(pub|sub)[[:alpha:]]+$", [r"^\w?$"], "publish subscribe", True, True),
    (r"^\pL{6}$", [".{0,1}"], "publish subscribe", True, True),
    (r"\Apub\Bany\z", [r"(?P<name>.*)"], "publish subscribe", True, True),
    ("(a*)*$", ["(?s).*"], "publish subscribe", True, True),
    ("^#", [".*"], "publish subscribe", False, False),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rules(connect, authd, secret, rule):
    topic, channels, permissions, may_publish, may_subscribe = rule
    # One entry that allows nothing here stands before it: any one suffices.
    other = permit("^other$")
    authd.answers[secret] = grant(other, permit(topic, tuple(channels), permissions))
    for command, may in ((COMMANDS["PUB"], may_publish), (COMMANDS["SUB"], may_subscribe)):
        client = connect()
        assert authenticate(client, secret)["permission_count"] == 2
        client.send(command % b"pubany")
        frame = client.read_beyond_heartbeats()
        assert (frame.data == b"OK") is may, frame
        assert may or frame.data.startswith(b"E_UNAUTHORIZED")


PATTERNS = {
    **dict.fromkeys(["a{1000}", r"\Q(\E", "(?:x)", "x*?", "[^a-z]", r"\x{41}", r"\p{Greek}", "(?U)a+"], True),
    **dict.fromkeys(["a{1001}", "(?=x)", "(?!x)", r"(x)\1", "x**", "(?<=x)", r"\pX", "[b-a]", "*", r"\8", "x)"], False),
    **dict.fromkeys(["(?<name>x)", "|", "()", "a||b", r"\D\S\W", "(?i:x)", "x{,2}", "(x{100}){10}"], True),
    "(?P<n>a)(?P<n>b)": True,
    **dict.fromkeys(["(x{100}){11}", "(?z)", "\\", r"[\y]"], False),
}  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(client, authd, secret, pattern):
    authd.answers[secret] = grant(permit(pattern))
    client.command("AUTH", body=secret.encode())
    assert client.read_frame().data.startswith(b"{" if PATTERNS[pattern] else b"E_AUTH_FAILED")


# ---- how long


def publish_until(client, authd, secret, topic, count):
    """Until the secret was asked for so often, or is refused; the last answer."""

    def publish():
        client.command("PUB", topic, body=b"x")
        frame = client.read_beyond_heartbeats()
        return frame.data if frame.data != b"OK" or len(authd.asked(secret)) >= count else None

    return wait_until(publish)


@pytest.mark.slow
def test_time_to_live(client, connect, authd, secret, topic):
    """Asked again with the stored secret at the first command behind it; a subscription stays while it may."""
    authd.answers[secret] = authd.answers["of the consumer"] = grant(permit(), ttl=1)
    consumer = connect()
    authenticate(client, secret)
    authenticate(consumer, "of the consumer")
    consumer.sub(topic, "c", 10)
    assert publish_until(client, authd, secret, topic, 3) == b"OK"
    first, _, again = authd.asked(secret)
    assert again == first
    authd.answers[secret] = grant(permit("^other$"), ttl=1)
    error = publish_until(client, authd, secret, topic, 5)
    assert error == f'E_UNAUTHORIZED AUTH failed for PUB on "{topic}" ""'.encode()
    assert len(authd.asked(secret)) == 4
    consumer.fin(consumer.read_message())
    consumer.command("NOP")
    consumer.read_message()


@pytest.mark.slow
@pytest.mark.parametrize("answer", [Reply(b"", 500), grant()])
def test_time_to_live_and_then_nothing(client, authd, secret, topic, answer):
    authd.answers[secret] = grant(permit(), ttl=1)
    authenticate(client, secret)
    authd.answers[secret] = answer
    error = publish_until(client, authd, secret, topic, 3)
    if answer.status == 500:
        assert error == b"E_AUTH_FAILED AUTH failed"
    else:
        assert error == f'E_UNAUTHORIZED AUTH failed for PUB on "{topic}" ""'.encode()


# ---- pipelines, figures, HTTP


def test_commands_behind_auth(broker, client, secret, topic):
    client.send(
        encode_command("AUTH", body=secret.encode())
        + encode_command("SUB", topic, "c")
        + b"RDY 1\n"
        + encode_command("PUB", topic, body=b"1")
        + encode_command("MPUB", topic, body=encode_messages([b"2", b"3"]))
    )
    client.socket.shutdown(socket.SHUT_WR)
    assert json.loads(client.read_response())["permission_count"] == 1
    assert [client.read_response() for _ in range(3)] == [b"OK"] * 3


def test_stats_tell(broker, client, authd, secret, topic):
    def find():
        return topic_stats(broker.http, topic)["channels"]["c"]["clients"][0]

    authd.answers[secret] = grant(permit(), identity="joe", identity_url="http://joe")
    authenticate(client, secret)
    client.sub(topic, "c")
    found = find()
    wanted = {"authed": True, "auth_identity": "joe", "auth_identity_url": "http://joe"}
    assert {key: found[key] for key in wanted} == wanted
    keys = list(found)
    assert keys[keys.index("user_agent") + 1 :][:3] == list(wanted)
    assert b"joe" not in get(broker.http, f"/stats?topic={topic}").body


def test_stats_of_nobody_in_particular(broker, client, secret, topic):
    authenticate(client, secret)
    client.pub(topic, b"x")
    [found] = [
        entry
        for entry in stats(broker.http, topic=topic)["producers"]
        if entry.get("pub_counts") == [{"topic": topic, "count": 1}]
    ]
    assert found["authed"] is True
    assert not found.keys() & {"auth_identity", "auth_identity_url"}


def test_http_is_open(broker, topic):
    assert post(broker.http, f"/pub?topic={topic}", b"x").status == 200


# ---- other addresses


def exchange(implementation, folder, secret, *flags):
    """AUTH on a broker of its own; the answer's first byte tells."""
    with start_nsqd(implementation, folder, *flags) as server, Client(server.tcp) as client:
        client.command("AUTH", body=secret.encode())
        return client.read_frame().data


@pytest.mark.slow
def test_a_server_that_is_gone(implementation, authd, secret, dead, tmp_path):
    flags = [f"--auth-http-address={address}" for address in (dead, authd.address)]
    with start_nsqd(implementation, tmp_path, *flags) as server:
        for _ in range(10):
            with Client(server.tcp) as client:
                authenticate(client, secret)
    assert len(authd.asked(secret)) == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "target"), [("http://{}", "/?"), ("http://{}/a/b", "/a/b?"), ("http://{}/x?y=%41", "/x?y=%41?")]
)  # fmt: skip
def test_urls(implementation, authd, secret, tmp_path, form, target):
    flag = f"--auth-http-address={form.format(authd.address)}"
    # The last form breaks the first key; both send it all the same.
    exchange(implementation, tmp_path, secret, flag)
    query = f"common_name=&remote_ip=127.0.0.1&secret={secret}&tls=false"
    assert authd.asked(secret)[-1].target == target + query


@pytest.mark.slow
@pytest.mark.parametrize("form", ["https", "redirect"])
def test_tls_to_the_server(implementation, authd, certificates, secret, tmp_path, form):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.path("server.crt"), certificates.path("server.key"))
    with AuthServer(context) as secure:
        secure.answers[secret] = grant(permit())
        authd.answers[secret] = Reply(b'{"https_port": %d}' % secure.port, 403)
        url = (
            f"https://{secure.address}/auth" if form == "https" else f"http://{authd.address}/auth"
        )
        flags = [f"--auth-http-address={url}"]
        (tmp_path / "a").mkdir()
        refused = exchange(implementation, tmp_path / "a", secret, *flags)
        assert refused == b"E_AUTH_FAILED AUTH failed"
        assert secure.asked(secret) == []
        flags.append(f"--tls-root-ca-file={certificates.path('ca.crt')}")
        (tmp_path / "b").mkdir()
        assert exchange(implementation, tmp_path / "b", secret, *flags).startswith(b"{")
        [asked] = secure.asked(secret)
        query = f"common_name=&remote_ip=127.0.0.1&secret={secret}&tls=false"
        assert asked.target == f"/auth?{query}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "client"])
def test_clients_under_tls(implementation, authd, certificates, secret, tmp_path, name):
    """The auth server is told, and by which name."""
    flags = [*certificates.flags(), f"--auth-http-address={authd.address}"]
    if name is not None:
        flags.append(f"--tls-root-ca-file={certificates.path('ca.crt')}")
        flags.append("--tls-client-auth-policy=require-verify")
    with start_nsqd(implementation, tmp_path, *flags) as server, Client(server.tcp) as client:
        client.identify(feature_negotiation=True, tls_v1=True)
        context = certificates.client_context(name)
        client.socket = TlsSocket(client.socket, context, client.take_buffered())
        assert client.read_response() == b"OK"
        authenticate(client, secret)
        client.pub("t", b"x")
    [asked] = authd.asked(secret)
    query = f"common_name={'joe' if name else ''}&remote_ip=127.0.0.1&secret={secret}&tls=true"
    assert asked.target == f"/auth?{query}"


# ---- other people's clients


@pytest.mark.go
@pytest.mark.slow
def test_go_tools(broker, secret, topic):
    host, port = broker.tcp
    flags = [f"--topic={topic}", f"--nsqd-tcp-address={host}:{port}"]
    publish = [go_program("to_nsq"), *flags, f"--producer-opt=auth_secret,{secret}"]
    lines = b"".join(b"line %d\n" % number for number in range(100))
    subprocess.run(publish, input=lines, check=True, timeout=SECONDS_MAX, capture_output=True)
    tail = [go_program("nsq_tail"), *flags, "-n=100", "--max-in-flight=10"]
    tail += [f"--consumer-opt=auth_secret,{secret}"]
    done = subprocess.run(tail, check=True, timeout=SECONDS_MAX, capture_output=True)
    assert sorted(done.stdout.splitlines()) == sorted(lines.splitlines())


@pytest.mark.slow
def test_pynsq(broker, secret, topic):
    pytest.importorskip("nsq")
    host, port = broker.tcp
    script = str(SCRIPTS / "pynsq_roundtrip.py")
    command = [sys.executable, script, f"{host}:{port}", topic, "100"]
    command.append(json.dumps({"auth_secret": secret}))
    done = subprocess.run(command, check=True, timeout=SECONDS_MAX, capture_output=True)
    assert done.stdout.strip() == b"all arrived"
