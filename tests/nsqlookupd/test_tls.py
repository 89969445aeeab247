"""nsqlookupd under TLS: both ports, certificates of clients, new ones, and an nsqd that reports to it."""

import http.client
import signal
import socket
from functools import partial

import pytest

from support.certificates import Certificates
from support.commands import run_command
from support.lookup import MAGIC, Node, identify_as
from support.server import ROOT, program, start_nsqd, start_nsqlookupd
from support.waiting import wait_until
from support.web import post, request

SECONDS_MAX = 50
COUNT = 2000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def server_flags(certificates, name="server"):
    return [
        f"--tls-cert={certificates.path(name + '.crt')}",
        f"--tls-key={certificates.path(name + '.key')}",
    ]


def nsqd_flags(certificates, lookupd, name=None, authority="ca.crt"):
    flags = [
        f"--lookupd-tcp-address={lookupd.tcp[0]}:{lookupd.tcp[1]}",
        "--lookupd-tls",
        f"--lookupd-tls-root-ca-file={certificates.path(authority)}",
    ]
    if name is not None:
        flags.append(f"--lookupd-tls-cert={certificates.path(name + '.crt')}")
        flags.append(f"--lookupd-tls-key={certificates.path(name + '.key')}")
    return flags


def under_tls(address, context):
    raw = socket.create_connection(address, SECONDS_MAX)
    return context.wrap_socket(raw, server_hostname=address[0])


def ask(lookupd, context, target, method="GET"):
    connect = partial(http.client.HTTPSConnection, context=context)
    return request(lookupd.http, method, target, connect=connect)


def topics(lookupd, context):
    return ask(lookupd, context, "/topics").json()["topics"]


def read_exactly(one, size):
    data = b""
    while len(data) < size:
        piece = one.recv(size - len(data))
        assert piece
        data += piece
    return data


def is_served(address, context, words):
    """Whether there is an answer; TLS 1.3 refuses a client's certificate after its handshake."""
    try:
        with under_tls(address, context) as one:
            one.sendall(words)
            return one.recv(1) != b""
    except OSError:
        return False


def test_both_ports(certificates):
    """Much more than fits a part of a turn is answered in order, and an error is the last answer."""
    context = certificates.client_context()
    with start_nsqlookupd("nsqfast", *server_flags(certificates)) as lookupd:
        with under_tls(lookupd.tcp, context) as node:
            node.sendall(MAGIC + identify_as())
            size = int.from_bytes(read_exactly(node, 4), "big")
            assert read_exactly(node, size).startswith(b"{")
            lines = b"".join(b"REGISTER t%d c\n" % number for number in range(COUNT))
            node.sendall(lines + b"nope\n" + b"PING\n" * 10)
            assert read_exactly(node, 6 * COUNT) == b"\0\0\0\2OK" * COUNT
            assert read_exactly(node, 34)[4:] == b"E_INVALID invalid command nope"
            assert node.recv(1) == b""
        assert len(topics(lookupd, context)) == COUNT
        for address in (lookupd.tcp, lookupd.http):
            with Node(address, MAGIC + b"PING\n") as plain:
                plain.read_to_end()
        assert request(lookupd.http, "POST", "/topic/delete?topic=t1").status == 400
        assert len(topics(lookupd, context)) == COUNT
        lookupd.stop()
        assert not any("Traceback" in line for line in lookupd.lines)


def test_only_clients_with_a_certificate(certificates):
    flags = [*server_flags(certificates), f"--tls-client-ca={certificates.path('ca.crt')}"]
    with start_nsqlookupd("nsqfast", *flags, "--max-connections=1") as lookupd:
        known = certificates.client_context("client")
        for name in (None, "stranger"):
            context = certificates.client_context(name)
            assert not is_served(lookupd.tcp, context, MAGIC + b"PING\n")
            create = b"POST /topic/create?topic=t HTTP/1.1\r\nHost: localhost\r\n\r\n"
            assert not is_served(lookupd.http, context, create)
        assert topics(lookupd, known) == []
        with under_tls(lookupd.tcp, known) as node:
            node.sendall(MAGIC + b"PING\n")
            assert read_exactly(node, 6) == b"\0\0\0\2OK"
            with under_tls(lookupd.tcp, known) as second:
                second.sendall(MAGIC + b"PING\n")
                assert (
                    read_exactly(second, 50)[4:]
                    == b"E_INVALID too many connections, the limit is 1"
                )


def test_new_certificates(tmp_path):
    certificates = Certificates(tmp_path)
    context = certificates.client_context()
    with start_nsqlookupd("nsqfast", *server_flags(certificates)) as lookupd:
        with under_tls(lookupd.tcp, context) as old:
            before = old.getpeercert(binary_form=True)
            certificates.issue_server("server")
            lookupd.process.send_signal(signal.SIGHUP)
            lookupd.wait_for_line("SIGHUP: certificates and secret reloaded")
            with under_tls(lookupd.http, context) as new:
                assert new.getpeercert(binary_form=True) != before
            old.sendall(MAGIC + b"PING\n")
            assert read_exactly(old, 6) == b"\0\0\0\2OK"
        (tmp_path / "server.crt").write_text("none")
        lookupd.process.send_signal(signal.SIGHUP)
        lookupd.wait_for_line("stay as they were: tls: failed to find any PEM data")
        assert topics(lookupd, context) == []


def test_an_nsqd_registers_and_learns_of_channels(certificates, tmp_path):
    """Over TCP and HTTP, each with its certificate."""
    flags = [*server_flags(certificates), f"--tls-client-ca={certificates.path('ca.crt')}"]
    context = certificates.client_context("client")
    with start_nsqlookupd("nsqfast", *flags) as lookupd:
        assert ask(lookupd, context, "/channel/create?topic=t&channel=known", "POST").status == 200
        with start_nsqd("nsqfast", tmp_path, *nsqd_flags(certificates, lookupd, "client")) as nsqd:
            post(nsqd.http, "/topic/create?topic=t")
            wait_until(lambda: ask(lookupd, context, "/lookup?topic=t").json()["producers"])
            stats = partial(request, nsqd.http, "GET", "/stats?format=json")
            wait_until(lambda: stats().json()["topics"][0]["channels"])
            assert stats().json()["topics"][0]["channels"][0]["channel_name"] == "known"


@pytest.mark.parametrize("authority", ["ca.crt", "other-ca.crt"])
def test_an_nsqd_that_is_not_known_or_does_not_know(certificates, tmp_path, authority):
    """It says why, in one line each time, and does not register."""
    flags = [*server_flags(certificates), f"--tls-client-ca={certificates.path('ca.crt')}"]
    with start_nsqlookupd("nsqfast", *flags) as lookupd:
        own = nsqd_flags(certificates, lookupd, None, authority)
        with start_nsqd("nsqfast", tmp_path, *own) as nsqd:
            post(nsqd.http, "/topic/create?topic=t")
            nsqd.wait_for_line(f"LOOKUPD({lookupd.tcp[0]}:{lookupd.tcp[1]}): ")
            nsqd.stop()
            assert not any("Traceback" in line for line in nsqd.lines)
        context = certificates.client_context("client")
        assert ask(lookupd, context, "/nodes").json() == {"producers": []}


@pytest.mark.parametrize(
    ("name", "flags", "complaint"),
    [
        ("nsqlookupd", ["--tls-cert=server.crt"], "--tls-cert and --tls-key go together"),
        ("nsqlookupd", ["--tls-client-ca=ca.crt"], "--tls-client-ca needs TLS"),
        ("nsqlookupd", ["--tls-cert=no", "--tls-key=no"], "open no: no such file or directory"),
        ("nsqd", ["--lookupd-tls-cert=client.crt"], "need TLS: give --lookupd-tls"),
        ("nsqd", ["--lookupd-tls", "--lookupd-tls-root-ca-file=no"], "open no: no such file"),
        ("nsqd", ["--lookupd-tls", "--lookupd-tls-cert=client.crt"], "open : no such file"),
    ],
)
def test_settings_that_do_not_go_together(certificates, name, flags, complaint):
    words = [
        f"{flag}={certificates.path(value)}" if value not in ("", "no") else word
        for word in flags
        for flag, _, value in [word.partition("=")]
    ]
    done = run_command(*program(name, "nsqfast"), *words, cwd=ROOT)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
