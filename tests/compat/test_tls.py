"""TLS on TCP and HTTPS: the same conversations with nsqfast and with Go."""

import http.client
import json
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.certificates import TlsSocket
from support.packed import change_over
from support.server import go_program, start_nsqd
from support.web import get, request, topic_stats
from support.wire import ERROR, HEARTBEAT, RESPONSE, Client, encode_command, encode_frame

SECONDS_MAX = 50
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.fixture(scope="module")
def brokers(implementation, certificates, tmp_path_factory):
    """One running broker for each set of flags."""
    running = {}

    def start(*flags):
        if flags not in running:
            folder = tmp_path_factory.mktemp(implementation)
            running[flags] = start_nsqd(
                implementation,
                folder,
                *certificates.flags(),
                *flags,
                listeners=("TCP", "HTTP", "HTTPS"),
            )
        return running[flags]

    yield start
    for server in running.values():
        server.stop()


@pytest.fixture
def broker(brokers):
    return brokers()


@pytest.fixture
def dial():
    """Makes clients of any broker; closes them when the test is over."""
    clients = []

    def make(server):
        clients.append(Client(server.tcp))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def ask_for_tls(client, **more):
    fields = {"feature_negotiation": True, "tls_v1": True, **more}
    answer = json.loads(client.ask("IDENTIFY", body=json.dumps(fields).encode()))
    assert answer["tls_v1"] is True
    return answer


def upgrade(client, context, **more):
    """Through the handshake to the OK behind it."""
    answer = ask_for_tls(client, **more)
    client.socket = TlsSocket(client.socket, context, client.take_buffered())
    assert client.read_response() == b"OK"
    return answer


@pytest.mark.parametrize("version", [V12, V13])
@pytest.mark.parametrize("inner", [None, "snappy", "deflate"])
def test_publish_and_consume(client, topic, certificates, version, inner):
    more = {inner: True} if inner else {}
    answer = upgrade(client, certificates.client_context(version=version), **more)
    assert (answer["snappy"], answer["deflate"]) == (inner == "snappy", inner == "deflate")
    if inner:
        change_over(client, inner)
    bodies = [b"%d" % number * 50 for number in range(300)] + [bytes(200_000)]
    client.mpub(topic, bodies)
    client.sub(topic, "c", 500)
    messages = client.read_messages(len(bodies))
    assert sorted(message.body for message in messages) == sorted(bodies)
    for message in messages:
        client.command("FIN", message.id)
    client.barrier()


def test_stats_tell(client, broker, topic, certificates):
    context = certificates.client_context(version=V12)
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    upgrade(client, context)
    client.sub(topic, "c", 1)
    [found] = topic_stats(broker.http, topic)["channels"]["c"]["clients"]
    assert {key: value for key, value in found.items() if key.startswith("tls")} == {
        "tls": True,
        "tls_cipher_suite": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "tls_version": "TLS1.2",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": True,
    }


def test_stats_of_the_newest_version(client, broker, topic, certificates, implementation):
    upgrade(client, certificates.client_context(version=V13))
    client.sub(topic, "c", 1)
    [found] = topic_stats(broker.http, topic)["channels"]["c"]["clients"]
    assert found["tls_version"] == "TLS1.3"
    # Go's nsqd has no name for the suites of TLS 1.3.
    assert found["tls_cipher_suite"].startswith("TLS_" if implementation == "nsqfast" else "Unk")


@pytest.mark.parametrize("asked", [{"tls_v1": True}, {"feature_negotiation": True}])
def test_nobody_is_upgraded_who_did_not_ask(client, asked):
    answer = client.identify(**asked)
    assert answer == b"OK" or answer["tls_v1"] is False
    client.barrier()


def test_what_is_sent_behind_the_question_is_thrown_away(client, certificates):
    body = json.dumps({"feature_negotiation": True, "tls_v1": True}).encode()
    client.send(encode_command("IDENTIFY", body=body) + b"GARBAGE\n" * 3)
    assert json.loads(client.read_response())["tls_v1"] is True
    client.socket = TlsSocket(client.socket, certificates.client_context())
    assert client.read_response() == b"OK"
    client.barrier()


# ---- handshakes that fail


def test_no_handshake_is_answered_in_plain(client):
    ask_for_tls(client)
    client.send(b"GARBAGE, NOT TLS\n" * 3)
    assert client.read_error() == (
        b"E_IDENTIFY_FAILED IDENTIFY failed tls: first record does not look like a TLS handshake"
    )
    assert client.read_to_end() == b""


def test_an_end_in_the_handshake(client):
    ask_for_tls(client)
    client.send(bytes.fromhex("16030100"))
    client.socket.shutdown(1)
    assert client.read_error() == b"E_IDENTIFY_FAILED IDENTIFY failed unexpected EOF"
    assert client.read_to_end() == b""


@pytest.mark.slow
@pytest.mark.parametrize("heartbeat_ms", [1000, -1])
def test_silence_in_the_handshake(client, heartbeat_ms):
    begun = time.monotonic()
    ask_for_tls(client, heartbeat_interval=heartbeat_ms)
    while (frame := client.read_frame()) == (RESPONSE, HEARTBEAT):
        pass  # Go sends them here, too
    kind, error = frame
    assert kind == ERROR
    assert error.startswith(b"E_IDENTIFY_FAILED IDENTIFY failed read tcp 127.0.0.1:")
    assert error.endswith(b": i/o timeout")
    assert time.monotonic() - begun > 4.9
    # Go may have a last heartbeat for it even now.
    assert client.read_to_end() in {b"", encode_frame(RESPONSE, HEARTBEAT)}


def test_a_client_that_does_not_trust_the_broker(client, broker, certificates):
    ask_for_tls(client)
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(client.socket, server_hostname="127.0.0.1")
    broker.wait_for_line("E_IDENTIFY_FAILED IDENTIFY failed")


# ---- certificates of clients

ALERT_WITHOUT = {V12: "HANDSHAKE_FAILURE", V13: "CERTIFICATE_REQUIRED"}


@pytest.mark.parametrize("version", [V12, V13])
@pytest.mark.parametrize("shown", [None, "client", "stranger"])
@pytest.mark.parametrize("policy", ["require", "require-verify", "gladly"])
def test_policies(brokers, dial, certificates, policy, shown, version):
    authority = f"--tls-root-ca-file={certificates.path('ca.crt')}"
    server = brokers(f"--tls-client-auth-policy={policy}", authority)
    client = dial(server)
    context = certificates.client_context(shown, version)
    if policy == "gladly" or shown == "client" or (policy, shown) == ("require", "stranger"):
        upgrade(client, context)
        client.barrier()
        return
    alert = ALERT_WITHOUT[version] if shown is None else "UNKNOWN_CA"
    ask_for_tls(client)
    with pytest.raises(ssl.SSLError, match=alert):
        TlsSocket(client.socket, context).recv(1)


@pytest.mark.parametrize("shown", [None, "client", "stranger"])
@pytest.mark.parametrize("policy", ["require", "require-verify"])
def test_policies_on_https(brokers, certificates, policy, shown):
    authority = f"--tls-root-ca-file={certificates.path('ca.crt')}"
    server = brokers(f"--tls-client-auth-policy={policy}", authority)
    context = certificates.client_context(shown)
    if shown == "client" or (policy, shown) == ("require", "stranger"):
        assert https(server, context, "GET", "/ping").body == b"OK"
        return
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED" if not shown else "UNKNOWN_CA"):
        https(server, context, "GET", "/ping")


# ---- TLS required

NEEDS_TLS = ["--tls-required=true", "--tls-required=tcp-https", "--tls-client-auth-policy=no"]


@pytest.mark.parametrize("flag", NEEDS_TLS)
@pytest.mark.parametrize("line", [b"", b"ASDF", b"NOP x", b"PUB t", b"AUTH", b"SUB t c", b"FIN x"])
def test_nothing_before_tls(brokers, dial, flag, line):
    client = dial(brokers(flag))
    assert client.identify() == b"OK"
    client.send(line + b"\n")
    name = line.split(b" ")[0]
    assert client.read_error() == b"E_INVALID cannot %b in current state (TLS required)" % name
    assert client.read_to_end() == b""


@pytest.mark.parametrize("flag", NEEDS_TLS)
def test_everything_after_it(brokers, dial, certificates, flag, topic):
    client = dial(brokers(flag))
    upgrade(client, certificates.client_context())
    client.pub(topic, b"hello")


@pytest.mark.parametrize("path", ["/ping", "/stats", "/pub?topic=t", "/nowhere"])
def test_plain_http_is_refused(brokers, path):
    server = brokers("--tls-required=true")
    answer = get(server.http, path)
    assert answer.status == 403
    assert answer.body == b'{"message": "TLS_REQUIRED", "https_port": %d}' % server.https[1]


def test_plain_http_may_stay(brokers):
    assert get(brokers("--tls-required=tcp-https").http, "/ping").body == b"OK"


# ---- HTTPS


def https(server, context, method, target, body=None):
    def connect(host, port, timeout):
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)

    return request(server.https, method, target, body, connect=connect)


def test_https(broker, certificates, topic):
    context = certificates.client_context()
    assert https(broker, context, "POST", f"/pub?topic={topic}", b"hello").body == b"OK"
    large = b"\n".join([b"x" * 1000] * 1000)
    assert https(broker, context, "POST", f"/mpub?topic={topic}", large).body == b"OK"
    assert topic_stats(broker.http, topic)["message_count"] == 1001
    assert https(broker, context, "GET", "/nowhere").status == 404


# ---- versions


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, V12, V13])
@pytest.mark.parametrize("least", ["tls1.0", "TLS1.1", "tls1.2", "tls1.3"])
def test_versions(brokers, dial, certificates, least, version):
    server = brokers(f"--tls-min-version={least}")
    client = dial(server)
    context = certificates.client_context(version=version)
    if version.value >= 0x301 + int(least[-1]):
        upgrade(client, context)
        client.barrier()
        return
    ask_for_tls(client)
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        TlsSocket(client.socket, context).recv(1)


# ---- programs of others


@pytest.mark.go
@pytest.mark.slow
@pytest.mark.parametrize("inner", [None, "snappy", "deflate"])
def test_go_tools(brokers, certificates, topic, inner):
    authority = f"--tls-root-ca-file={certificates.path('ca.crt')}"
    server = brokers("--tls-client-auth-policy=require-verify", authority)
    lines = [b"line %d" % number for number in range(500)]
    options = [
        "tls_v1,true",
        f"tls_root_ca_file,{certificates.path('ca.crt')}",
        f"tls_cert,{certificates.path('client.crt')}",
        f"tls_key,{certificates.path('client.key')}",
    ]
    if inner:
        options.append(f"{inner},true")
    flags = [f"--topic={topic}", f"--nsqd-tcp-address=127.0.0.1:{server.tcp[1]}"]
    subprocess.run(
        [go_program("to_nsq"), *flags, *[f"--producer-opt={option}" for option in options]],
        input=b"\n".join(lines) + b"\n",
        check=True,
        timeout=SECONDS_MAX,
        capture_output=True,
    )
    tail = [go_program("nsq_tail"), *flags, "-n=500", "--max-in-flight=100"]
    tail += [f"--consumer-opt={option}" for option in options]
    done = subprocess.run(tail, check=True, timeout=SECONDS_MAX, capture_output=True)
    assert sorted(done.stdout.split(b"\n")[:500]) == sorted(lines)


@pytest.mark.slow
def test_pynsq(broker, certificates, topic):
    tls = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": certificates.path("ca.crt")}
    options = json.dumps({"tls_v1": True, "tls_options": tls})
    script = Path(__file__).parent / "scripts" / "pynsq_roundtrip.py"
    address = f"127.0.0.1:{broker.tcp[1]}"
    command = [sys.executable, str(script), address, topic, "500", options]
    done = subprocess.run(command, check=True, timeout=SECONDS_MAX, capture_output=True)
    assert done.stdout == b"all arrived\n", done.stderr.decode()
    assert topic_stats(broker.http, topic)["channels"]["pynsq"]["depth"] == 0
