"""A peer's address is the same in every log: an IPv4 client of an IPv6 socket is shown as what it is."""

import contextlib
import json
import socket

import pytest

from support.access import start_admin
from support.server import Server, program, start_nsqd
from support.web import request

ANYWHERE = ("--tcp-address=:0", "--http-address=:0")

pytestmark = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")


def send(port: int, data: bytes) -> str:
    """From 127.0.0.1; returns that address with the port it came from."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        name = "{}:{}".format(*client.getsockname())
        client.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(65536) != b"" or data == b"  V9"
    return name


@pytest.fixture(params=["nsqd", "nsqlookupd"])
def daemon(request, tmp_path):
    if request.param == "nsqd":
        with start_nsqd("ours", tmp_path, *ANYWHERE) as server:
            yield server
    else:
        with Server([*program("nsqlookupd", "ours"), *ANYWHERE]) as server:
            yield server


def test_tcp_and_http_log_the_same(daemon):
    name = send(daemon.tcp[1], b"  V9")
    daemon.wait_for_line(f"TCP: new client({name})")
    name = send(
        daemon.http[1], b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    daemon.wait_for_line(f"404 GET /nothing ({name})")


def test_nsqadmin_notes_the_same(tmp_path):
    path = tmp_path / "audit"
    flags = ("--http-address=:0", "--admin-user=ana", f"--audit-file={path}")
    with start_admin(*flags) as admin:
        address = ("127.0.0.1", admin.http[1])
        headers = {"Sec-Fetch-Site": "cross-site"}
        assert request(address, "POST", "/api/topics", headers=headers).status == 403
    assert [json.loads(line)["ip"] for line in path.read_text().splitlines()] == ["127.0.0.1"]
