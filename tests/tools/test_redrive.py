"""nsqfast-redrive: dead letters of several nsqd go back to their channel."""

import signal

import pytest

from support.server import start_nsqd
from support.tools import Tool, run_tool, tool_command
from support.waiting import eventually
from support.web import get, post, topic_stats

NAMES = ("--topic=t", "--channel=c")


def run(*flags, brokers=()):
    addresses = [f"--nsqd-http-address={host}:{port}" for host, port in brokers]
    done = run_tool("redrive", "nsqfast", *NAMES, *addresses, *flags)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def make(broker, count):
    post(broker.http, "/topic/create?topic=t")
    post(broker.http, "/channel/create?topic=t&channel=c")
    for number in range(count):
        post(broker.http, "/pub?topic=t.c.dead", b"user %d" % number)


def depth(broker):
    return topic_stats(broker.http, "t")["channels"]["c"]["depth"]


@pytest.fixture
def brokers(tmp_path):
    """Two with dead letters, and one without."""
    places = [tmp_path / name for name in "abc"]
    for place in places:
        place.mkdir()
    with (
        start_nsqd("nsqfast", places[0]) as one,
        start_nsqd("nsqfast", places[1]) as other,
        start_nsqd("nsqfast", places[2]) as empty,
    ):
        make(one, 5)
        make(other, 15)
        make(empty, 0)
        yield one, other, empty


def test_all_of_several_nsqd(brokers):
    status, out, _ = run(brokers=[each.http for each in brokers])
    assert status == 0
    assert sorted(line.split(maxsplit=1)[1] for line in out.splitlines()) == [
        "done, 15 messages",
        "done, 5 messages",
    ]
    assert [depth(each) for each in brokers] == [5, 15, 0]


def test_some(brokers):
    one, other, _ = brokers
    run("--filter=user 1", brokers=[other.http])
    assert depth(other) == 6
    run("--limit=2", brokers=[one.http])
    assert depth(one) == 2


def test_those_that_a_search_finds(brokers):
    one, other, _ = brokers
    post(one.http, "/pub?topic=t.c.dead", b'{"user": {"id": 17}}')
    for flag in ("--search=user.id:7", '--search=user.id:17 "user"'):
        run(flag, brokers=[one.http, other.http])
    assert (depth(one), depth(other)) == (1, 0)


def test_deleted(brokers):
    other = brokers[1]
    status, out, _ = run("--delete", "--filter=user 1", brokers=[other.http])
    assert (status, out.split(maxsplit=1)[1]) == (0, "done, 6 messages deleted\n")
    assert (depth(other), topic_stats(other.http, "t.c.dead")["depth"]) == (0, 9)
    _, _, err = run("--reason=boredom", brokers=[other.http])
    assert "INVALID_ARG_REASON" in err


def test_told_to_stop_it_says_that_they_go_on(brokers):
    one = brokers[0]
    address = f"--nsqd-http-address={one.http[0]}:{one.http[1]}"
    with Tool(tool_command("redrive", "nsqfast", *NAMES, address, "--rate=1")) as tool:
        eventually(lambda: get(one.http, "/channel/redrive?topic=t&channel=c").status == 200)
        tool.process.send_signal(signal.SIGINT)
        assert tool.process.wait(30) == 1
    eventually(lambda: b"--cancel ends that" in tool.err)
    status, out, _ = run("--cancel", brokers=[one.http])
    assert (status, out.split()[1]) == (0, "cancelled,")
    status, _, err = run("--cancel", brokers=[one.http])
    assert status == 1
    assert "NO_REDRIVE" in err


def test_detached(brokers):
    one = brokers[0]
    status, out, _ = run("--detach", "--rate=1", brokers=[one.http])
    assert (status, out.split()[1]) == (0, "running,")
    status, _, err = run(brokers=[one.http])
    assert (status, "REDRIVE_RUNNING" in err) == (1, True)


def test_nothing_died(brokers):
    status, _, err = run(brokers=[brokers[2].http])
    assert status == 1
    assert "NO_DEAD_LETTERS" in err


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--search=a:"], "--search: "),
        (["--delete", "--limit=1"], "--delete has no --limit"),
        (["--rate=-1"], "--rate and --limit have to be 0 or more"),
        ([], "--nsqd-http-address or --lookupd-http-address required"),
        (["--topic=a b"], "--topic:"),
        (["--channel="], "--channel is required"),
    ],
)
def test_bad_command_lines(flags, line):
    status, _, err = run(*flags)
    assert status == 1
    assert line in err
    assert "Traceback" not in err


def test_nobody_there():
    status, _, err = run(brokers=[("127.0.0.1", 1)])
    assert status == 1
    assert "Traceback" not in err
