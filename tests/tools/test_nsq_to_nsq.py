"""nsqfast-nsq-to-nsq, and Go's nsq_to_nsq wherever they are to do the same."""

import contextlib
import re
import signal

import pytest

from support.drain import address_of, drain, message_count
from support.programs import left, publish
from support.server import start_nsqd, start_nsqlookupd
from support.tools import Tool, run_tool, tool_command
from support.waiting import eventually
from support.web import topic_stats

GO = pytest.param("go", marks=pytest.mark.go)
MEBIBYTE = 1 << 20
CHANNEL = "nsq_to_nsq"
FLAGS = ("--mem-queue-size=200000",)


def pair(tool, broker):
    marks = pytest.mark.go if "go" in {tool, broker} else ()
    return pytest.param(tool, broker, id=f"{tool}-on-{broker}", marks=marks)


on_each_pair = pytest.mark.parametrize(
    ("tool", "brokers"),
    [pair("nsqfast", "nsqfast"), pair("nsqfast", "go"), pair("go", "nsqfast")],
    indirect=["brokers"],
)


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Three brokers of an implementation, started once."""
    found = {}
    with contextlib.ExitStack() as stack:

        def start_three(implementation):
            if implementation not in found:
                folders = [tmp_path_factory.mktemp("nsqd") for _ in range(3)]
                found[implementation] = [
                    stack.enter_context(start_nsqd(implementation, folder, *FLAGS))
                    for folder in folders
                ]
            return found[implementation]

        yield start_three


@pytest.fixture
def brokers(request, started):
    """A source and two destinations."""
    return started(request.param)


@pytest.fixture(params=["nsqfast", GO])
def tool(request):
    return request.param


def start(tool, source, destinations, topics, *flags):
    words = [f"--topic={topic}" for topic in topics]
    words += [f"--nsqd-tcp-address={address_of(source)}"]
    words += [f"--destination-nsqd-tcp-address={address_of(one)}" for one in destinations]
    return Tool(tool_command("nsq_to_nsq", tool, *words, *flags))


def is_drained(broker, topic):
    """Whether the tool has subscribed and finished everything."""
    found = topic_stats(broker.http, topic)
    return not found["depth"] and CHANNEL in found["channels"] and not left(broker, topic, CHANNEL)


def numbered(count, first=0):
    return [b"%d" % number for number in range(first, first + count)]


# -- what arrives where


@on_each_pair
def test_everything_arrives_in_order(tool, brokers, topic):
    source, destination, _ = brokers
    bodies = [b"\0\n", b"\xff" * 100, *numbered(5000), b"x" * MEBIBYTE, *numbered(100)]
    for first in range(0, len(bodies), 1000):
        publish(address_of(source), topic, *bodies[first : first + 1000])
    with start(tool, source, [destination], [topic], "--status-every=0") as running:
        eventually(lambda: message_count(destination, topic) == len(bodies))
        eventually(lambda: is_drained(source, topic))
        assert running.end() == 0
        assert running.out == b""
    assert drain(destination, topic) == bodies
    assert message_count(destination, topic) == len(bodies)


@on_each_pair
def test_topics_keep_their_names_or_get_one(tool, brokers, topic):
    source, destination, other = brokers
    topics = [f"{topic}-a", f"{topic}-b"]
    for name in topics:
        publish(address_of(source), name, name.encode())
    with start(tool, source, [destination], topics) as running:
        eventually(lambda: all(message_count(destination, name) == 1 for name in topics))
        assert running.end(signal.SIGINT) == 0
    assert [drain(destination, name) for name in topics] == [[name.encode()] for name in topics]
    for name in topics:
        publish(address_of(source), name, name.encode())
    flags = ("--destination-topic", f"{topic}-all", "-channel=" + CHANNEL)
    with start(tool, source, [other], topics, *flags) as running:
        eventually(lambda: message_count(other, f"{topic}-all") == 2)
        assert running.end() == 0
    assert sorted(drain(other, f"{topic}-all")) == [name.encode() for name in topics]


@on_each_pair
@pytest.mark.parametrize("mode", ["round-robin", "hostpool", "unknown"])
def test_destinations_take_turns(tool, brokers, topic, mode):
    source, *destinations = brokers
    publish(address_of(source), topic, *numbered(1001))
    with start(tool, source, destinations, [topic], f"--mode={mode}") as running:
        eventually(lambda: is_drained(source, topic))
        assert running.end() == 0
    counts = sorted(message_count(one, topic) for one in destinations)
    assert sum(counts) == 1001
    assert counts == [500, 501]
    found = [body for one in destinations for body in drain(one, topic)]
    assert sorted(found) == sorted(numbered(1001))


@on_each_pair
def test_epsilon_greedy(tool, brokers, topic):
    source, *destinations = brokers
    publish(address_of(source), topic, *numbered(1000))
    with start(tool, source, destinations, [topic], "--mode=epsilon-greedy") as running:
        eventually(lambda: is_drained(source, topic))
        assert running.end() == 0
    assert sorted(body for one in destinations for body in drain(one, topic)) == sorted(
        numbered(1000)
    )


@pytest.mark.parametrize("brokers", ["nsqfast"], indirect=True)
def test_several_sources_and_destinations(brokers, topic, tmp_path):
    """Found by nsqlookupd; each destination is another nsqd."""
    with start_nsqlookupd("nsqfast") as lookupd:
        flag = f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp[1]}"
        folders = [tmp_path / name for name in "ab"]
        for folder in folders:
            folder.mkdir()
        sources = [start_nsqd("nsqfast", folder, flag) for folder in folders]
        try:
            for number, source in enumerate(sources):
                publish(address_of(source), topic, *numbered(500, number * 500))
            words = [
                f"--topic={topic}",
                f"--lookupd-http-address=127.0.0.1:{lookupd.http[1]}",
                "--consumer-opt=lookupd_poll_interval,100ms",
                "--max-in-flight=100",
            ]
            words += [f"--destination-nsqd-tcp-address={address_of(one)}" for one in brokers]
            with Tool(tool_command("nsq_to_nsq", "nsqfast", *words)) as running:
                eventually(lambda: sum(message_count(one, topic) for one in brokers) == 1000)
                assert running.end() == 0
        finally:
            for source in sources:
                source.stop()
    assert sorted(body for one in brokers for body in drain(one, topic)) == sorted(numbered(1000))
    assert min(message_count(one, topic) for one in brokers) >= 250


# -- what it says


@on_each_pair
def test_status_lines(tool, brokers, topic):
    source, *destinations = brokers
    publish(address_of(source), topic, *numbered(1000))
    with start(tool, source, destinations, [topic], "--status-every=100") as running:
        eventually(lambda: is_drained(source, topic))
        assert running.end() == 0
    pattern = (
        r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(\S+)\]: finished 100 - "
        r"99th: \d+\.\d\dms - 95th: \d+\.\d\dms - avg: \d+\.\d\dms$"
    )
    names = re.findall(pattern, running.err.decode(), re.MULTILINE)
    # The first one comes with the 101st message.
    assert names.count("aggregate") == 9
    for one in destinations:
        assert names.count(address_of(one)) == (message_count(one, topic) - 1) // 100


ADDRESSES = ("--nsqd-tcp-address=127.0.0.1:1", "--destination-nsqd-tcp-address=127.0.0.1:1")


@pytest.mark.parametrize(
    ("flags", "status", "text"),
    [
        ([], 1, "--topic and --channel are required"),
        (["--topic=t", "--channel="], 1, "--topic and --channel are required"),
        (["--topic=t t"], 1, "--topic is invalid"),
        (["--topic=t", "--destination-topic=t t"], 1, "--destination-topic is invalid"),
        (["--topic=t", "--channel=c c"], 1, "--channel is invalid"),
        (["--topic=t"], 1, "--nsqd-tcp-address or --lookupd-http-address required"),
        (
            ["--topic=t", "--lookupd-http-address=127.0.0.1:1", ADDRESSES[0]],
            1,
            "use --nsqd-tcp-address or --lookupd-http-address not both",
        ),
        (["--topic=t", ADDRESSES[0]], 1, "--destination-nsqd-tcp-address required"),
        (["--topic=t", *ADDRESSES, "--consumer-opt=nonsense"], 2, None),
        (["--topic=t", *ADDRESSES, "--producer-opt=dial_timeout,5"], 2, None),
        (["--topic=t", *ADDRESSES, "--max-in-flight=x"], 2, None),
        (["--nonsense"], 2, None),
        (["--help"], 0, None),
    ],
)
def test_exit_status(tool, flags, status, text):
    done = run_tool("nsq_to_nsq", tool, *flags)
    is_help = flags == ["--help"] and tool == "nsqfast"
    assert (done.returncode, bool(done.stdout)) == (status, is_help), done.stderr
    if text is not None:
        said = done.stderr.decode().splitlines()[-1].split(" ", 2)[2]
        assert said.partition(": '")[0] == text  # ours shows an invalid name, too
    if status == 2:
        assert (
            b"see nsqfast-nsq-to-nsq --help" if tool == "nsqfast" else b"Usage of"
        ) in done.stderr


def test_version(tool):
    done = run_tool("nsq_to_nsq", tool, "--version")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == b"nsq_to_nsq v1.3.0"


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--max-in-flight=0"], "--max-in-flight"),
        (["--on-give-up=nonsense"], "--on-give-up"),
        (["--consumer-opt=read_timeout,1s"], "heartbeat_interval"),
    ],
)
def test_what_cannot_be_honoured(flags, text):
    done = run_tool("nsq_to_nsq", "nsqfast", "--topic=t", *ADDRESSES, *flags)
    assert done.returncode == 1
    assert text in done.stderr.decode().splitlines()[-1]


@pytest.mark.parametrize("brokers", ["nsqfast"], indirect=True)
def test_a_destination_that_is_none(brokers, topic):
    """An HTTP port: there is no use in trying on."""
    source, *_ = brokers
    words = [
        f"--topic={topic}",
        f"--nsqd-tcp-address={address_of(source)}",
        "--destination-nsqd-tcp-address={}:{}".format(*source.http),
    ]
    done = run_tool("nsq_to_nsq", "nsqfast", *words)
    assert done.returncode == 1
    assert b"HTTP port" in done.stderr.splitlines()[-1]
    assert topic_stats(source.http, topic) is None
