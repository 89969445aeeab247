"""--max-memory: what goes to disk, what is refused, and that the process stays below it."""

import contextlib
import random
import re
import select
import struct
from pathlib import Path

import pytest

from support.packed import change_over
from support.prometheus import scrape
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import post, topic_stats
from support.wire import Client, encode_frame, encode_messages

MIB = 1 << 20
CEILING = 64 * MIB
# The program itself has some 35 MiB; the rest is buffers of a turn of the loop and what malloc cannot give back.
RESIDENT_MAX = CEILING + 64 * MIB
FLAGS = ("--mem-queue-size=100000000", f"--max-memory={CEILING}")

pytestmark = pytest.mark.slow


def start(folder, *flags):
    return start_nsqd("nsqfast", folder, *FLAGS, *flags)


def fill(server, topic, size, total):
    """Numbered messages, `total` bytes in all; how many."""
    count, batch = total // size, max(1, 2 * MIB // size)
    with Client(server.tcp, seconds_max=30) as publisher:
        for first in range(0, count, batch):
            last = min(first + batch, count)
            publisher.mpub(
                topic, [struct.pack(">q", n) + bytes(size - 8) for n in range(first, last)]
            )
            assert server.resident_bytes() < RESIDENT_MAX
    return count


@pytest.mark.soak
@pytest.mark.parametrize("size", [4000, 100_000, 1_000_000])
def test_five_times_the_ceiling_comes_back_in_order(tmp_path, size):
    with start(tmp_path) as server:
        post(server.http, "/topic/create?topic=t")
        post(server.http, "/channel/create?topic=t&channel=c")
        count = fill(server, "t", size, 5 * CEILING)
        channel = topic_stats(server.http, "t")["channels"]["c"]
        assert channel["depth"] == count
        in_memory = (count - channel["backend_depth"]) * size
        assert CEILING // 2 < in_memory < CEILING
        with Client(server.tcp, seconds_max=30) as consumer:
            consumer.sub("t", "c", 2500)
            for number in range(count):
                message = consumer.read_message()
                assert struct.unpack(">q", message.body[:8])[0] == number
                consumer.fin(message)
                if number % 100 == 0:
                    assert server.resident_bytes() < RESIDENT_MAX
            consumer.barrier()
        assert topic_stats(server.http, "t")["channels"]["c"]["depth"] == 0


def test_what_is_in_flight_counts(tmp_path):
    """A window of 2500 large messages is not filled from disk, and yet everything gets through."""
    size = 100_000
    with start(tmp_path) as server, Client(server.tcp, seconds_max=30) as consumer:
        post(server.http, "/topic/create?topic=t")
        post(server.http, "/channel/create?topic=t&channel=c")
        count = fill(server, "t", size, 3 * CEILING)
        consumer.sub("t", "c", 2500)
        taken = [consumer.read_message()]
        while len(taken) < 300:
            taken.append(consumer.read_message())
        assert topic_stats(server.http, "t")["channels"]["c"]["in_flight_count"] < CEILING // size
        assert server.resident_bytes() < RESIDENT_MAX
        number = 0
        while taken:
            message = taken.pop(0)
            assert struct.unpack(">q", message.body[:8])[0] == number
            consumer.fin(message)
            number += 1
            if not taken and number < count:
                taken.append(consumer.read_message())
        assert number == count


def test_ephemeral_queues_drop_what_does_not_fit(tmp_path):
    with start(tmp_path) as server:
        count = fill(server, "e#ephemeral", 10_000, 3 * CEILING)
        depth = topic_stats(server.http, "e#ephemeral")["depth"]
        assert CEILING // 2 < depth * 10_000 < CEILING < count * 10_000


def test_deferred_messages_are_refused_before_memory_is_gone(tmp_path):
    with start(tmp_path) as server, Client(server.tcp) as publisher, Client(server.tcp) as other:
        accepted = 0
        while True:
            publisher.command("DPUB", "t", "3600000", body=bytes(500_000))
            frame = publisher.read_frame()
            if frame.data != b"OK":
                break
            accepted += 1
        assert frame.data == b"E_DPUB_FAILED DPUB failed no memory left for deferred messages"
        assert CEILING // 2 < accepted * 500_000 < CEILING
        other.pub("t", b"at once")
        answer = post(server.http, "/pub?topic=t&defer=1000", b"x")
        assert answer.status == 503
        assert server.resident_bytes() < RESIDENT_MAX


def readable(clients):
    """Those who have something to read; there must be some soon."""
    sockets = {client.socket: client for client in clients}
    ready, _, _ = select.select(list(sockets), [], [], 10)
    assert ready
    return [sockets[each] for each in ready]


def send_to(clients, data):
    for client in clients:
        # Who is refused may have closed before all was sent.
        with contextlib.suppress(ConnectionError):
            client.send(data)


def test_input_does_not_outgrow_the_ceiling(tmp_path, connect):
    body = encode_messages([bytes(MIB)] * 3)
    command = b"MPUB t\n" + struct.pack(">i", len(body)) + body
    with start(tmp_path) as server:
        clients = [connect(server.tcp) for _ in range(60)]
        send_to(clients, command[: 2 * MIB])
        server.wait_for_line("no memory left")
        refused = readable(clients)
        error = encode_frame(1, b"E_INVALID no memory left for a command of this size")
        assert {client.read_to_end() for client in refused} <= {error, b""}
        # Many can be full in one turn; they may not all grow in the next.
        for _ in range(20):
            assert scrape(server.http).value("nsqd_memory_used_bytes") <= CEILING + MIB
        assert server.resident_bytes() < RESIDENT_MAX
        with Client(server.tcp) as publisher:
            publisher.pub("t", b"small ones go on")
        for client in clients:
            client.close()
        with Client(server.tcp) as publisher:
            publisher.mpub("t", [bytes(MIB)] * 3)
        assert topic_stats(server.http, "t")["depth"] == 4


def test_a_command_in_pieces_leaves_nothing_counted(tmp_path):
    """Room was counted for what would follow, and none was needed. What is unpacked need not be read anew for that."""
    command = b"PUB t\n" + struct.pack(">i", 60_000) + random.Random(1).randbytes(60_000)

    def used_bytes():
        return scrape(server.http).value("nsqd_memory_used_bytes")

    with start(tmp_path) as server, Client(server.tcp) as client:
        client.identify(feature_negotiation=True, deflate=True)
        change_over(client, "deflate")
        client.pub("t", b"the topic is there")
        post(server.http, "/topic/empty?topic=t")
        before = used_bytes()
        client.send(command[:50_000])
        wait_until(lambda: used_bytes() > before, "counted")
        client.send(command[50_000:])
        assert client.read_response() == b"OK"
        post(server.http, "/topic/empty?topic=t")
        wait_until(lambda: used_bytes() == before, "as before")


def heap_bytes(server):
    """What malloc has of it, beside large blocks; 0 where it has nothing else."""
    smaps = Path(f"/proc/{server.process.pid}/smaps").read_text()
    found = re.search(r"\[heap\]\n(?:\w+: .*\n)*?Rss: +(\d+) kB", smaps)
    return int(found[1]) * 1024 if found else 0


def test_http_bodies_do_not_outgrow_the_ceiling(tmp_path, connect):
    """Nor do they leave memory behind that malloc keeps: each grew out of a MiB of it."""
    head = b"POST /mpub?topic=t&binary=true HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n"
    with start(tmp_path) as server:
        heap_before = heap_bytes(server)
        clients = [connect(server.http, head) for _ in range(30)]
        send_to(clients, bytes(3_900_000))
        answers = [client.read_to_end() for client in readable(clients)]
        assert any(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
        assert server.resident_bytes() < RESIDENT_MAX
        assert heap_bytes(server) - heap_before < 12 * MIB
        assert post(server.http, "/pub?topic=t", b"small").body == b"OK"
        for client in clients:
            client.close()
        answer = post(server.http, "/mpub?topic=t", b"\n".join([bytes(MIB)] * 3))
        assert answer.body == b"OK"


@pytest.mark.soak
def test_a_hundred_peers_that_read_nothing(tmp_path, connect):
    """Half of them consume large messages, half ask for long answers, again and again."""
    ask = b"GET /stats?format=json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200
    with start(tmp_path) as server:
        for number in range(50):
            post(server.http, f"/topic/create?topic=t{number}")
            for channel in range(20):
                post(server.http, f"/channel/create?topic=t{number}&channel=c{channel}")
        fill(server, "t0", 100_000, CEILING)
        peers = []
        for number in range(50):
            peers += [connect(server.http, ask), connect(server.tcp)]
            peers[-1].send(b"SUB t0 c%d\nRDY 2500\n" % (number % 20))
        with Client(server.tcp) as probe:
            for _ in range(200):
                probe.pub("probe", bytes(1000))
                assert server.resident_bytes() < RESIDENT_MAX + 100 * 2 * MIB
        for peer in peers:
            peer.close()
        used = "nsqd_memory_used_bytes"
        wait_until(lambda: scrape(server.http).value(used) <= CEILING, "given back")
