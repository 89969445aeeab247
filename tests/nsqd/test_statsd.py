"""statsd without Go beside it: packets, counts that start anew, addresses that are nothing, an end in the middle."""

import contextlib
import itertools
import random
import socket

import pytest

from nsqfast.nsqd.statsd import Counters, packets
from support.server import start_nsqd
from support.wire import Client


def test_differences():
    counters = Counters()
    assert counters.difference("a", 3) == 3
    assert counters.difference("b", 0) == 0
    counters.end_push()
    assert counters.difference("a", 10) == 7
    # Deleted and made anew: as many as it has, not Go's huge unsigned number.
    assert counters.difference("b", 0) == 0
    counters.end_push()
    assert counters.difference("a", 4) == 4
    counters.end_push()
    counters.end_push()
    # Not seen in the last push, so not the same as before.
    assert counters.difference("a", 5) == 5


def test_packets_hold_whole_lines():
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    for _ in range(200):
        lines = ["x" * dice.randrange(1, 60) for _ in range(dice.randrange(40))]
        size_max = dice.randrange(1, 120)
        found = list(packets(lines, size_max))
        assert b"".join(found).decode().splitlines() == lines
        for packet, following in itertools.pairwise([*found, b""]):
            assert packet.endswith(b"\n")
            assert len(packet) <= size_max or packet.count(b"\n") == 1
            if following:
                assert len(packet) + following.index(b"\n") + 1 > size_max


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:no-such-service", "127.0.0.1", ":"])
def test_an_address_that_is_none_is_said_and_survived(tmp_path, address):
    flags = [f"--statsd-address={address}", "--statsd-interval=1001ms"]
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        server.wait_for_line(f"ERROR: STATSD: failed to push to {address} - ")
        with Client(server.tcp) as client:
            client.barrier()


@pytest.mark.slow
def test_nobody_listens(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        port = receiver.getsockname()[1]
        flags = [f"--statsd-address=localhost:{port}", "--statsd-interval=1001ms"]
        with start_nsqd("nsqfast", tmp_path, *flags, "--statsd-udp-packet-size=1") as server:
            receiver.settimeout(10)
            receiver.recv(1000)
            receiver.close()
            with Client(server.tcp) as client:
                client.barrier()
        assert "Traceback" not in server.stderr


@pytest.mark.slow
def test_a_stop_does_not_wait_for_the_rest_of_a_push(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        flags = [f"--statsd-address=127.0.0.1:{receiver.getsockname()[1]}"]
        # The nine packets of memory figures, a fifth of a second from each other.
        flags += ["--statsd-interval=3s", "--statsd-udp-packet-size=1"]
        with start_nsqd("nsqfast", tmp_path, *flags) as server:
            receiver.recv(1000)
            server.stop()
        receiver.setblocking(False)
        count = 1
        with contextlib.suppress(BlockingIOError):
            while receiver.recv(1000):
                count += 1
        assert count < 9
