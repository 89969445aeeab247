"""Peers that vanish, stall or come in crowds, and what happens when descriptors run out."""

import re
import resource
import socket
import struct
from pathlib import Path

import pytest

from support.network import (
    can_leave_network,
    keep_alive_due_s,
    leave_network,
    run_within,
    set_loopback,
)
from support.server import start_nsqd
from support.waiting import eventually
from support.web import get, post, stats, topic_stats
from support.wire import Client

MIB = 1 << 20
CROWD_COUNT = 5000
SHORT = "no more connections accepted"
AGAIN = "connections are accepted again"

pytestmark = pytest.mark.slow


def start(folder, *flags, prepare=None):
    return start_nsqd("nsqfast", folder, *flags, prepare=prepare)


def lines_with(server, text):
    return [line for line in server.lines if text in line]


def is_clean(server):
    return not lines_with(server, "Traceback") and not lines_with(server, "unexpected")


def reset(client):
    """The connection ends without a FIN; returns the port that it came from."""
    port = client.socket.getsockname()[1]
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    return port


def send_for_ever(client):
    while True:
        client.send(bytes(MIB))


# ---- one peer


def test_a_consumer_that_stops_reading_holds_up_nobody(tmp_path, connect):
    count, size = 200, 100_000
    with start(tmp_path, "--mem-queue-size=1000") as server:
        slow, quick, publisher = (connect(server.tcp) for _ in range(3))
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.identify(heartbeat_interval=1000)
        slow.sub("t", "c", 2500)
        for number in range(count):
            publisher.pub("t", b"%06d" % number + bytes(size - 6))
        # Nothing can be written to it for a heartbeat interval, so it is dropped.
        server.wait_for_line("write timeout")
        assert topic_stats(server.http, "t")["channels"]["c"]["client_count"] == 0
        quick.sub("t", "c", 2500)
        bodies = set()
        while len(bodies) < count:
            message = quick.read_message()
            bodies.add(message.body[:6])
            quick.fin(message)
        quick.barrier()
        assert topic_stats(server.http, "t")["channels"]["c"]["depth"] == 0
        assert server.resident_bytes() < 128 * MIB
        assert is_clean(server)


def test_a_peer_whose_network_is_gone(tmp_path, connect):
    if not can_leave_network():
        pytest.skip("network namespaces are not permitted here")
    with start(tmp_path, prepare=leave_network) as server:
        process_id = server.process.pid

        def consumer():
            client = connect(server.tcp)
            client.identify(heartbeat_interval=1000)
            client.sub("t", "c", 1)
            return client

        run_within(process_id, lambda: post(server.http, "/pub?topic=t", b"x"))
        gone = run_within(process_id, consumer)
        assert gone.read_message().attempts == 1
        run_within(process_id, lambda: set_loopback(is_up=False))
        server.wait_for_line("i/o timeout")
        run_within(process_id, lambda: set_loopback(is_up=True))
        present = run_within(process_id, consumer)
        assert present.read_message().attempts == 2
        found = run_within(process_id, lambda: topic_stats(server.http, "t"))
        assert found["channels"]["c"]["client_count"] == 1
        assert is_clean(server)


def test_a_silent_peer_without_heartbeats_is_asked_by_the_kernel(tmp_path):
    with start(tmp_path) as server, Client(server.tcp) as client:
        client.identify(heartbeat_interval=-1)
        own = client.socket.getsockname()[1]
        due_s = keep_alive_due_s(server.process.pid, server.tcp[1], own)
        assert due_s is not None
        assert 0 < due_s <= 15


BEGINNINGS = [
    b"",
    b"  V",
    b"  V2",
    b"  V2PU",
    b"  V2PUB t\n",
    b"  V2PUB t\n\x00\x00",
    b"  V2PUB t\n\x00\x00\x00\x05",
    b"  V2PUB t\n\x00\x00\x00\x05half",
    b"  V2MPUB t\n\x00\x00\x00\x16",
    b"  V2MPUB t\n\x00\x00\x00\x16\x00\x00\x00\x02\x00\x00\x00\x05",
    b"  V2MPUB t\n\x00\x00\x00\x16\x00\x00\x00\x02\x00\x00\x00\x05whole\x00\x00\x00\x05hal",
    b"  V2IDENTIFY\n\x00\x00\x00\x10{",
]


def test_resets_in_the_middle_of_a_command(tmp_path, connect):
    with start(tmp_path, "--mem-queue-size=0") as server:
        for beginning in BEGINNINGS:
            client = connect(server.tcp, beginning)
            own = client.socket.getsockname()[1]
            server.wait_for_line(f"new client(127.0.0.1:{own})")
            reset(client)
            server.wait_for_line(f"[127.0.0.1:{own}] exiting ioloop")
        topic = topic_stats(server.http, "t")
        assert (topic["depth"], topic["message_count"]) == (0, 0)
        assert stats(server.http)["producers"] is None
        assert is_clean(server)


def test_a_reset_while_messages_are_on_their_way(tmp_path, connect):
    with start(tmp_path) as server, Client(server.tcp) as publisher:
        client = connect(server.tcp)
        client.sub("t", "c", 10)
        publisher.mpub("t", [b"%d" % number for number in range(20)])
        message = client.read_message()
        client.send(b"FIN " + message.id + b"\nFIN " + message.id[:7])
        own = reset(client)
        server.wait_for_line(f"[127.0.0.1:{own}] exiting ioloop")
        with Client(server.tcp) as other:
            other.sub("t", "c", 100)
            bodies = sorted(int(other.read_message().body) for _ in range(19))
        # A reset may overtake the FIN before it.
        assert len(set(bodies)) == 19
        assert is_clean(server)


# ---- crowds


def raise_own_limit(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"the hard limit of {hard} descriptors is too low for {count}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    return soft, hard


def test_five_thousand_connects_at_once(tmp_path):
    limits = raise_own_limit(CROWD_COUNT + 500)
    sockets = []
    try:
        with start(tmp_path, "--mem-queue-size=10000") as server:
            for _ in range(CROWD_COUNT):
                peer = socket.socket()
                sockets.append(peer)
                peer.setblocking(False)
                peer.connect_ex(server.tcp)
            for peer in sockets:
                peer.settimeout(20)
                peer.sendall(b"  V2PUB t\n\x00\x00\x00\x01x")
            for peer in sockets:
                assert peer.recv(10, socket.MSG_WAITALL) == b"\x00\x00\x00\x06\x00\x00\x00\x00OK"
            assert topic_stats(server.http, "t")["message_count"] == CROWD_COUNT
            assert lines_with(server, SHORT) == []
            # A peer that does nothing costs little; its first buffer is there, but not in use.
            assert server.resident_bytes() < 64 * MIB + CROWD_COUNT * 16384
            assert is_clean(server)
    finally:
        for peer in sockets:
            peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def limit_descriptors(count):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


@pytest.mark.parametrize("count", [96, 1024, 20_000])
def test_the_table_of_descriptors_does_not_grow_later(tmp_path, count):
    """Where threads share it, each time that it grows is 10 ms in which the loop stands still."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"the hard limit of {hard} descriptors is too low for {count}")
    with start(tmp_path, prepare=limit_descriptors(count)) as server:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        size = int(re.search(r"^FDSize:\s+(\d+)$", status, re.MULTILINE)[1])
    assert size >= count


def test_clients_that_take_all_descriptors(tmp_path, connect):
    flags = ("--mem-queue-size=0", "--max-bytes-per-file=2000")
    with start(tmp_path, *flags, prepare=limit_descriptors(96)) as server:
        clients = [connect(server.tcp) for _ in range(100)]
        server.wait_for_line(SHORT)
        # Files can still be opened: new topics, their metadata, further data files.
        for number in range(5):
            clients[0].mpub(f"t{number}", [bytes(900)] * 5)
        for client in clients[1:70]:
            client.close()
        # Those that waited in the kernel's queue lost nothing.
        for client in clients[70:]:
            client.pub("late", b"x")
        server.wait_for_line(AGAIN)
        assert topic_stats(server.http, "late")["depth"] == 30
        assert topic_stats(server.http, "t4")["depth"] == 5
        assert len(lines_with(server, SHORT)) == len(lines_with(server, AGAIN)) == 1
        assert "ulimit -n" in lines_with(server, SHORT)[0]
        assert is_clean(server)


@pytest.mark.parametrize(("limit", "is_enough"), [(72, True), (56, True), (40, False)])
def test_more_queues_than_descriptors(tmp_path, connect, limit, is_enough):
    """Files are closed and opened again. What was answered with OK is there afterwards, all of it and nothing else."""
    flags = ("--mem-queue-size=0", "--max-bytes-per-file=2000")
    accepted, errors = {}, []
    with start(tmp_path, *flags, prepare=limit_descriptors(limit)) as server:
        clients = [connect(server.tcp) for _ in range(16)]
        for number in range(300):
            # Old topics, which roll to another file again and again, and ever new ones.
            topic, body = f"t{number % 7 if number % 2 else number}", b"%0500d" % number
            clients[0].command("PUB", topic, body=body)
            frame = clients[0].read_frame()
            if frame.data == b"OK":
                accepted.setdefault(topic, []).append(body)
            else:
                errors.append(frame.data)
                clients.pop(0).close()
        assert all(b"too many open files" in error.lower() for error in errors), errors
        assert errors == [] or not is_enough
        for client in clients:
            client.close()
        # Now there are some again, and the list of topics is written after all.
        metadata = tmp_path / "nsqd.dat"
        eventually(lambda: all(f'"{name}"' in metadata.read_text() for name in accepted))
        server.kill()
    with start(tmp_path, "--mem-queue-size=0") as server:
        assert list(tmp_path.glob("*.bad")) == []
        found = {topic["topic_name"]: topic["depth"] for topic in stats(server.http)["topics"]}
        assert {name: depth for name, depth in found.items() if depth} == {
            topic: len(bodies) for topic, bodies in accepted.items()
        }
        for topic, bodies in accepted.items():
            with Client(server.tcp) as consumer:
                consumer.sub(topic, "c", 2500)
                assert [m.body for m in consumer.read_messages(len(bodies))] == bodies
        assert is_clean(server)


# ---- ceilings


def test_more_connections_than_the_ceiling(tmp_path, connect):
    with start(tmp_path, "--max-connections=3") as server:
        clients = [connect(server.tcp) for _ in range(3)]
        for client in clients:
            client.pub("t", b"x")
        for _ in range(3):
            with Client(server.tcp, b"  V2") as extra:
                extra.command("PUB", "t", body=b"not me")
                assert extra.read_error() == b"E_INVALID too many connections, the limit is 3"
                assert extra.read_to_end() == b""
        # HTTP has a ceiling of its own.
        assert topic_stats(server.http, "t")["depth"] == 3
        own = clients[0].socket.getsockname()[1]
        clients.pop(0).close()
        server.wait_for_line(f"[127.0.0.1:{own}] exiting ioloop")
        clients.append(connect(server.tcp))
        for client in clients:
            client.pub("t", b"x")
        server.wait_for_line("TCP: serving new clients again")
        assert len(lines_with(server, "TCP: refusing clients, 3 are connected")) == 1
        assert len(lines_with(server, "TCP: serving new clients again")) == 1
        assert is_clean(server)


def test_more_http_connections_than_the_ceiling(tmp_path, connect):
    question = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with start(tmp_path, "--max-connections=2") as server:
        peers = [connect(server.http, question) for _ in range(2)]
        for peer in peers:
            assert peer.read_exactly(15) == b"HTTP/1.1 200 OK"
        answer = get(server.http, "/stats")
        assert answer.status == 503
        assert answer.json() == {"message": "TOO_MANY_CONNECTIONS"}
        with Client(server.tcp) as client:
            client.pub("t", b"x")
        for peer in peers:
            peer.close()
        # They are gone as soon as the loop has looked; until then it says no.
        eventually(lambda: get(server.http, "/ping").status != 503)
        assert get(server.http, "/ping").body == b"OK"
        assert is_clean(server)


def test_refused_peers_that_say_nothing_are_let_go(tmp_path):
    with start(tmp_path, "--max-connections=1") as server, Client(server.tcp) as client:
        client.pub("t", b"x")
        with Client(server.tcp, b"") as silent:
            assert silent.read_to_end() == b""
        with Client(server.tcp, b"  V2") as talker:
            assert talker.read_error().startswith(b"E_INVALID too many")
            with pytest.raises(ConnectionError):
                send_for_ever(talker)
