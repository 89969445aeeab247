"""nsq_to_http: what Go's tool lacks, and trouble. With our nsqd and with Go's."""

import asyncio
import signal
import time

import pytest

from support.destination import Destination, answer
from support.server import start_nsqd
from support.to_http import SECONDS_MAX, channel, fill, first_answer, left, start
from support.tools import Tool, tool_command
from support.waiting import eventually
from support.web import topic_stats

GO = pytest.param("go", marks=pytest.mark.go)
OK = answer(200)


@pytest.fixture(scope="module", params=["nsqfast", GO])
def broker(request, tmp_path_factory):
    with start_nsqd(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield server


# -- what Go's lacks


def test_a_long_retry_after_is_a_long_delay():
    def later(_caller, _request):
        return answer(429, "Retry-After: 120")

    name, delay_ms = asyncio.run(first_answer("nsqfast", ["--post=ONE/"], later))
    assert name == "REQ"
    assert 119_000 < int(delay_ms) <= 120_000


def test_a_stop_ends_the_wait_for_a_destination(broker, topic):
    fill(broker, topic, b"body")
    with (
        Destination(lambda *_: answer(503, "Retry-After: 25")) as server,
        start(broker, topic, f"--post={server.url}") as tool,
    ):
        server.wait_for_count(1)
        assert tool.end(seconds_max=10) == 0
    assert left(broker, topic) == 1


def unpack(request, layout):
    if layout == "json-lines":
        assert request.body.endswith(b"\n")
        return request.body[:-1].split(b"\n")
    found, rest = [], request.body
    while rest:
        size = int.from_bytes(rest[:4], "big")
        found.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    return found


@pytest.mark.parametrize("layout", ["json-lines", "length-prefixed"])
def test_batches(broker, topic, layout):
    bodies = [b"%d" % number for number in range(250)]
    fill(broker, topic, *bodies)
    flags = ["--batch=100", f"--batch-format={layout}"]
    with Destination() as server, start(broker, topic, f"--post={server.url}", *flags) as tool:
        server.wait_for(lambda requests: sum(map(count, requests)) >= 250)
        assert tool.end() == 0
    assert left(broker, topic) == 0
    found = [body for request in server.requests for body in unpack(request, layout)]
    assert sorted(found, key=int) == bodies
    assert max(map(count, server.requests)) == 100
    kinds = {request.header("Content-Type") for request in server.requests}
    wanted = "application/x-ndjson" if layout == "json-lines" else "application/octet-stream"
    assert kinds == {wanted}


def count(request):
    return int(request.header("X-Nsq-Message-Count") or 0)


def test_a_batch_that_fails_comes_again_as_a_whole(broker, topic):
    seen = []

    def fail_once(_caller, _request):
        seen.append(1)
        return answer(500) if len(seen) == 1 else OK

    bodies = [b"%d" % number for number in range(5)]
    fill(broker, topic, *bodies)
    soon = ["--consumer-opt=default_requeue_delay,0s", "--consumer-opt=max_backoff_duration,0s"]
    with (
        Destination(fail_once) as server,
        start(broker, topic, f"--post={server.url}", "--batch=5", *soon) as tool,
    ):
        server.wait_for(lambda requests: sum(map(count, requests)) >= 10)
        eventually(lambda: not left(broker, topic))
        assert tool.end() == 0
    assert b"got status code 500; requeued: 5 messages from" in tool.err
    assert channel(broker, topic)["requeue_count"] == 5


def test_what_is_given_up_goes_elsewhere(broker, topic):
    fill(broker, topic, b"poison")
    soon = ["--consumer-opt=default_requeue_delay,0s", "--consumer-opt=max_backoff_duration,0s"]
    flags = [*soon, "--consumer-opt=max_attempts,2", f"--on-give-up=topic:{topic}-dead"]
    with (
        Destination(lambda *_: answer(500)) as server,
        start(broker, topic, f"--post={server.url}", *flags) as tool,
    ):
        eventually(lambda: topic_stats(broker.http, f"{topic}-dead"), SECONDS_MAX)
        eventually(lambda: not left(broker, topic))
        assert tool.end() == 0
    assert len(server.requests) == 2
    assert b"giving up" in tool.err


# -- trouble


def test_any_bytes_arrive(broker, topic):
    large = bytes(range(256)) * 4096
    bodies = [b"\n\0\r\n", b"two\nlines\n", large[:-1]]
    fill(broker, topic, *bodies)
    with Destination() as server, start(broker, topic, f"--post={server.url}") as tool:
        server.wait_for_count(3)
        assert tool.end() == 0
    assert sorted(server.bodies) == sorted(bodies)
    assert left(broker, topic) == 0


COUNT = 20_000


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("flags", [(), ("--batch=50",)])
def test_nothing_is_finished_that_was_not_taken(broker, topic, number, flags):
    """Killed or stopped in the middle, and then one that does the rest."""
    # Go's nsqd keeps what a dead consumer had until its time is up.
    flags = (*flags, "--consumer-opt=msg_timeout,1s")
    wanted = [b"%d" % number for number in range(COUNT)]
    fill(broker, topic, *wanted)
    taken = []

    def take(_caller, request):
        taken.extend(unpack(request, "json-lines") if len(flags) > 1 else [request.body])
        return OK

    with (
        Destination(take) as server,
        start(broker, topic, f"--post={server.url}", *flags) as tool,
    ):
        eventually(lambda: len(taken) >= COUNT // 10, SECONDS_MAX)
        status = tool.end(number)
        assert status == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        eventually(lambda: channel(broker, topic)["client_count"] == 0)
        before = left(broker, topic)
        assert COUNT - len(set(taken)) <= before < COUNT
        if number == signal.SIGTERM:
            assert COUNT - before == len(taken)  # and nothing came twice
        with start(broker, topic, f"--post={server.url}", *flags) as second:
            eventually(lambda: not left(broker, topic), SECONDS_MAX)
            assert second.end() == 0
    assert set(taken) == set(wanted)


@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_a_frozen_nsqd_at_the_end(implementation, topic, tmp_path):
    with start_nsqd(implementation, tmp_path) as broker, Destination() as server:
        fill(broker, topic, b"body")
        with start(broker, topic, f"--post={server.url}") as tool:
            server.wait_for_count(1)
            with broker.frozen():
                began_s = time.monotonic()
                assert tool.end() == 0
                assert time.monotonic() - began_s < 5


def test_a_frozen_destination_at_the_end(broker, topic):
    """What it never answered is not finished, and the tool ends when the request's time is up."""
    fill(broker, topic, b"body")
    flags = ["--http-client-request-timeout=2s", "--consumer-opt=default_requeue_delay,0s"]
    with (
        Destination(lambda caller, _: caller.hang()) as server,
        start(broker, topic, f"--post={server.url}", *flags) as tool,
    ):
        server.wait_for_count(1)
        assert tool.end(seconds_max=15) == 0
    assert left(broker, topic) == 1


def test_a_destination_that_restarts(broker, topic):
    """It hangs up while requests are under way; another attempt gets them through."""
    fill(broker, topic, *[b"%d" % number for number in range(300)])
    soon = ["--consumer-opt=default_requeue_delay,0s", "--consumer-opt=max_backoff_duration,0s"]
    taken = set()

    def restart(caller, request):
        if len(taken) == 100 and request.body not in taken:
            taken.add(request.body)
            caller.server.hang_up_all()
            return None
        taken.add(request.body)
        return OK

    with (
        Destination(restart) as server,
        start(broker, topic, f"--post={server.url}", *soon, "--n=10") as tool,
    ):
        eventually(lambda: not left(broker, topic), SECONDS_MAX)
        assert tool.end() == 0
    assert len(taken) == 300


@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_nsqd_that_comes_late_and_restarts(implementation, topic, tmp_path):
    flags = ["--post=URL", "--consumer-opt=default_requeue_delay,0s"]
    with start_nsqd(implementation, tmp_path) as broker:
        port = broker.tcp[1]
    where = f"--tcp-address=127.0.0.1:{port}"
    with Destination() as server:
        flags[0] = f"--post={server.url}"
        with start(broker, topic, *flags) as tool:
            tool.wait_for(lambda tool: b"refused" in tool.err)
            for body in (b"first", b"second"):
                with start_nsqd(implementation, tmp_path, where) as broker:
                    fill(broker, topic, body)
                    server.wait_for(lambda requests, body=body: body in server.bodies)
                    eventually(lambda broker=broker: not left(broker, topic))
            assert tool.end() == 0
    assert b"Traceback" not in tool.err


def test_a_stop_before_anything_is_connected(topic):
    command = tool_command("nsq_to_http", "nsqfast", f"--topic={topic}", "--post=http://h/")
    with Tool([*command, "--nsqd-tcp-address=127.0.0.1:1"]) as tool:
        tool.wait_for(lambda tool: b"refused" in tool.err)
        assert tool.end(seconds_max=5) == 0
