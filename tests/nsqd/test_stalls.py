"""A broker that stood still (SIGSTOP, a frozen machine) reads what waits before it judges who was silent."""

import asyncio
import socket
import time

import pytest
import uvloop

from nsqfast.nsqd.timers import LATE_NS, DeadlineTimer
from support.server import start_nsqd
from support.web import topic_stats
from support.wire import HEARTBEAT, RESPONSE, encode_command

HEARTBEAT_MS = 1000
STALL_S = 3.2  # more than two heartbeats and the rest of a third
CONSUMER_COUNT, IN_FLIGHT = 20, 50


def consumers(server, connect):
    """Clients with messages in flight whose timeouts end while the broker stands still; [(client, messages)]."""
    found = []
    for _ in range(CONSUMER_COUNT):
        client = connect(server.tcp)
        client.identify(heartbeat_interval=HEARTBEAT_MS, msg_timeout=2 * HEARTBEAT_MS)
        client.sub("t", "c", IN_FLIGHT)
        found.append(client)
    found[0].mpub("t", [b"%d" % number for number in range(CONSUMER_COUNT * IN_FLIGHT)])
    return [(client, client.read_messages(IN_FLIGHT)) for client in found]


@pytest.mark.slow
def test_what_came_while_the_broker_stood_still_counts(tmp_path, connect):
    with start_nsqd("nsqfast", tmp_path) as server:
        found = consumers(server, connect)
        silent, publisher = connect(server.tcp), connect(server.tcp)
        for client in (silent, publisher):
            client.identify(heartbeat_interval=HEARTBEAT_MS)
        half = encode_command("PUB", "other", body=b"x" * 1000)
        publisher.send(half[:500])
        with server.frozen():
            for client, messages in found:
                for message in messages:
                    client.fin(message)
            time.sleep(STALL_S)
        assert publisher.read_frame() == (RESPONSE, HEARTBEAT)  # asked before it is judged
        publisher.send(half[500:])
        assert publisher.read_response() == b"OK"
        for client, _ in found:
            client.barrier()
        channel = topic_stats(server.http, "t")["channels"]["c"]
        assert channel["client_count"] == CONSUMER_COUNT
        counts = [
            channel[name] for name in ("timeout_count", "requeue_count", "in_flight_count", "depth")
        ]
        assert counts == [0, 0, 0, 0]
        assert (
            sum(client["finish_count"] for client in channel["clients"])
            == CONSUMER_COUNT * IN_FLIGHT
        )
        # Who says nothing afterwards either is dropped, and nobody else.
        silent.read_to_end()
        assert [line for line in server.lines if "i/o timeout" in line and "client(" in line] == [
            line
            for line in server.lines
            if f":{silent.socket.getsockname()[1]}) - i/o timeout" in line
        ]


def test_sockets_are_read_before_what_is_due_is_done():
    said = []

    async def scenario():
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        done = asyncio.Event()

        def read():
            said.append(ours.recv(1))
            if len(said) == 1:
                theirs.send(b"2")
                time.sleep(
                    2 * LATE_NS / 1e9
                )  # here the loop stands still; the timers are what it looks at next

        def run(_now_ns):
            said.append("due")
            done.set()
            return 0

        with ours, theirs:
            timer = DeadlineTimer(loop, run)
            loop.add_reader(ours, read)
            timer.announce(time.monotonic_ns() + LATE_NS // 2)
            theirs.send(b"1")
            await asyncio.wait_for(done.wait(), 10)
            loop.remove_reader(ours)
            timer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
    assert said == [b"1", b"2", "due"]
