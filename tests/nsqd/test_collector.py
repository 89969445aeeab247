"""The collector of cyclic garbage: a full collection of what a busy daemon has takes tens of milliseconds."""

import sys

import pytest

from support.lookup import Node, identify_as
from support.server import Server
from support.wire import Client

COUNT = 40_000
REGISTER_COUNT = 100_000
# A daemon that says so when the collector looks at everything.
PROGRAM = """
import gc, sys
def report(phase, info):
    if phase == "start" and info["generation"] == 2:
        sys.stderr.write("full collection\\n")
gc.callbacks.append(report)
from nsqfast.{name}.main import main
sys.exit(main(sys.argv[1:]))
"""


def start(name, *flags):
    addresses = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    return Server([sys.executable, "-c", PROGRAM.format(name=name), *addresses, *flags])


def make_topics(server):
    with Client(server.tcp, seconds_max=60) as client:
        for number in range(COUNT):
            client.command("PUB", f"t{number}#ephemeral", body=b"x")
        client.barrier()


def register_topics(server):
    with Node(server.tcp) as node:
        lines = b"".join(b"REGISTER t%d\n" % number for number in range(REGISTER_COUNT))
        node.socket.settimeout(60)
        node.send(identify_as() + lines)
        answers = node.socket.makefile("rb")
        size = int.from_bytes(answers.read(4), "big")
        answers.read(size)
        assert answers.read(6 * REGISTER_COUNT) == b"\0\0\0\2OK" * REGISTER_COUNT


@pytest.mark.soak
@pytest.mark.parametrize("name", ["nsqd", "nsqlookupd"])
def test_it_does_not_look_at_everything_while_clients_are_served(name, tmp_path):
    flags = [f"--data-path={tmp_path}"] if name == "nsqd" else []
    with start(name, *flags) as server:
        # The start ends with one; the first client comes after it.
        with Client(server.tcp):
            server.wait_for_line("new client")
        server.forget_lines()
        (make_topics if name == "nsqd" else register_topics)(server)
        assert "full collection" not in server.lines
        server.stop()
    # It has reported: the interpreter's own end makes one.
    assert "full collection" in server.lines
