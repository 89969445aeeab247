"""nsqlookupd as a process: its first and last lines, exit statuses, signals."""

import re
import signal
import socket
from contextlib import ExitStack

import pytest

from support.commands import run_command
from support.lookup import Node, producers
from support.server import ROOT, Server, program, start_nsqlookupd
from support.web import get

STAMP = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}"


def run_to_end(implementation, *flags):
    """A start that is expected to end by itself."""
    return run_command(*program("nsqlookupd", implementation), *flags, cwd=ROOT)


def fatal_text(done):
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (found,) = re.findall(rf"^\[nsqlookupd\] {STAMP} FATAL: (.*)$", done.stderr, re.MULTILINE)
    return found


def lines_of(server):
    server.stop()
    return [re.sub(rf"^\[nsqlookupd\] {STAMP} ", "", line) for line in server.lines]


def test_version_and_help(implementation):
    done = run_to_end(implementation, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    first, *more = done.stdout.splitlines()
    assert re.fullmatch(r"nsqlookupd v1\.3\.0 \(built w/\S+\)", first)
    assert [line.split()[0] for line in more] == (
        ["nsqfast"] if implementation == "nsqfast" else []
    )
    done = run_to_end(implementation, "--help")
    assert done.returncode == 0
    # Go's says it on stderr, with one hyphen.
    ours = implementation == "nsqfast"
    assert (bool(done.stdout), bool(done.stderr)) == (ours, not ours)


@pytest.mark.parametrize("flag", ["--nope", "--log-level=warning", "--tombstone-lifetime=1"])
def test_wrong_flags(implementation, flag):
    done = run_to_end(implementation, flag)
    assert (done.returncode, done.stdout) == (2, "")
    ours = implementation == "nsqfast"
    assert ("see nsqfast-nsqlookupd --help\n" if ours else "Usage of nsqlookupd:\n") in done.stderr
    assert not ours or done.stderr.count("\n") == 2


def test_config_file(implementation, tmp_path):
    path = tmp_path / "nsqlookupd.toml"
    path.write_text(
        'broadcast_address = "from.file"\nlog_prefix = "mine "\nverbose = true\n'
        'inactive_producer_timeout = 7000\ntombstone_lifetime = "8s"\n'
    )
    with start_nsqlookupd(implementation, f"--config={path}") as server, Node(server.tcp) as node:
        assert node.identify()["broadcast_address"] == "127.0.0.1"
        assert all(line.startswith("mine 2") for line in server.lines)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('log_level = "loud"', "log_level"),
        ("a =", "failed to load config file"),
        (None, "no such file or directory"),
    ],
)
def test_wrong_config(implementation, tmp_path, text, complaint):
    path = tmp_path / "nsqlookupd.toml"
    if text is not None:
        path.write_text(text)
    assert complaint in fatal_text(run_to_end(implementation, f"--config={path}"))


def test_config_of_a_wrong_type(implementation, tmp_path):
    path = tmp_path / "nsqlookupd.toml"
    path.write_text('tombstone_lifetime = "soon"')
    done = run_to_end(implementation, f"--config={path}")
    assert done.returncode == 1
    if implementation == "nsqfast":
        told = 'but takes a duration with its unit: write tombstone_lifetime = "45s"'
        begin = f"failed to load config file {path} - tombstone_lifetime is "
        assert fatal_text(done) == f'{begin}"soon" (at line 1, column 1), {told}'
    else:
        assert (
            "Resolve failed to coerce value soon (45s) for field TombstoneLifetime" in done.stderr
        )


@pytest.mark.parametrize("name", ["tcp", "http"])
def test_taken_port(implementation, name):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
        text = fatal_text(run_to_end(implementation, *flags, f"--{name}-address={address}"))
    assert text.startswith("failed to instantiate nsqlookupd")
    reason = f"listen ({address}) failed - listen tcp {address}: bind: address already in use"
    assert reason in text


def test_lines_of_a_life(implementation):
    with start_nsqlookupd(implementation) as server:
        tcp, http = server.tcp[1], server.http[1]
        with Node(server.tcp) as node:
            node.identify()
            assert node.ask(b"PING") == b"OK"
            node.register("t", "c")
            node.unregister("t")
            remote = node.remote
            get(server.http, "/info?a=<b>")
        server.wait_for_line("exiting ioloop")
        lines = lines_of(server)
    lines = [re.sub(r" \(last ping .*\)$| \S+s$", "", line) for line in lines]
    assert re.fullmatch(r"INFO: nsqlookupd v1\.3\.0 \(built w/\S+\)(, nsqfast .*)?", lines[0])
    assert sorted(lines[1:3]) == [
        f"INFO: HTTP: listening on 127.0.0.1:{http}",
        f"INFO: TCP: listening on 127.0.0.1:{tcp}",
    ]
    assert [line for line in lines[3:-2] if "INFO: 200" not in line][:9] == [
        f"INFO: TCP: new client({remote})",
        f"INFO: CLIENT({remote}): desired protocol magic '  V1'",
        f"INFO: CLIENT({remote}): IDENTIFY Address:bc.example TCP:1111 HTTP:2222 Version:1.3.0",
        f"INFO: DB: client({remote}) REGISTER category:client key: subkey:",
        f"INFO: CLIENT({remote}): pinged",
        f"INFO: DB: client({remote}) REGISTER category:channel key:t subkey:c",
        f"INFO: DB: client({remote}) REGISTER category:topic key:t subkey:",
        f"WARNING: client({remote}) unexpected UNREGISTER category:channel key:t subkey:c",
        f"INFO: DB: client({remote}) UNREGISTER category:topic key:t subkey:",
    ]
    assert f"INFO: DB: client({remote}) UNREGISTER category:client key: subkey:" in lines
    assert f"INFO: PROTOCOL(V1): [{remote}] exiting ioloop" in lines
    assert any(
        re.match(r"INFO: 200 GET /info\?a=<b> \(127\.0\.0\.1:\d+\)$", line) for line in lines
    )
    # Go's two may come in either order.
    assert sorted(lines[-2:]) == [
        f"INFO: HTTP: closing 127.0.0.1:{http}",
        f"INFO: TCP: closing 127.0.0.1:{tcp}",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_closes_connections(number):
    with start_nsqlookupd("nsqfast") as server, ExitStack() as stack:
        nodes = [stack.enter_context(Node(server.tcp)) for _ in range(3)]
        for node in nodes:
            node.identify()
        server.process.send_signal(number)
        assert [node.read_to_end() for node in nodes] == [b""] * 3
        server.process.wait(10)
        assert server.process.returncode == 0


def test_signals_that_change_nothing():
    with start_nsqlookupd("nsqfast") as server, Node(server.tcp) as node:
        node.identify()
        node.register("t")
        server.process.send_signal(signal.SIGUSR1)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_line("SIGHUP: nothing to reload")
        assert node.ask(b"PING") == b"OK"
        assert producers(server.http, "t") == [node.remote]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            server.process.send_signal(number)
        server.stop()


def test_a_stop_does_not_wait_for_those_who_say_nothing():
    with start_nsqlookupd("nsqfast") as server:
        silent = [socket.create_connection(address) for address in (server.tcp, server.http)]
        with Node(server.tcp, b"  V1IDENT"):
            get(server.http, "/ping")
            server.stop()
        for one in silent:
            one.settimeout(10)
            assert one.recv(1) == b""
            one.close()


def test_json_lines():
    addresses = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    command = [*program("nsqlookupd", "nsqfast"), *addresses, "--log-format=json"]
    with Server(command, listeners=()) as server:
        server.wait_for_line('"text": "HTTP: listening on 127.0.0.1:')
        assert all('"program": "nsqlookupd"' in line for line in server.lines)
