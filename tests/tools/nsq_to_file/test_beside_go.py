"""The same conversation with Go's tool and ours, and with both brokers: the same files, output and exit status."""

import contextlib
import os
import signal
import socket
import time
from functools import partial

import pytest

from support.archived import CHANNEL, files_in, is_drained, unfinished, unpack
from support.programs import publish
from support.server import start_nsqlookupd
from support.tools import Tool, tool_command
from support.waiting import eventually
from support.web import topic_stats

pytestmark = pytest.mark.soak

SOON = "--sync-interval=50ms"
NEVER = "--sync-interval=1h"
NAME = "--filename-format=<TOPIC><REV>.log"


PAIRS = [
    pytest.param(("nsqfast", "nsqfast"), id="ours"),
    pytest.param(("go", "nsqfast"), id="ours-with-go-nsqd", marks=pytest.mark.go),
    pytest.param(("go", "go"), id="go", marks=pytest.mark.go),
]


@pytest.fixture(scope="module", params=PAIRS)
def pair(request):
    """Whose nsqd, and whose tool."""
    return request.param


@pytest.fixture(scope="module")
def implementation(pair):
    return pair[0]


@pytest.fixture
def tool(pair):
    return pair[1]


@pytest.fixture
def start(tool, address, tmp_path):
    """Starts the tool with these flags beside the usual ones."""

    def begin(*flags, source=None):
        source = source or f"--nsqd-tcp-address={address}"
        return Tool(
            tool_command("nsq_to_file", tool, f"--output-dir={tmp_path}/out", source, *flags)
        )

    return begin


def contents(folder):
    return {name: unpack(name, data) for name, data in files_in(folder).items()}


def lines(*bodies):
    return b"".join(body + b"\n" for body in bodies)


def is_consumed(broker, topic):
    found = topic_stats(broker.http, topic)
    return found is not None and found["channels"].get(CHANNEL, {}).get("clients")


def numbers(first, last):
    return [b"message %04d" % number for number in range(first, last)]


def drained(broker, *topics):
    return partial(is_drained, broker, topics)


def ends_well(running, number=signal.SIGTERM):
    assert running.end(number) == 0, running.text
    assert running.out == b""
    return running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_lines(start, broker, address, topic, tmp_path, number):
    bodies = [*numbers(0, 500), b"a\nb", b"\0\xff"]
    publish(address, topic, *bodies)
    with start(f"--topic={topic}", SOON) as running:
        eventually(drained(broker, topic))
        ends_well(running, number)
    host = socket.gethostname().partition(".")[0]
    names = [time.strftime(f"{topic}.{host}.%Y-%m-%d_%H.log", time.localtime(s)) for s in (
        time.time() - 60, time.time())]  # fmt: skip
    ((name, data),) = files_in(tmp_path / "out").items()
    assert name in names
    assert data == lines(*bodies)


def test_messages_are_there_at_once_and_finished_when_they_are_synced(
    start, broker, address, topic, tmp_path
):
    publish(address, topic, b"first")
    with start(f"--topic={topic}", NEVER, NAME) as running:
        eventually(drained(broker, topic))  # a file was begun
        publish(address, topic, *numbers(0, 5))
        path = tmp_path / "out" / f"{topic}.log"
        eventually(lambda: path.read_bytes() == lines(b"first", *numbers(0, 5)))
        assert topic_stats(broker.http, topic)["channels"][CHANNEL]["in_flight_count"] == 5
        ends_well(running)
    assert unfinished(broker, topic) == 0


def test_as_many_as_may_be_in_flight_are_synced(start, broker, address, topic, tmp_path):
    publish(address, topic, *numbers(0, 101))
    with start(f"--topic={topic}", NEVER, NAME, "--max-in-flight=10") as running:
        path, expected = tmp_path / "out" / f"{topic}.log", lines(*numbers(0, 101))
        eventually(lambda: path.exists() and path.read_bytes() == expected)
        eventually(lambda: unfinished(broker, topic) < 10)
        ends_well(running)
    assert unfinished(broker, topic) == 0


def test_a_restart_goes_on_with_the_file(start, broker, address, topic, tmp_path):
    for first in (0, 50):
        publish(address, topic, *numbers(first, first + 50))
        with start(f"--topic={topic}", SOON, NAME) as running:
            eventually(drained(broker, topic))
            ends_well(running)
    assert contents(tmp_path / "out") == {f"{topic}.log": lines(*numbers(0, 100))}


def test_gzip(start, broker, address, topic, tmp_path):
    for first in (0, 50):
        publish(address, topic, *numbers(first, first + 50))
        with start(f"--topic={topic}", SOON, NAME, "--gzip", "--gzip-level=9") as running:
            eventually(drained(broker, topic))
            ends_well(running)
    assert contents(tmp_path / "out") == {
        f"{topic}-000000.log.gz": lines(*numbers(0, 50)),
        f"{topic}-000001.log.gz": lines(*numbers(50, 100)),
    }


def test_rotation_by_size(start, broker, address, topic, tmp_path):
    """A line is 13 bytes; the file that has more than 130 is full."""
    publish(address, topic, *numbers(0, 25))
    with start(f"--topic={topic}", SOON, NAME, "--rotate-size=130") as running:
        eventually(drained(broker, topic))
        ends_well(running)
    assert contents(tmp_path / "out") == {
        f"{topic}-000000.log": lines(*numbers(0, 11)),
        f"{topic}-000001.log": lines(*numbers(11, 22)),
        f"{topic}-000002.log": lines(*numbers(22, 25)),
    }


def test_rotation_by_time(start, broker, address, topic, tmp_path):
    flags = (f"--topic={topic}", SOON, NAME, "--rotate-interval=100ms", "--skip-empty-files")
    with start(*flags) as running:
        for number in range(3):
            publish(address, topic, b"%d" % number)
            eventually(drained(broker, topic))
            running.wait_for(lambda tool, n=number: tool.err.count(b"since last open") > n)
        ends_well(running)
    assert contents(tmp_path / "out") == {
        f"{topic}-{number:06}.log": b"%d\n" % number for number in range(3)
    }


def test_files_are_moved_when_they_are_done(start, broker, address, topic, tmp_path):
    flags = (f"--topic={topic}", SOON, NAME, f"--work-dir={tmp_path}/work", "--rotate-size=130")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f"{topic}-000001.log").write_bytes(b"somebody else's")
    publish(address, topic, *numbers(0, 15))
    with start(*flags) as running:
        eventually(drained(broker, topic))
        assert contents(tmp_path / "work") == {f"{topic}-000002.log": lines(*numbers(11, 15))}
        ends_well(running)
    assert contents(tmp_path / "out") == {
        f"{topic}-000000.log": lines(*numbers(0, 11)),
        f"{topic}-000001.log": b"somebody else's",
        f"{topic}-000002.log": lines(*numbers(11, 15)),
    }
    assert contents(tmp_path / "work") == {}


def test_empty_files(start, broker, topic, tmp_path):
    out, other = tmp_path / "out", f"{topic}-2"
    with start(f"--topic={topic}", SOON, NAME) as running:
        eventually(lambda: contents(out) == {f"{topic}.log": b""})
        ends_well(running)
    with start(f"--topic={other}", SOON, NAME, "--skip-empty-files", "--gzip") as running:
        eventually(lambda: is_consumed(broker, other))
        time.sleep(0.2)  # some ticks
        ends_well(running)
    assert contents(out) == {f"{topic}.log": b""}


def test_hangup(start, broker, address, topic, tmp_path):
    """Plain: the file is opened again, which a rename before shows. Packed: the next revision."""
    plain, packed, out = topic, f"{topic}-gz", tmp_path / "out"
    for name, flags in ((plain, ()), (packed, ("--gzip",))):
        publish(address, name, b"before")
        with start(f"--topic={name}", SOON, NAME, "--skip-empty-files", *flags) as running:
            eventually(drained(broker, name))
            if not flags:
                (out / f"{plain}.log").rename(out / "renamed.log")
            running.process.send_signal(signal.SIGHUP)
            # The signal and a message that is published later may come in either order.
            eventually(lambda: not open_files(running, out))
            publish(address, name, b"after")
            eventually(drained(broker, name))
            ends_well(running)
    assert contents(out) == {
        "renamed.log": b"before\n",
        f"{plain}.log": b"after\n",
        f"{packed}-000000.log.gz": b"before\n",
        f"{packed}-000001.log.gz": b"after\n",
    }


def open_files(running, folder):
    place = f"/proc/{running.process.pid}/fd"
    names = []
    for number in os.listdir(place):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            names.append(os.readlink(f"{place}/{number}"))
    return [name for name in names if name.startswith(f"{folder}/")]


def test_several_topics(start, broker, address, topic, tmp_path):
    topics = [f"{topic}-{letter}" for letter in "abc"]
    for name in topics:
        publish(address, name, name.encode())
    flags = [f"--topic={name}" for name in topics]
    with start(*flags, "--topic-pattern=-[ab]$", SOON, "--filename-format=<TOPIC>/x") as running:
        eventually(drained(broker, *topics[:2]))
        ends_well(running)
        assert b"skipping topic" in running.err
    assert contents(tmp_path / "out") == {f"{name}/x": f"{name}\n".encode() for name in topics[:2]}
    assert not topic_stats(broker.http, topics[2])["channels"]


def test_a_pattern(start, tool, implementation, topic, tmp_path):
    """Unanchored, by nsqlookupd's list. Go's asks first when a whole refresh is over."""
    from support.server import start_nsqd

    (tmp_path / "data").mkdir()
    with (
        start_nsqlookupd(implementation) as lookupd,
        start_nsqd(
            implementation,
            tmp_path / "data",
            "--lookupd-tcp-address={}:{}".format(*lookupd.tcp),
        ) as broker,
    ):
        address = "{}:{}".format(*broker.tcp)
        for name in ("wanted-1", "not", "x-wanted"):
            publish(address, name, name.encode())
        source = "--lookupd-http-address={}:{}".format(*lookupd.http)
        refresh = "--topic-refresh=100ms" if tool == "go" else "--topic-refresh=1h"
        with start("--topic-pattern=want", refresh, SOON, NAME, source=source) as running:
            names = ["wanted-1", "x-wanted"]
            eventually(lambda: len(contents(tmp_path / "out")) == 2)
            eventually(drained(broker, *names))
            ends_well(running)
    assert contents(tmp_path / "out") == {f"{n}.log": f"{n}\n".encode() for n in names}


def test_a_folder_that_cannot_be_written_to(start, address, topic, tmp_path, broker):
    (tmp_path / "out").write_bytes(b"a file")
    publish(address, topic, b"body")
    with start(f"--topic={topic}", SOON) as running:
        assert running.end(None) == 1
    assert b"FATAL" in running.err
    assert b"Traceback" not in running.err
    eventually(lambda: unfinished(broker, topic) == 1)


def test_two_file_systems(tool, start, address, topic, tmp_path):
    """Go's tool finds out when the first file is to be moved."""
    publish(address, topic, b"body")
    with start(f"--topic={topic}", SOON, NAME, "--work-dir=/dev/shm/nsqfast-test") as running:
        running.wait_for(lambda it: b"FATAL" in it.err or b"syncing" in it.err)
        # Ours ends by itself.
        assert running.end(signal.SIGTERM if tool == "go" else None) == 1


def test_what_go_calls_a_failure_is_none(tool, start, broker, address, topic, tmp_path):
    """A signal between two messages, where files are moved: ours goes on, Go's tool ends."""
    if tool == "go":
        pytest.skip("it ends with `file already closed`")
    publish(address, topic, b"before")
    with start(f"--topic={topic}", SOON, NAME, f"--work-dir={tmp_path}/work") as running:
        eventually(drained(broker, topic))
        for _ in range(3):
            running.process.send_signal(signal.SIGHUP)
        eventually(lambda: f"{topic}-000000.log" in contents(tmp_path / "out"))
        publish(address, topic, b"after")
        eventually(drained(broker, topic))
        ends_well(running)
    assert b"".join(contents(tmp_path / "out").values()) == b"before\nafter\n"
