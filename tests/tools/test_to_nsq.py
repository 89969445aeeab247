"""nsqfast-to-nsq, and Go's to_nsq wherever they are to do the same."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import termios
import time

import pytest

from nsqfast.tools.to_nsq.main import TokenBucket
from nsqfast.tools.to_nsq.source import Splitter
from support.authd import AuthServer, grant, permit
from support.drain import address_of, drain, message_count
from support.server import start_nsqd
from support.tools import Tool, read_terminal, run_tool, tool_command
from support.waiting import eventually
from support.web import topic_stats
from support.wire import Client

GO = pytest.param("go", marks=pytest.mark.go)
MEBIBYTE = 1 << 20
# In Go's nsqd, what does not fit into memory comes in another order.
FLAGS = ("--mem-queue-size=200000",)


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A broker of an implementation, started once."""
    found = {}
    with contextlib.ExitStack() as stack:

        def start_one(implementation):
            if implementation not in found:
                folder = tmp_path_factory.mktemp("nsqd")
                found[implementation] = stack.enter_context(
                    start_nsqd(implementation, folder, *FLAGS)
                )
            return found[implementation]

        yield start_one


@pytest.fixture(params=["nsqfast", GO])
def broker(request, started):
    return started(request.param)


@pytest.fixture
def own_broker(started):
    """For what the broker makes no difference to."""
    return started("nsqfast")


PAIRS = [
    pytest.param("nsqfast", "nsqfast", id="nsqfast"),
    pytest.param("nsqfast", "go", id="nsqfast-on-go", marks=pytest.mark.go),
    pytest.param("go", "nsqfast", id="go", marks=pytest.mark.go),
]
on_each_pair = pytest.mark.parametrize(("tool", "broker"), PAIRS, indirect=["broker"])


@pytest.fixture(params=["nsqfast", GO])
def tool(request):
    """Whose to_nsq."""
    return request.param


def to_nsq(tool, broker, topic, data, *flags):
    address = f"--nsqd-tcp-address={address_of(broker)}"
    return run_tool("to_nsq", tool, address, f"--topic={topic}", *flags, stdin=data)


def last_line(done):
    """Without its date."""
    return done.stderr.decode().splitlines()[-1].split(" ", 2)[2]


# -- what is published


INPUTS = {
    "lines": (b"a\nb\nc\n", b"\n"),
    "empty pieces": (b"\n\na\n\n\nb\n\n", b"\n"),
    "carriage returns": (b"a\r\n\r\nb\r\n", b"\n"),
    "NULs": (b"\0\n\0\0a\0\n", b"\n"),
    "not UTF-8": (b"\xff\xfe\n\xc3\n", b"\n"),
    "another delimiter": (b"a\nb|c||d|", b"|"),
    "a tab": (b"a\tb\t", b"\t"),
    "many": (b"".join(b"%d\n" % number for number in range(12_345)), b"\n"),
    "as large as may be": (b"x" * MEBIBYTE + b"\nsmall\n" + b"y" * MEBIBYTE + b"\n", b"\n"),
    "nothing": (b"", b"\n"),
    "nothing but delimiters": (b"\n\n\n", b"\n"),
}


@on_each_pair
@pytest.mark.parametrize("name", INPUTS)
def test_published(tool, broker, topic, name):
    data, delimiter = INPUTS[name]
    done = to_nsq(tool, broker, topic, data, f"--delimiter={delimiter.decode()}")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    assert drain(broker, topic) == [piece for piece in data.split(delimiter) if piece]


@pytest.mark.parametrize("data", [b"x", b"abc", b"a\nbc", b"a\r\nbc\r"])
def test_the_last_piece_is_whole(broker, topic, data):
    """Go's loses its last byte."""
    assert to_nsq("nsqfast", broker, topic, data).returncode == 0
    assert drain(broker, topic) == data.split(b"\n")


def test_every_address_gets_everything(tool, own_broker, tmp_path, topic):
    bodies = [b"%d" % number for number in range(3000)]
    data = b"".join(body + b"\n" for body in bodies)
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as other:
        flag = f"--nsqd-tcp-address={address_of(other)}"
        assert to_nsq(tool, own_broker, topic, data, flag).returncode == 0
        assert drain(own_broker, topic) == drain(other, topic) == bodies


def test_large_and_small(broker, topic):
    """MPUBs are cut by size."""
    bodies = [bytes([65 + number % 26]) * (number * 7919 % 300_000 + 1) for number in range(60)]
    done = to_nsq("nsqfast", broker, topic, b"\n".join(bodies))
    assert done.returncode == 0, done.stderr
    assert drain(broker, topic) == bodies


@pytest.mark.parametrize("cut", [1, 2, 3, 1000])
def test_splitter(cut):
    """However the blocks are cut, the pieces are the same; against a naive reading."""
    data = b"one\n\ntwo\nthree" + b"\n" + b"\0" * 5 + b"\nlast"
    splitter = Splitter(b"\n")
    found = []
    blocks = [splitter.add(data[at : at + cut]) for at in range(0, len(data), cut)]
    for pieces in [*blocks, splitter.end()]:
        while pieces:
            found += pieces.take(2).bodies()
    assert found == [piece for piece in data.split(b"\n") if piece]
    assert splitter.rest_size == 0


# -- what ends it


@pytest.mark.parametrize(
    ("flags", "status", "text"),
    [
        (["--nsqd-tcp-address=127.0.0.1:1"], 1, "--topic required"),
        (["--topic=t"], 1, "--nsqd-tcp-address required"),
        (["--topic=t", "--delimiter="], 1, "--delimiter must be a single byte"),
        (["--topic=t", "--delimiter=ab"], 1, "--delimiter must be a single byte"),
        (["--topic=t", "--delimiter=é"], 1, "--delimiter must be a single byte"),
        (["--topic=t", "-rate=x", "--nsqd-tcp-address=127.0.0.1:1"], 2, None),
        (["--nonsense"], 2, None),
        (["--version"], 2, None),
        (["--producer-opt=nonsense,1"], 2, None),
        (["--help"], 0, None),
        # Nothing to publish, nobody to connect to.
        (["--topic=t", "--nsqd-tcp-address=127.0.0.1:1"], 0, None),
    ],
)
def test_exit_status(tool, flags, status, text):
    done = run_tool("to_nsq", tool, *flags)
    is_help = flags == ["--help"] and tool == "nsqfast"
    assert (done.returncode, bool(done.stdout)) == (status, is_help), done.stderr
    if text is not None:
        assert last_line(done) == text
    if status == 2:
        assert (b"see nsqfast-to-nsq --help" if tool == "nsqfast" else b"Usage of") in done.stderr


def test_words_behind_the_flags(tool):
    """Go ignores them, and every flag after them."""
    flags = ["-topic", "t", "-nsqd-tcp-address", "127.0.0.1:1", "word", "--nonsense"]
    done = run_tool("to_nsq", tool, *flags)
    assert done.returncode == (2 if tool == "nsqfast" else 0), done.stderr
    assert (b'unexpected word "word"' in done.stderr) == (tool == "nsqfast")


def test_nobody_listens(tool):
    done = run_tool("to_nsq", tool, "--topic=t", "--nsqd-tcp-address=127.0.0.1:1", stdin=b"a\n")
    assert done.returncode == 1
    assert last_line(done).endswith("connection refused")


def test_a_name_that_is_none(own_broker):
    """Go's sends it as it is; with a space in it, the message goes to another topic."""
    done = to_nsq("nsqfast", own_broker, "no topic", b"a\n")
    assert done.returncode == 1
    assert "'no topic' is no name of a topic; it is 1 to 64 of " in last_line(done)


@on_each_pair
@pytest.mark.parametrize("count", [0, 1, 5000])
def test_a_piece_that_is_too_large(tool, broker, topic, count):
    """What stands in front of it is there, nothing behind it is, and the error is Go's, with the flag to look at."""
    bodies = [b"%d" % number for number in range(count)]
    data = b"\n".join([*bodies, b"z" * (MEBIBYTE + 1), *([b"behind"] * 5000), b""])
    done = to_nsq(tool, broker, topic, data)
    assert done.returncode == 1
    assert drain(broker, topic) == bodies
    text = "E_BAD_MESSAGE PUB message too big 1048577 > 1048576"
    if tool == "go" or is_go(broker):
        # Go's nsqd hangs up at once: who is still writing then may not get to read why.
        assert text.encode() in done.stderr or re.search(
            b"broken pipe|reset", done.stderr, re.IGNORECASE
        )
    else:
        assert last_line(done) == f"{text}; nsqd's --max-msg-size is the limit"
        named = f"refuses message {count + 1}, of 1048577 bytes, which begins with b'zzz"
        assert named in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def is_go(broker):
    return ".go-nsq" in broker.process.args[0]


def test_an_nsqd_that_takes_small_batches_only(tool, tmp_path, topic):
    """A message fits, an MPUB does not: the result is the same."""
    bodies = [b"%d" % number * 20 for number in range(2000)]
    with start_nsqd("nsqfast", tmp_path, "--max-body-size=5000", "--max-msg-size=1000") as server:
        done = to_nsq(tool, server, topic, b"".join(body + b"\n" for body in bodies))
        assert done.returncode == 0, done.stderr
        assert drain(server, topic) == bodies


def test_unreadable_input(tool, tmp_path):
    with (tmp_path / "file").open("wb") as file:  # and nobody may read it
        words = tool_command("to_nsq", tool, "--topic=t", "--nsqd-tcp-address=127.0.0.1:1")
        with Tool(words, stdin=file) as running:
            assert running.end(None) == 1
    assert running.text.rstrip().endswith("read /dev/stdin: bad file descriptor")


# -- input that comes slowly


def start(tool, broker, topic, *flags, **descriptors):
    address = f"--nsqd-tcp-address={address_of(broker)}"
    return Tool(tool_command("to_nsq", tool, address, f"--topic={topic}", *flags), **descriptors)


def feed(running, data):
    os.write(running.process.stdin.fileno(), data)


@on_each_pair
def test_what_trickles_in_is_published_at_once(tool, broker, topic):
    with start(tool, broker, topic) as running:
        for number, data in enumerate([b"a\nb", b"b\n", b"c\n"]):
            feed(running, data)
            eventually(lambda number=number: message_count(broker, topic) == number + 1)
        running.process.stdin.close()
        assert running.end(None) == 0
    assert drain(broker, topic) == [b"a", b"bb", b"c"]


@on_each_pair
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals(tool, broker, topic, number):
    """What was read whole is there; the rest is reported."""
    with start(tool, broker, topic) as running:
        feed(running, b"a\nb\nunfinished")
        eventually(lambda: message_count(broker, topic) == 2)
        assert running.end(number) == 0
    assert drain(broker, topic) == [b"a", b"b"]
    if tool == "nsqfast":
        assert b"10 bytes without a delimiter behind them were not sent" in running.err


def test_an_answer_that_does_not_come(tmp_path, topic):
    """A frozen nsqd at SIGTERM: exit 0 within 5 s, and a word about what nobody knows."""
    with start_nsqd("nsqfast", tmp_path) as server, start("nsqfast", server, topic) as running:
        feed(running, b"a\n")
        eventually(lambda: message_count(server, topic) == 1)
        with server.frozen():
            feed(running, b"b\nc\n")
            eventually(lambda: unread(running) == 0)
            begun_s = time.monotonic()
            assert running.end(signal.SIGTERM) == 0
            assert time.monotonic() - begun_s < 5
        assert b"has not answered for 2 messages" in running.err


def unread(running):
    """Bytes in the pipe that nobody has read yet."""
    found = fcntl.ioctl(running.process.stdin, termios.FIONREAD, b"\0\0\0\0")
    return int.from_bytes(found, "little")


def test_no_answer_in_time(tmp_path, topic):
    """Without a signal, read_timeout decides, as with Go's."""
    flags = ("--producer-opt=read_timeout,1s", "--producer-opt=heartbeat_interval,1s")
    with (
        start_nsqd("nsqfast", tmp_path) as server,
        start("nsqfast", server, topic, *flags) as running,
    ):
        feed(running, b"a\n")
        eventually(lambda: message_count(server, topic) == 1)
        with server.frozen():
            feed(running, b"b\n")
            assert running.end(None) == 1
        assert b"no answer" in running.err


# -- death


def test_an_nsqd_that_dies(tmp_path, topic):
    """Exit 1; what is there is what was in front, without a gap."""
    server = start_nsqd("nsqfast", tmp_path)
    try:
        with start("nsqfast", server, topic) as running:
            feed(running, b"first\n")
            eventually(lambda: message_count(server, topic) == 1)
            server.kill()
            running.wait_for(lambda it: it.process.poll() is not None or b"lost" in it.err)
            feed(running, b"second\n")
            assert running.end(None) == 1
            assert b"Traceback" not in running.err
    finally:
        server.kill()


def test_death_of_the_tool(own_broker, topic, tmp_path):
    """kill -9 under load: what is there is a part from the front, in order."""
    path = tmp_path / "lines"
    with path.open("wb") as file:
        file.writelines(b"%012d\n" % number for number in range(100_000))
    with (
        path.open("rb") as lines,
        start("nsqfast", own_broker, topic, "--rate=30000", stdin=lines) as it,
    ):
        eventually(lambda: message_count(own_broker, topic) > 2000)
        it.kill()
    bodies = drain(own_broker, topic)
    assert 2000 < len(bodies) < 100_000
    assert bodies == [b"%012d" % number for number in range(len(bodies))]


# -- options of its own, and --rate


def test_bucket():
    bucket = TokenBucket(10, 100.0)
    assert [bucket.take(5, 100.0), bucket.take(5, 100.0)] == [1, 0]
    assert bucket.wait_s == pytest.approx(0.1)
    assert bucket.take(5, 100.05) == 0
    assert bucket.wait_s == pytest.approx(0.05)
    assert bucket.take(5, 100.2501) == 2
    assert bucket.take(100, 200.0) == 10
    assert TokenBucket(1_000_000, 0.0).take(1, 0.0) == 1


def test_rate(tool, own_broker, topic):
    begun_s = time.monotonic()
    done = to_nsq(tool, own_broker, topic, b"x\n" * 41, "--rate=100")
    assert done.returncode == 0
    assert time.monotonic() - begun_s > 0.39
    assert b"Throttling messages rate to max:100/second" in done.stderr
    assert message_count(own_broker, topic) == 41


def test_a_signal_while_it_is_throttled(own_broker, topic):
    with start("nsqfast", own_broker, topic, "--rate=1") as running:
        feed(running, b"1\n2\n3\n4\n5\n")
        eventually(lambda: message_count(own_broker, topic) >= 1)
        assert running.end(signal.SIGTERM) == 0
    left = 5 - message_count(own_broker, topic)
    assert f"{left} messages that were read were not sent".encode() in running.err


def test_deferred(broker, topic):
    done = to_nsq("nsqfast", broker, topic, b"a\nb\nc\n", "--deferred=1h")
    assert done.returncode == 0, done.stderr
    found = topic_stats(broker.http, topic)
    assert found["message_count"] == 3
    with Client(broker.tcp) as client:
        client.sub(topic, "c", 10)
    eventually(lambda: topic_stats(broker.http, topic)["channels"]["c"]["deferred_count"] == 3)


def test_deferred_for_too_long(broker, topic):
    done = to_nsq("nsqfast", broker, topic, b"a\nb\n", "--deferred=2h")
    assert done.returncode == 1
    assert last_line(done).startswith("E_INVALID")
    assert message_count(broker, topic) == 0


def test_deferred_is_no_time_that_is_over(own_broker, topic):
    done = to_nsq("nsqfast", own_broker, topic, b"", "--deferred=-1s")
    assert done.returncode == 1
    assert "--deferred" in last_line(done)


# -- for those who watch


def run_watched(words, stdin):
    """With a terminal for stderr; what was written there."""
    ours, theirs = pty.openpty()
    with Tool(words, stdin=stdin, stderr=theirs) as running:
        os.close(theirs)
        seen = read_terminal(ours)
        os.close(ours)
        assert running.end(None) == 0
    return seen


def test_progress(own_broker, topic, tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"line\n" * 500_000)
    words = tool_command(
        "to_nsq", "nsqfast", f"--topic={topic}", f"--nsqd-tcp-address={address_of(own_broker)}"
    )
    with path.open("rb") as lines:
        seen = run_watched(words, lines)
    assert b"to_nsq" in seen
    assert b"messages" in seen
    assert message_count(own_broker, topic) == 500_000


def test_no_progress_where_nobody_knows_the_size(own_broker, topic):
    words = tool_command(
        "to_nsq", "nsqfast", f"--topic={topic}", f"--nsqd-tcp-address={address_of(own_broker)}"
    )
    with open("/dev/null", "rb") as nothing:
        assert b"messages" not in run_watched(words, nothing)


@pytest.mark.slow
def test_a_secret_that_no_command_line_shows(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("from-file\n")
    with AuthServer() as auth:
        auth.answers = {name: grant(permit()) for name in ("from-file", "from-environment")}
        with start_nsqd("nsqfast", tmp_path, f"--auth-http-address={auth.address}") as server:
            flags = ["--topic=t", "--nsqd-tcp-address={}:{}".format(*server.tcp)]
            refused = run_tool("to_nsq", "nsqfast", *flags, stdin=b"none\n")
            assert (refused.returncode, b"auth_secret" in refused.stderr) == (1, True)
            monkeypatch.setenv("NSQ_AUTH_SECRET", "from-environment")
            for more in ([], [f"--auth-secret-file={tmp_path}/secret"]):
                done = run_tool("to_nsq", "nsqfast", *flags, *more, stdin=b"x\n")
                assert done.returncode == 0, done.stderr
            assert topic_stats(server.http, "t")["depth"] == 2
        assert auth.asked("from-file")
        assert auth.asked("from-environment")
