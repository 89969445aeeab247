"""nsqfast-nsq-tail beside Go's nsq_tail: the same output and exit status with both brokers."""

import asyncio
import base64
import json
import os
import pty
import signal
import subprocess
import time

import pytest

from nsqfast.client.sync import Producer
from nsqfast.tools.nsq_tail.tail import WRITE_SIZE, split
from support.fake_nsqd import FakeNsqd
from support.server import start_nsqd, start_nsqlookupd
from support.tools import Tool, check_command_line, read_terminal, run_tool, tool_command
from support.waiting import eventually
from support.web import post, stats, topic_stats
from support.wire import Client

GO = pytest.param("go", marks=pytest.mark.go)
END_SECONDS_MAX = 5.0
BODIES = [
    b"one",
    b"two\nlines\n",
    bytes(range(256)),
    b"\x1b[31mred \xff\xfe",
    b"x" * (1 << 20),
    b" ",
]


@pytest.fixture(scope="module", params=["nsqfast", GO])
def broker(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    with start_nsqd(request.param, folder, "--max-msg-size=2097152") as server:
        yield server


@pytest.fixture
def own_broker(tmp_path):
    """A broker that a test may maltreat."""
    server = start_nsqd("nsqfast", tmp_path)
    yield server
    server.kill()


def at(broker):
    return "{}:{}".format(*broker.tcp)


def flags(broker, *topics):
    return [f"--nsqd-tcp-address={at(broker)}", *[f"--topic={topic}" for topic in topics]]


def publish(broker, topic, bodies, channel="c"):
    """The channel is there before them."""
    assert post(broker.http, f"/topic/create?topic={topic}").status == 200
    assert post(broker.http, f"/channel/create?topic={topic}&channel={channel}").status == 200
    with Producer(at(broker)) as producer:
        for body in bodies:
            producer.send(topic, body)


def channel_of(broker, topic, channel="c"):
    return topic_stats(broker.http, topic)["channels"][channel]


def left(broker, topic):
    """(waiting, in flight, deferred) of channel c."""
    found = channel_of(broker, topic)
    return found["depth"], found["in_flight_count"], found["deferred_count"]


# ---- the command line


WRONG = [
    ([], 1),
    (["--topic=t"], 1),
    (["--nsqd-tcp-address=127.0.0.1:1"], 1),
    (["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--lookupd-http-address=127.0.0.1:2"], 1),
    (["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--channel=no/channel"], 1),
    (["--topic=no/topic", "--nsqd-tcp-address=127.0.0.1:1"], 1),
    (["--topic=t", "--lookupd-http-address=127.0.0.1"], 1),
    (["--n"], 2),
    (["--n=x"], 2),
    (["--nope"], 2),
    (["--print-topic=maybe"], 2),
    (["--consumer-opt=nope,1"], 2),
    (["--consumer-opt=msg_timeout,1000"], 2),
    (["--help"], 0),
]


@pytest.mark.parametrize("implementation", ["nsqfast", GO])
@pytest.mark.parametrize(("words", "status"), WRONG, ids=lambda value: " ".join(map(str, [value])))
def test_command_lines(implementation, words, status):
    check_command_line("nsq_tail", implementation, words, status)


def test_version_and_our_own_flags():
    done = run_tool("nsq_tail", "nsqfast", "-version")
    assert done.stdout.startswith(b"nsq_tail v1.3.0\n")
    for wrong in ("--format=xml", "--on-give-up=shrug", "--max-in-flight=0"):
        done = run_tool("nsq_tail", "nsqfast", "--topic=t", "--nsqd-tcp-address=127.0.0.1:1", wrong)
        assert done.returncode in {1, 2}, wrong
        assert wrong.split("=", maxsplit=1)[0].lstrip("-").encode() in done.stderr


# ---- what is printed


@pytest.mark.slow
@pytest.mark.parametrize("extra", [[], ["-print-topic"]], ids=["plain", "print-topic"])
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_prints_bodies_byte_for_byte(broker, topic, implementation, extra):
    publish(broker, topic, BODIES)
    more = ["--channel", "c", "-n", len(BODIES), *extra]
    done = run_tool("nsq_tail", implementation, *flags(broker, topic), *more)
    prefix = f"{topic} | ".encode() if extra else b""
    assert done.returncode == 0
    # Which of them comes first is nsqd's to say.
    assert len(done.stdout) == sum(len(prefix) + len(body) + 1 for body in BODIES)
    assert all(prefix + body + b"\n" in done.stdout for body in BODIES)
    assert f"Adding consumer for topic: {topic}".encode() in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_several_topics_until_told_to_end(broker, topic, implementation):
    topics = [topic, f"{topic}-b"]
    bodies = {each: [b"%s %d" % (each.encode(), number) for number in range(3)] for each in topics}
    publish(broker, topics[0], bodies[topics[0]])
    # Go's writes a line in four parts, in which another topic's may fall.
    if implementation == "nsqfast":
        publish(broker, topics[1], bodies[topics[1]])
    command = tool_command("nsq_tail", implementation, *flags(broker, *topics), "--channel=c")
    with Tool([*command, "--print-topic"]) as tool:
        if implementation == "go":
            tool.wait_for(lambda tool: tool.out.count(b"\n") == 3)
            publish(broker, topics[1], bodies[topics[1]])
        tool.wait_for(lambda tool: tool.out.count(b"\n") == 6)
        eventually(lambda: [left(broker, each) for each in topics] == [(0, 0, 0)] * 2)
        assert tool.end(signal.SIGINT) == 0
        lines = sorted(tool.out.decode().splitlines())
    assert lines == sorted(f"{each} | {each} {number}" for each in topics for number in range(3))


@pytest.mark.slow
def test_a_random_channel_is_gone_afterwards(broker, topic):
    assert post(broker.http, f"/topic/create?topic={topic}").status == 200
    with Tool(tool_command("nsq_tail", "nsqfast", *flags(broker, topic))) as tool:
        tool.wait_for(lambda tool: b"subscribed" in tool.err)
        (channel,) = topic_stats(broker.http, topic)["channels"]
        assert len(channel) == len("tail123456#ephemeral")
        assert f"channel {channel}: ephemeral, nsqd deletes it".encode() in tool.err
        clients = stats(broker.http, topic=topic)["topics"][0]["channels"][0]["clients"]
        assert clients[0]["user_agent"].startswith("nsq_tail/1.3.0 ")
        assert post(broker.http, f"/pub?topic={topic}", b"m").status == 200
        tool.wait_for(lambda tool: tool.out == b"m\n")
        assert tool.end() == 0
    eventually(lambda: not topic_stats(broker.http, topic)["channels"])


@pytest.mark.slow
@pytest.mark.parametrize(("output", "is_json"), [("json", True), ("hex", False)])
def test_formats(broker, topic, output, is_json):
    bodies = [b"plain\n\x00", b"\xff\xfe", "größer".encode()]
    publish(broker, topic, bodies)
    more = ["--channel=c", f"--format={output}", "-n=3", "--print-topic"]
    done = run_tool("nsq_tail", "nsqfast", *flags(broker, topic), *more)
    lines = done.stdout.decode().splitlines()
    if not is_json:
        assert sorted(lines) == sorted(f"{topic} | {body.hex()}" for body in bodies)
        return
    found = [json.loads(line) for line in lines]
    assert {message["topic"] for message in found} == {topic}
    assert {message["nsqd"] for message in found} == {at(broker)}
    assert {message["attempts"] for message in found} == {1}
    assert all(len(message["id"]) == 16 for message in found)
    assert all(abs(time.time_ns() - message["timestamp_ns"]) < 60e9 for message in found)
    assert {message.get("body") for message in found} == {"plain\n\x00", None, "größer"}
    assert {message.get("body_base64") for message in found} == {None, "//4="}


STEERING = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)])).replace("\n", "").replace("\t", "")


@pytest.mark.slow
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_body_does_not_steer_a_terminal(broker, topic, output):
    body = f"\x1b[2Jgrößer\tthan\n{STEERING}".encode() + b"\x9b\xff"
    publish(broker, topic, [body, body[:-2]])
    more = ["--channel=c", f"--format={output}", "-n=2", "--max-in-flight=1"]
    own, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            tool_command("nsq_tail", "nsqfast", *flags(broker, topic), *more),
            stdout=theirs,
            stderr=subprocess.DEVNULL,
        ) as tool:
            os.close(theirs)
            shown = read_terminal(own).decode().replace("\r\n", "\n")
            assert tool.wait(20) == 0
    finally:
        os.close(own)
    assert shown.replace("\n", "").replace("\t", "").isprintable()
    if output == "json":
        found = [json.loads(line) for line in shown.splitlines()]
        assert found[0]["body_base64"] == base64.b64encode(body).decode()
        assert found[1]["body"] == body[:-2].decode()
    else:
        assert shown.count("\\x1b[2Jgrößer\tthan\n\\x00\\x01") == 2
        assert "\\x9f\\x9b\\xff\n" in shown


@pytest.mark.slow
def test_what_an_nsqd_says_does_not_steer_a_terminal(topic):
    async def script(peer):
        await peer.greet()
        await peer.expect("SUB")
        peer.refuse(f"E_BAD_TOPIC \n{STEERING}")
        await peer.read_to_end()

    async def play():
        async with asyncio.timeout(50), FakeNsqd(script) as nsqd:
            words = (f"--nsqd-tcp-address={nsqd.address}", f"--topic={topic}")
            return await asyncio.to_thread(run_tool, "nsq_tail", "nsqfast", *words)

    done = asyncio.run(play())
    assert done.returncode == 1
    lines = done.stderr.decode().removesuffix("\n").split("\n")
    assert "\\x1b" in lines[-1]
    assert all(line.isprintable() for line in lines)


def test_split():
    class Stub:
        def __init__(self, size):
            self.body = bytes(size)

    small = [Stub(1) for _ in range(5000)]
    assert list(split(small)) == [small]  # thousands are one write
    large = [Stub(WRITE_SIZE - 1), Stub(1), Stub(WRITE_SIZE), Stub(2 * WRITE_SIZE), Stub(1)]
    assert [len(part) for part in split(large)] == [2, 1, 1, 1]


# ---- -n


@pytest.mark.slow
def test_what_was_printed_is_finished(broker, topic):
    publish(broker, topic, [b"%d" % number for number in range(10)])
    done = run_tool("nsq_tail", "nsqfast", *flags(broker, topic), "--channel=c", "-n=4")
    assert done.returncode == 0
    printed = done.stdout.split()
    assert len(printed) == 4
    eventually(lambda: left(broker, topic) == (6, 0, 0))
    # The others were not even delivered.
    with Client(broker.tcp) as client:
        client.identify()
        client.sub(topic, "c", 6)
        rest = client.read_messages(6)
    assert {message.attempts for message in rest} == {1}
    assert {message.body for message in rest} | set(printed) == {b"%d" % n for n in range(10)}


@pytest.mark.slow
def test_n_with_two_nsqd(broker, own_broker, topic):
    for server in (broker, own_broker):
        publish(server, topic, [b"m"] * 5)
    more = [f"--nsqd-tcp-address={at(own_broker)}", "--channel=c", "-n=7"]
    done = run_tool("nsq_tail", "nsqfast", *flags(broker, topic), *more)
    assert (done.returncode, done.stdout) == (0, b"m\n" * 7)
    eventually(lambda: sum(left(broker, topic)[:1] + left(own_broker, topic)[:1]) == 3)


# ---- where the output goes


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_a_closed_pipe_ends_it_like_sigpipe(broker, topic, implementation):
    publish(broker, topic, [b"m"] * 3)
    command = tool_command("nsq_tail", implementation, *flags(broker, topic), "--channel=c")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(2) == b"m\n"
        process.stdout.close()
        if implementation == "go":  # which does not notice before it writes again
            assert post(broker.http, f"/pub?topic={topic}", b"m").status == 200
        assert process.wait(20) == -signal.SIGPIPE
        assert b"rror" not in process.stderr.read()
    if implementation == "nsqfast":
        eventually(lambda: left(broker, topic)[1:] == (0, 0))


@pytest.mark.slow
def test_a_closed_pipe_is_noticed_without_messages(broker, topic):
    publish(broker, topic, [])
    command = tool_command("nsq_tail", "nsqfast", *flags(broker, topic), "--channel=c")
    done = subprocess.run(
        ["bash", "-c", '"$@" | true; echo ${PIPESTATUS[0]}', "bash", *command],
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.stdout == b"%d\n" % (128 + signal.SIGPIPE)


@pytest.mark.slow
def test_heartbeats_are_answered_while_nobody_reads(topic):
    body = b"x" * 300_000  # more than a pipe holds

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        peer.deliver(1, body)
        # It began to write, so the rest is stuck in the pipe.
        assert await asyncio.to_thread(os.read, process.stdout.fileno(), 1) == b"x"
        for _ in range(3):
            peer.respond(b"_heartbeat_")
            await peer.expect("NOP")
        read = asyncio.to_thread(process.stdout.read, len(body))
        assert await read == body[1:] + b"\n"
        assert (await peer.expect("FIN"))[0] == ["0" * 15 + "1"]
        process.send_signal(signal.SIGTERM)
        assert await peer.part() == []

    async def play():
        nonlocal process
        async with asyncio.timeout(50), FakeNsqd(script) as nsqd:
            words = [f"--nsqd-tcp-address={nsqd.address}", f"--topic={topic}"]
            process = subprocess.Popen(  # noqa: ASYNC220 - it only starts
                tool_command("nsq_tail", "nsqfast", *words),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert await asyncio.to_thread(process.wait, 20) == 0

    process = None
    try:
        asyncio.run(play())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_a_full_disk_ends_it(broker, topic, implementation):
    publish(broker, topic, [b"m"])
    command = tool_command("nsq_tail", implementation, *flags(broker, topic), "--channel=c")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=20, check=False)
    assert done.returncode == 1
    assert b"no space left on device" in done.stderr.splitlines()[-1]
    if implementation == "nsqfast":
        eventually(lambda: left(broker, topic) == (1, 0, 0))


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors(broker, topic, implementation, closed):
    publish(broker, topic, [b"m"])
    words = tool_command("nsq_tail", implementation, *flags(broker, topic), "--channel=c", "-n=1")
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *words], capture_output=True, timeout=20, check=False
    )
    assert done.returncode == 0, done
    assert done.stdout == (b"" if ">&-" in closed.replace("2>&-", "") else b"m\n")
    assert (b"Adding" in done.stderr) == ("2>&-" not in closed)


# ---- signals and trouble


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whatever_is_finished_was_printed(broker, topic, number):
    bodies = {b"%d" % number for number in range(30_000)}
    publish(broker, topic, bodies)
    eventually(lambda: sum(left(broker, topic)) == len(bodies))  # Go's topic hands over one by one
    # Go's nsqd may send a message after CLOSE_WAIT: nobody gives that one back, it comes again after its time-out.
    more = ("--channel=c", "--consumer-opt=msg_timeout,10s")
    command = tool_command("nsq_tail", "nsqfast", *flags(broker, topic), *more)
    with Tool(command) as tool:
        tool.wait_for(lambda tool: tool.out.count(b"\n") > 1000)
        tool.end(number)
        printed = set(tool.out[: tool.out.rfind(b"\n")].split())
    eventually(lambda: not channel_of(broker, topic)["clients"])
    remaining = sum(left(broker, topic))
    assert printed <= bodies
    assert 0 < len(bodies) - remaining <= len(printed)
    if number == signal.SIGTERM:
        eventually(lambda: left(broker, topic) == (len(bodies) - len(printed), 0, 0))


@pytest.mark.slow
def test_sigterm_while_nobody_reads(broker, topic):
    body = b"x" * 100_000  # more than a pipe holds
    publish(broker, topic, [body] * 5)
    command = tool_command("nsq_tail", "nsqfast", *flags(broker, topic), "--channel=c")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert os.read(process.stdout.fileno(), 1) == b"x"
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_SECONDS_MAX) == 0
    eventually(lambda: left(broker, topic) == (5, 0, 0))


@pytest.mark.slow
def test_sigterm_while_nsqd_is_frozen(own_broker, topic):
    command = tool_command("nsq_tail", "nsqfast", *flags(own_broker, topic))
    with Tool(command) as tool:
        tool.wait_for(lambda tool: b"subscribed" in tool.err)
        own_broker.freeze()
        assert tool.end(seconds_max=END_SECONDS_MAX) == 0


@pytest.mark.slow
def test_the_first_connect_is_tried_again(tmp_path, topic):
    with start_nsqd("nsqfast", tmp_path) as server:
        address, port = at(server), server.tcp[1]
    command = tool_command(
        "nsq_tail", "nsqfast", f"--nsqd-tcp-address={address}", f"--topic={topic}"
    )
    with Tool(command) as tool:
        tool.wait_for(lambda tool: f"{address}: no connection".encode() in tool.err)
        with start_nsqd("nsqfast", tmp_path, f"--tcp-address=127.0.0.1:{port}") as server:
            tool.wait_for(lambda tool: b"subscribed" in tool.err)
            publish(server, topic, [b"m"])
            tool.wait_for(lambda tool: tool.out == b"m\n")
            assert tool.end() == 0


@pytest.mark.slow
def test_a_port_that_is_not_nsqd_is_an_error(own_broker, topic):
    address = "{}:{}".format(*own_broker.http)
    done = run_tool("nsq_tail", "nsqfast", f"--nsqd-tcp-address={address}", f"--topic={topic}")
    assert done.returncode == 1
    assert address.encode() in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_through_nsqlookupd(tmp_path, implementation, topic):
    with start_nsqlookupd("nsqfast") as lookupd:
        lookups = "--lookupd-tcp-address={}:{}".format(*lookupd.tcp)
        with start_nsqd("nsqfast", tmp_path, lookups) as server:
            publish(server, topic, [b"m"])
            address = "--lookupd-http-address={}:{}".format(*lookupd.http)
            more = [address, f"--topic={topic}", "--channel=c", "-n=1"]
            done = run_tool("nsq_tail", implementation, *more)
    assert (done.returncode, done.stdout) == (0, b"m\n")


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_the_first_topic_that_has_shown_n_ends_it(broker, topic, implementation):
    topics = [topic, f"{topic}-b"]
    publish(broker, topics[0], [b"m"])
    publish(broker, topics[1], [b"m"] * 3)
    more = ["--channel=c", "-n=2", "--print-topic"]
    done = run_tool("nsq_tail", implementation, *flags(broker, *topics), *more)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0
    assert lines.count(f"{topics[1]} | m") == 2
    assert lines.count(f"{topics[0]} | m") == len(lines) - 2
    if implementation == "nsqfast":
        eventually(lambda: left(broker, topics[1]) == (1, 0, 0))
        eventually(lambda: left(broker, topics[0]) == (3 - len(lines), 0, 0))


@pytest.mark.slow
@pytest.mark.parametrize(("action", "status"), [("finish", None), ("exit", 1)])
def test_messages_that_had_their_attempts(broker, topic, action, status):
    publish(broker, topic, [b"bad"])
    with Client(broker.tcp) as client:
        client.identify()
        client.sub(topic, "c", 1)
        message = client.read_message()
        client.command("RDY", "0")
        client.command("REQ", message.id, "0")
        client.barrier()
    more = ["--channel=c", f"--on-give-up={action}", "--consumer-opt=max_attempts,1"]
    with Tool(tool_command("nsq_tail", "nsqfast", *flags(broker, topic), *more)) as tool:
        if status is None:
            tool.wait_for(lambda tool: b"giving up" in tool.err)
            eventually(lambda: left(broker, topic) == (0, 0, 0))
            assert tool.end() == 0
        else:
            assert tool.end(None) == status
            eventually(lambda: left(broker, topic)[1:] == (0, 1))  # it waits for its next attempt
        assert tool.out == b""
        assert f"giving up {topic}: ".encode() in tool.err
