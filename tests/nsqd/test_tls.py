"""TLS beyond what Go's nsqd has: certificates that change, orderly ends, peers that behave badly on HTTPS."""

import http.client
import json
import os
import pty
import signal
import socket
import ssl
import subprocess

import pytest

from support.certificates import Certificates, TlsSocket
from support.prometheus import scrape
from support.server import program, start_nsqd
from support.web import request, topic_stats
from support.wire import Client

SECONDS_MAX = 50
ANY_CERTIFICATE = ["--tls-client-auth-policy=require", "--tls-required=tcp-https"]


@pytest.fixture
def certificates(tmp_path):
    folder = tmp_path / "certificates"
    folder.mkdir()
    return Certificates(folder)


@pytest.fixture
def broker(certificates, tmp_path, request):
    folder = tmp_path / "data"
    folder.mkdir()
    flags = [*certificates.flags(), *getattr(request, "param", [])]
    with start_nsqd("nsqfast", folder, *flags, listeners=("TCP", "HTTP", "HTTPS")) as server:
        yield server


def upgraded(server, context, **more):
    client = Client(server.tcp)
    fields = {"feature_negotiation": True, "tls_v1": True, **more}
    assert json.loads(client.ask("IDENTIFY", body=json.dumps(fields).encode()))["tls_v1"] is True
    client.socket = TlsSocket(client.socket, context, client.take_buffered())
    assert client.read_response() == b"OK"
    return client


def certificate_of(client):
    return client.socket.tls.getpeercert(binary_form=True)


def https_certificate(server, context):
    with socket.create_connection(server.https, SECONDS_MAX) as raw:
        return TlsSocket(raw, context).tls.getpeercert(binary_form=True)


# ---- SIGHUP


def test_new_certificates_without_losing_a_connection(broker, certificates):
    context = certificates.client_context()
    with upgraded(broker, context) as old:
        old.sub("t", "c", 10)
        before = certificate_of(old)
        assert https_certificate(broker, context) == before
        certificates.issue_server("server")
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for_line("SIGHUP: certificates reloaded")
        with upgraded(broker, context) as new:
            after = certificate_of(new)
            assert after != before
            assert https_certificate(broker, context) == after
            new.pub("t", b"through both")
        message = old.read_message()
        assert message.body == b"through both"
        old.fin(message)
        old.barrier()


@pytest.mark.parametrize("damage", ["gone", "nonsense", "of another key"])
def test_certificates_that_are_no_good_change_nothing(broker, certificates, damage):
    context = certificates.client_context()
    path = certificates.path("server.crt")
    if damage == "gone":
        os.unlink(path)
    else:
        source = certificates.path("client.crt") if damage == "of another key" else os.devnull
        with open(source, "rb") as good, open(path, "wb") as bad:
            bad.write(good.read())
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for_line("SIGHUP: certificates stay as they were: failed to build TLS config - ")
    with upgraded(broker, context) as client:
        client.barrier()
    https_certificate(broker, context)


# ---- ends


def test_an_error_is_followed_by_the_end_of_the_stream(broker, certificates):
    with upgraded(broker, certificates.client_context()) as client:
        client.command("ASDF")
        assert client.read_error() == b"E_INVALID invalid command ASDF"
        assert client.read_to_end() == b""
        assert client.socket.ended


@pytest.mark.parametrize("broker", [[], ANY_CERTIFICATE], indirect=True)
def test_a_client_that_ends_its_stream_is_gone(broker, certificates):
    with upgraded(broker, certificates.client_context("client")) as client:
        client.sub("t", "c", 1)
        client.socket.end()
        assert client.read_to_end() == b""
        assert client.socket.ended
    assert topic_stats(broker.http, "t")["channels"]["c"]["client_count"] == 0


def test_what_is_no_tls_any_more_ends_the_connection(broker, certificates):
    with upgraded(broker, certificates.client_context()) as client:
        client.socket.raw.sendall(b"PLAIN " * 100)
        assert client.read_to_end() == b""
    broker.wait_for_line("wrong version number")


def test_half_a_record_then_a_reset(broker, certificates):
    with upgraded(broker, certificates.client_context()) as client:
        client.sub("t", "c", 1)
        raw = client.socket.raw
        raw.sendall(bytes.fromhex("1703030100") + b"x" * 20)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    broker.wait_for_line("exiting ioloop")
    assert topic_stats(broker.http, "t")["channels"]["c"]["client_count"] == 0


@pytest.mark.parametrize("broker", [[*ANY_CERTIFICATE, "--tls-min-version=tls1.0"]], indirect=True)
def test_an_old_version_with_any_certificate(broker, certificates):
    context = certificates.client_context("stranger", ssl.TLSVersion.TLSv1_1)
    with upgraded(broker, context) as client:
        client.barrier()


def test_asked_again_under_tls(broker, certificates):
    fields = {"feature_negotiation": True, "tls_v1": True}
    with upgraded(broker, certificates.client_context()) as client:
        answer = client.identify(**fields)
        assert answer["tls_v1"] is False
        client.barrier()


# ---- HTTPS


def https(server, context, method, target, body=None):
    def connect(host, port, timeout):
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)

    return request(server.https, method, target, body, connect=connect)


def test_a_client_that_takes_https_for_http(broker):
    with socket.create_connection(broker.https, SECONDS_MAX) as raw:
        raw.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while piece := raw.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.0 400 Bad Request\r\n")
    broker.wait_for_line("first record does not look like a TLS handshake")


def test_plain_text_inside_tls_is_no_http(broker, certificates):
    with socket.create_connection(broker.https, SECONDS_MAX) as raw:
        TlsSocket(raw, certificates.client_context())
        raw.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while piece := raw.recv(65536):
            answer += piece
    assert b"HTTP" not in answer


@pytest.mark.slow
def test_silence_on_https(broker):
    """Also behind the first bytes of a handshake."""
    with (
        socket.create_connection(broker.https, SECONDS_MAX) as raw,
        socket.create_connection(broker.https, SECONDS_MAX) as begun,
    ):
        begun.sendall(bytes.fromhex("16030100"))
        assert raw.recv(1) == b""
        assert begun.recv(1) == b""
    broker.wait_for_line("TLS: client(127.0.0.1:")
    assert "i/o timeout" in broker.stderr


# ---- refused starts


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--tls-cert=/nowhere", "--tls-key={server.key}"], "open /nowhere: no such file"),
        (["--tls-cert={server.crt}"], "open : no such file"),
        (["--tls-key={server.key}"], "open : no such file"),
        (["--tls-cert={server.crt}", "--tls-key={client.key}"], "does not match public key"),
        (["--tls-cert={server.key}", "--tls-key={server.key}"], "PEM data in certificate"),
        (["--tls-cert={server.crt}", "--tls-key={server.crt}"], "PEM data in key"),
    ],
)
def test_refused_certificates(tmp_path, certificates, flags, complaint):
    shown = [flag.replace("{", str(certificates.folder) + "/").replace("}", "") for flag in flags]
    error = refused(tmp_path, *shown)
    assert "FATAL: failed to instantiate nsqd - failed to build TLS config - " in error
    assert complaint in error


def refused(folder, *flags):
    addresses = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    done = subprocess.run(
        [*program("nsqd", "nsqfast"), f"--data-path={folder}", *addresses, *flags],
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.decode().splitlines()
    return line


@pytest.mark.parametrize("flag", ["--tls-required=true", "--tls-client-auth-policy=require"])
def test_tls_without_a_certificate(tmp_path, flag):
    text = "cannot require TLS client connections without TLS key and cert"
    assert text in refused(tmp_path, flag)


@pytest.mark.parametrize("with_certificate", [True, False])
def test_refused_authorities(tmp_path, certificates, with_certificate):
    flags = certificates.flags() if with_certificate else []
    kind = "TLS config" if with_certificate else "client TLS config"
    line = refused(tmp_path, *flags, f"--tls-root-ca-file={certificates.path('server.key')}")
    assert f"failed to build {kind} - failed to append certificate to pool" in line


def test_nobody_is_asked_for_the_password_of_a_key(tmp_path, certificates):
    encrypted = tmp_path / "encrypted.key"
    command = ["openssl", "ec", "-aes128", "-passout", "pass:secret", "-out", str(encrypted)]
    subprocess.run(
        [*command, "-in", certificates.path("server.key")], check=True, capture_output=True
    )
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [
                *program("nsqd", "nsqfast"),
                f"--data-path={tmp_path}",
                f"--tls-cert={certificates.path('server.crt')}",
                f"--tls-key={encrypted}",
            ],
            stdin=theirs,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 1
    assert b"encrypted.key is encrypted" in done.stderr


def test_tls_counts_as_memory_while_it_lasts(broker, certificates):
    def used():
        return scrape(broker.http).value("nsqd_memory_used_bytes")

    context = certificates.client_context()
    before = used()
    with socket.create_connection(broker.https, SECONDS_MAX) as raw:
        TlsSocket(raw, context)
        assert used() >= before + 18_000
    with upgraded(broker, context) as client:
        assert used() >= before + 18_000
        client.socket.close()
    broker.wait_for_line("exiting ioloop")
    assert used() < before + 18_000
