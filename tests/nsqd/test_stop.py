"""What a stop leaves open: nothing, even where the loop goes on."""

import asyncio
import os
from pathlib import Path

import pytest

from nsqfast.nsqd.http_api import HttpApi
from nsqfast.nsqd.options import Options
from nsqfast.nsqd.server import Server
from support.certificates import Certificates

SECONDS_MAX = 50
PING = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("kind", ["HTTP", "HTTPS"])
def test_connections_of_http_end(tmp_path, kind):
    certificates = Certificates(tmp_path)
    options = Options(
        data_path=str(tmp_path),
        tcp_address="127.0.0.1:0",
        http_address="127.0.0.1:0",
        https_address="127.0.0.1:0",
        tls_cert=certificates.path("server.crt"),
        tls_key=certificates.path("server.key"),
    )

    async def ask():
        server = Server(options, HttpApi)
        await server.start()
        address = server.http_address if kind == "HTTP" else server.https_address
        context = certificates.client_context() if kind == "HTTPS" else None
        reader, writer = await asyncio.open_connection(*address, ssl=context)
        writer.write(PING)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\nOK"), SECONDS_MAX)
        await server.stop()
        rest = await asyncio.wait_for(reader.read(), SECONDS_MAX)
        writer.close()
        return rest

    assert asyncio.run(ask()) == b""


def list_descriptors():
    return {os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}


def test_no_descriptor_stays_open(tmp_path):
    """Not even until the collector has found the broker: `server` is still there."""
    options = Options(
        data_path=str(tmp_path), tcp_address="127.0.0.1:0", http_address="127.0.0.1:0"
    )

    async def run():
        server = Server(options, HttpApi)
        await server.start()
        server.registry.topics.ensure("t").put(b"x")
        opened = list_descriptors()
        await server.stop()
        return server, opened, list_descriptors()

    _server, opened, left = asyncio.run(run())
    assert [name for name in opened if str(tmp_path) in name] != []
    assert [name for name in left if str(tmp_path) in name] == []
