"""What a real UDP socket gets from nsqfast and from Go."""

import re
import socket

import pytest

from support.server import start_nsqd
from support.wire import Client

pytestmark = pytest.mark.slow

SECONDS_MAX = 50
LINE = re.compile(r"(\S+):(-?\d+)\|([cg])")
TOPIC = "message_count message_bytes depth backend_depth".split()
CHANNEL = """message_count depth backend_depth in_flight_count deferred_count requeue_count timeout_count
             clients""".split()
MEMORY = """heap_objects heap_idle_bytes heap_in_use_bytes heap_released_bytes gc_pause_usec_100
            gc_pause_usec_99 gc_pause_usec_95 next_gc_bytes gc_runs""".split()
COUNTS = {"message_count", "message_bytes", "requeue_count", "timeout_count", "gc_runs"}


@pytest.fixture
def receiver():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(SECONDS_MAX)
        yield receiver


@pytest.fixture
def start(implementation, tmp_path, receiver):
    """A broker that pushes to the receiver, and a client that publishes, and one that holds a message."""
    servers = []

    def make(*flags):
        address = f"--statsd-address=127.0.0.1:{receiver.getsockname()[1]}"
        server = start_nsqd(
            implementation, tmp_path, address, "--statsd-interval=1100ms", *flags
        ).__enter__()
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.__exit__(None, None, None)


def read_push(receiver, last_key):
    """The lines of one push, and its packets."""
    lines, found = [], []
    while not lines or not lines[-1].startswith(last_key):
        packet = receiver.recv(65536)
        found.append(packet)
        assert packet.endswith(b"\n")
        lines += packet.decode().splitlines()
    return lines, found


def parse(lines):
    return {key: (int(value), kind) for key, value, kind in map(groups, lines)}


def groups(line):
    return LINE.fullmatch(line).groups()


def test_keys_values_and_differences(start, receiver):
    server = start("--statsd-prefix=p.%s")
    host = f"127_0_0_1_{server.http[1]}"
    with Client(server.tcp) as consumer, Client(server.tcp) as publisher:
        consumer.sub("t", "c", 1)
        publisher.mpub("t", [b"one", b"two", b"three"])
        message = consumer.read_message()
        keys = [f"topic.t.{name}" for name in TOPIC]
        keys += [f"topic.t.channel.c.{name}" for name in CHANNEL]
        keys += [f"mem.{name}" for name in MEMORY]
        keys = [f"p.{host}.{key}" for key in keys]
        lines, packets = read_push(receiver, keys[-1])
        assert [line.partition(":")[0] for line in lines] == keys
        assert all(len(packet) <= 508 for packet in packets)
        assert len(packets) > 1
        first = {key.removeprefix(f"p.{host}."): value for key, value in parse(lines).items()}
        for key, (_, kind) in first.items():
            assert kind == ("c" if key.rpartition(".")[2] in COUNTS else "g"), key
        assert first["topic.t.message_count"] == (3, "c")
        assert first["topic.t.message_bytes"] == (11, "c")
        assert first["topic.t.depth"] == (0, "g")
        assert first["topic.t.channel.c.message_count"] == (3, "c")
        assert first["topic.t.channel.c.depth"] == (2, "g")
        assert first["topic.t.channel.c.in_flight_count"] == (1, "g")
        assert first["topic.t.channel.c.clients"] == (1, "g")
        assert first["mem.heap_in_use_bytes"][0] > 0
        consumer.command("REQ", message.id, "60000")
        publisher.pub("t", b"four")
        lines, _ = read_push(receiver, keys[-1])
    second = {key.removeprefix(f"p.{host}."): value for key, value in parse(lines).items()}
    assert second["topic.t.message_count"] == (1, "c")
    assert second["topic.t.channel.c.requeue_count"] == (1, "c")
    assert second["topic.t.channel.c.deferred_count"] == (1, "g")


def test_what_is_left_out(start, receiver):
    server = start(
        "--statsd-prefix=", "--statsd-mem-stats=false", "--statsd-exclude-ephemeral=true"
    )
    with Client(server.tcp) as consumer, Client(server.tcp) as other:
        consumer.sub("t", "c", 1)
        other.sub("t", "d#ephemeral", 1)
        other.command("PUB", "e#ephemeral", body=b"x")
        last = "topic.t.channel.c.clients"
        lines, _ = read_push(receiver, last)
    keys = [f"topic.t.{name}" for name in TOPIC]
    assert list(parse(lines)) == keys + [f"topic.t.channel.c.{name}" for name in CHANNEL]


def test_a_line_is_never_cut(start, receiver):
    server = start("--statsd-prefix=x", "--statsd-udp-packet-size=1", "--statsd-mem-stats=false")
    with Client(server.tcp) as consumer:
        consumer.sub("t", "c", 1)
        lines, packets = read_push(receiver, "x.topic.t.channel.c.clients")
    assert len(packets) == len(lines) == len(TOPIC + CHANNEL)
