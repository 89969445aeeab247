"""A warning names the addresses that everybody can reach, and none that something protects."""

import logging

import pytest

from nsqfast.net.addresses import is_wildcard, warn_if_open
from nsqfast.nsqd.options import parse, validate
from support.server import start_nsqd, start_nsqlookupd

TCP = ("--tcp-address", "0.0.0.0:4150", "--auth-http-address")
HTTP = ("--http-address", "0.0.0.0:4151", "--http-auth-required")
ADMIN = ("--http-admin-address", ":4155", "--http-auth-required")


@pytest.mark.parametrize("text", [":4150", "0.0.0.0:4150", "[::]:4150"])
def test_wildcard(text):
    assert is_wildcard(text)


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:4150", "[::1]:4150", "host:4150", "/run/x", "./::"]
)
def test_not_wildcard(text):
    assert not is_wildcard(text)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ([], [TCP, HTTP]),
        (["--http-address="], [TCP]),
        (["--http-admin-address=:4155"], [TCP, HTTP, ADMIN]),
        (["--tls-cert=c", "--tls-key=k"], [TCP, HTTP]),
        (["--tls-cert=c", "--tls-key=k", "--tls-required=tcp-https"], [HTTP]),
        (["--tls-cert=c", "--tls-key=k", "--tls-required"], []),
        (["--auth-http-address=a:1"], [HTTP]),
        (["--auth-http-address=a:1", "--http-auth-required"], []),
    ],
)
def test_what_is_protected_is_not_named(flags, named, caplog):
    options = parse(flags)
    validate(options)
    log = logging.getLogger("test")
    with caplog.at_level(logging.WARNING):
        warn_if_open(log, options.unprotected())
    assert len(caplog.messages) == len(named)
    for text, (flag, address, protection) in zip(caplog.messages, named, strict=True):
        assert text.startswith(f"everybody who reaches this machine may use {flag}={address}: ")
        assert protection in text


def warnings(server):
    return [line for line in server.lines if "everybody who reaches this machine" in line]


def test_nsqd_says_it_of_each_port(tmp_path):
    flags = ("--tcp-address=0.0.0.0:0", "--http-address=:0")
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        first, second = warnings(server)
    assert " WARNING: " in first
    assert "may use --tcp-address=0.0.0.0:0: " in first
    assert "may use --http-address=:0: " in second


def test_nsqlookupd_says_it():
    with start_nsqlookupd("nsqfast", "--http-address=:0") as server:
        (line,) = warnings(server)
    assert "may use --http-address=:0: " in line


def test_a_broker_of_this_machine_alone_says_nothing(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        assert warnings(server) == []
