"""Listening addresses: the forms, the wildcard, Unix sockets, and what goes wrong."""

import os
import socket
import stat
from pathlib import Path

import pytest

from nsqfast.errors import OptionsError
from nsqfast.net import addresses
from nsqfast.net.addresses import (
    Inet,
    Unix,
    bound_address,
    format_bound,
    listen,
    parse_address,
    remove_path,
)
from nsqfast.wire.gotext import format_address, format_host, format_peer_host


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4150", Inet("127.0.0.1", "4150")),
        (":4150", Inet("", "4150")),
        ("localhost:0", Inet("localhost", "0")),
        ("[::1]:4150", Inet("::1", "4150")),
        ("/run/nsqd.sock", Unix("/run/nsqd.sock")),
        ("nsqd.sock", Unix("nsqd.sock")),
        ("::1", Unix("::1")),
        ("a:b:1", Unix("a:b:1")),
        ("/run/a:b/nsqd.sock", Unix("/run/a:b/nsqd.sock")),
    ],
)
def test_forms(text, address):
    assert parse_address(text) == address


def test_shown():
    assert format_bound(("127.0.0.1", 1)) == "127.0.0.1:1"
    assert format_bound(("::", 1)) == "[::]:1"
    assert format_bound(("::ffff:127.0.0.1", 1)) == "127.0.0.1:1"
    assert format_bound("/run/x") == "/run/x"


@pytest.mark.parametrize(
    ("host", "shown", "address"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.1:5"),
        ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.1:5"),
        ("::FFFF:A00:1", "10.0.0.1", "10.0.0.1:5"),
        ("::1", "::1", "[::1]:5"),
        ("::ffff:0:a00:1", "::ffff:0:a00:1", "[::ffff:0:a00:1]:5"),  # not an IPv4 address
        ("fe80::1%eth0", "fe80::1%eth0", "[fe80::1%eth0]:5"),
        ("nsq.example", "nsq.example", "nsq.example:5"),
    ],
)
def test_peers_are_shown_as_go_prints_them(host, shown, address):
    assert format_host(host) == shown
    for name in ((host, 5), (host, 5, 0, 0)):
        assert format_address(name) == address
        assert format_peer_host(name) == shown


@pytest.mark.parametrize("name", ["", None, "/run/x"])
def test_a_client_of_a_unix_socket_has_no_name(name):
    assert format_address(name) == "@"
    assert format_peer_host(name) == ""


def can_connect(family, host, port):
    with socket.socket(family) as client:
        client.settimeout(5)
        return client.connect_ex((host, port)) == 0


def test_real_port_and_connection_before_accept():
    with listen("127.0.0.1:0") as listener:
        host, port = bound_address(listener)
        assert host == "127.0.0.1"
        assert port > 0
        assert can_connect(socket.AF_INET, host, port)


@pytest.mark.parametrize("text", [":0", "0.0.0.0:0", "[::]:0"])
def test_wildcard_takes_both_families(text):
    with listen(text) as listener:
        _, port = bound_address(listener)
        assert can_connect(socket.AF_INET, "127.0.0.1", port)
        if socket.has_dualstack_ipv6():
            assert can_connect(socket.AF_INET6, "::1", port)


def test_of_a_names_addresses_that_of_ipv4_is_taken(monkeypatch):
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(addresses.socket, "getaddrinfo", lambda *_, **__: found)
    with listen("both.example:0") as listener:
        assert bound_address(listener)[0] == "127.0.0.1"


def test_port_in_use():
    with listen("127.0.0.1:0") as listener:
        text = f"127.0.0.1:{bound_address(listener)[1]}"
        with pytest.raises(OptionsError) as error:
            listen(text)
        assert (
            str(error.value)
            == f"listen ({text}) failed - listen tcp {text}: bind: address already in use"
        )


def test_wildcard_port_in_use():
    with listen(":0") as listener:
        port = bound_address(listener)[1]
        with pytest.raises(OptionsError, match=r"address already in use"):
            listen(f"0.0.0.0:{port}")


@pytest.mark.parametrize(
    "text", ["127.0.0.1:99999", ":99999", ":nosuchservice", "127.0.0.1:nosuchservice", ""]
)
def test_nonsense(text):
    with pytest.raises(OptionsError, match=r"^listen "):
        listen(text)


@pytest.mark.parametrize("text", ["127.0.0.1", "localhost", "nsqd.sock", "::1", "127.0.0.1:", ":"])
def test_a_forgotten_port(text, tmp_path, monkeypatch):
    """Go makes a Unix socket of the host's name, or takes any port."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionsError) as error:
        listen(text)
    assert str(error.value) == (
        f"listen ({text}) failed - an address is <addr>:<port>, or a path with a slash in it"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_unix_socket_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with listen("./nsqd.sock") as listener:
        assert bound_address(listener) == "./nsqd.sock"


def test_unix_socket(tmp_path):
    path = str(tmp_path / "nsqd.sock")
    before = os.umask(0o022)
    try:
        listener = listen(path)
    finally:
        os.umask(before)
    with listener:
        assert bound_address(listener) == path
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o755
        with pytest.raises(OptionsError, match=r"bind: address already in use$"):
            listen(path)
    remove_path(path)
    assert not Path(path).exists()
    remove_path(path)
