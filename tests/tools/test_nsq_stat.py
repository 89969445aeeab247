"""nsqfast-nsq-stat beside Go's nsq_stat: the same lines from the same counters."""

import asyncio
import contextlib
import fcntl
import io
import itertools
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from nsqfast.client.sync import Producer
from nsqfast.tools.nsq_stat import reports
from nsqfast.tools.nsq_stat.cluster import Sample
from nsqfast.tools.nsq_stat.options import Options
from nsqfast.tools.nsq_stat.rates import (
    COLUMNS,
    Counters,
    History,
    NodeStats,
    Row,
    parse_stats,
    sort_rows,
)
from nsqfast.tools.nsq_stat.reports import Lines
from nsqfast.tools.nsq_stat.table import draw
from nsqfast.tools.shared import output
from support.fake_stats import FakeStats, channel, stats, topic
from support.server import ROOT, start_nsqd, start_nsqlookupd
from support.tools import Tool, check_command_line, read_terminal, run_tool, tool_command
from support.waiting import eventually
from support.web import get, post

GO = pytest.param("go", marks=pytest.mark.go)
NAMES = (f"topic-{number}" for number in itertools.count(1))
HEAD = (
    "------rate------+----------------depth----------------+--------------metadata---------------\n"
    "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n"
)
FAST = ["--interval=20ms"]
FAST_S = 0.02
LATE_S = 40  # for a sample on a machine that is busy, which leaves out as many as come meanwhile
CHANNEL = ["--topic=t", "--channel=c"]


@pytest.fixture(scope="module", params=["nsqfast", GO])
def broker(request, tmp_path_factory):
    with start_nsqd(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield server


class Script:
    """Answers /stats of channel c of topic t, one step for each sample; the last one again and again."""

    def __init__(self, *steps, name="c"):
        self.steps = list(steps)
        self.name = name
        self.number = 0
        self.begun = 0

    def step(self):
        self.begun = self.number + 1
        return self.steps[min(self.number, len(self.steps) - 1)]

    def __call__(self, path, query):
        if path != "/stats":
            return None
        step = self.step()
        if query.get("topic", "t") != "t":
            return stats()
        if "channel" in query:
            self.number += 1
        return (
            step
            if step is None or "topics" in step
            else stats(topic("t", channel(self.name, **step)))
        )


class Endless(Script):
    """The same with as many steps as there are samples; step n is `make_step(n)`."""

    def __init__(self, make_step):
        super().__init__()
        self.make_step = make_step

    def step(self):
        return self.make_step(self.number)


@contextlib.contextmanager
def play(*steps, name="c"):
    """An nsqd that is asked for each of these steps."""
    script = Script(*steps, name=name)
    with FakeStats(script) as node:
        yield node
    assert script.begun >= len(steps), f"{len(steps) - script.begun} steps were left over"


def growing(count):
    """Counters as of a channel that is in trouble, too: what is requeued makes egress negative."""
    return [
        {
            "depth": 1000 + 700 * (number % 7) + number,
            "backend_depth": 300 * (number % 3),
            "in_flight_count": number,
            "deferred_count": 2 * number,
            "message_count": 9_999_000 + 137 * number,
            "requeue_count": 3 * number,
            "timeout_count": number // 2,
            "client_count": number % 4,
        }
        for number in range(count)
    ]


def report(implementation, servers, *flags, kind="nsqd"):
    addresses = [f"--{kind}-http-address={server.address}" for server in servers]
    return run_tool("nsq_stat", implementation, *addresses, *flags)


def lines_of(out):
    """Without the head, each split into its columns."""
    return [
        line.replace("|", " ").split() for line in out.decode().splitlines() if line[0] not in "-i"
    ]


# ---- the command line


ADDRESS = "--nsqd-http-address=127.0.0.1:1"
WRONG = [
    ([], 1),
    (["--topic=t", ADDRESS], 1),
    (["--channel=c", ADDRESS], 1),
    (CHANNEL, 1),
    ([*CHANNEL, ADDRESS], 1),
    ([*CHANNEL, ADDRESS, "--lookupd-http-address=127.0.0.1:2"], 1),
    ([*CHANNEL, "--nsqd-http-address=http://127.0.0.1:1"], 1),
    ([*CHANNEL, "--lookupd-http-address=http://127.0.0.1:1"], 1),
    ([*CHANNEL, "--lookupd-http-address=127.0.0.1:1"], 1),
    ([*CHANNEL, ADDRESS, "--interval=0"], 1),
    ([*CHANNEL, ADDRESS, "--count=0"], 1),
    ([*CHANNEL, ADDRESS, "--count=-1"], 1),
    ([*CHANNEL, ADDRESS, "--http-client-connect-timeout=0"], 1),
    ([*CHANNEL, ADDRESS, "--http-client-request-timeout=-1s"], 1),
    (["--topic=no/topic", "--channel=c", ADDRESS], 1),
    (["--count=x"], 2),
    (["--interval=5"], 2),
    (["--nope"], 2),
    (["--help"], 0),
]


@pytest.mark.parametrize("implementation", ["nsqfast", GO])
@pytest.mark.parametrize(("words", "status"), WRONG, ids=lambda value: " ".join(map(str, [value])))
def test_command_lines(implementation, words, status):
    done = check_command_line("nsq_stat", implementation, words, status)
    assert status != 1 or done.stderr.count(b"\n") == 1


def test_version_and_our_own_flags():
    assert run_tool("nsq_stat", "nsqfast", "-version").stdout.startswith(b"nsq_stat v1.3.0\n")
    done = run_tool("nsq_stat", "nsqfast", "--sort=colour")
    assert done.returncode == 2
    assert b"total" in done.stderr


# ---- lines


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
@pytest.mark.parametrize("name", ["c", "c#ephemeral"])
def test_lines_byte_for_byte(implementation, name):
    steps = growing(4)
    flags = ["--topic=t", f"--channel={name}", *FAST, "--count=3"]
    with play(*steps, name=name) as node:
        done = report(implementation, [node], *flags)
    assert (done.returncode, done.stderr) == (0, b"")
    check_lines(implementation, done.stdout, steps)


@pytest.mark.slow
@pytest.mark.go
def test_the_head_comes_again_as_in_go():
    with play(*growing(56)) as node:
        done = report("go", [node], *CHANNEL, *FAST, "--count=55")
    assert done.stdout.decode() == expected(growing(56), 0.02)


def test_the_head_comes_again(monkeypatch):
    """The same without waiting for 55 intervals."""
    reader, writer = os.pipe()
    monkeypatch.setattr(output, "STDOUT", writer)

    async def play():
        options = Options(topic="t", channel="c", interval_ns=20_000_000)
        lines, history = Lines(options), History(options.interval_ns)
        for number, step in enumerate(growing(56)):
            found = stats(topic("t", channel("c", **step)))
            rows = history.add(number, {"node": parse_stats("node", found, "t", "c")})
            await lines.show(rows, 1, {})

    asyncio.run(play())
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read().decode() == expected(growing(56), 0.02)


def expected(steps, interval_s):
    """As Go computes it."""
    text = HEAD
    for number, (before, now) in enumerate(itertools.pairwise(steps), 1):
        text += (HEAD if number % 25 == 0 else "") + line(before, now, interval_s)
    return text


def line(before, now, seconds):
    messages = now["message_count"] - before["message_count"]
    depth = now["depth"] - before["depth"]
    return "%7d %7d | %7d %7d %7d %5d %5d | %7d %7d %12d %7d\n" % (  # noqa: UP031
        int(messages / seconds),
        int((messages - depth) / seconds),
        now["depth"],
        now["depth"] - now["backend_depth"],
        now["backend_depth"],
        now["in_flight_count"],
        now["deferred_count"],
        now["requeue_count"],
        now["timeout_count"],
        now["message_count"],
        now["client_count"],
    )


def check_lines(implementation, out, steps):
    """Those with FAST; ours leaves samples out where the machine is busy, and divides by the time that passed."""
    if implementation == "go":
        assert out.decode() == expected(steps, FAST_S)
        return
    assert out.decode().startswith(HEAD)
    lines = out.decode().removeprefix(HEAD).splitlines(keepends=True)
    assert len(lines) == len(steps) - 1
    for found, (before, now) in zip(lines, itertools.pairwise(steps), strict=True):
        intervals = range(1, int(LATE_S / FAST_S))
        assert found in [line(before, now, count * FAST_S) for count in intervals]


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_several_nsqd_are_added_up(implementation):
    one, two = (
        growing(4),
        [{name: 10 * value for name, value in step.items()} for step in growing(4)],
    )
    flags = [*CHANNEL, *FAST, "--count=3"]
    elsewhere = FakeStats(lambda *_: stats(topic("other")))  # has no such topic
    with play(*one) as first, play(*two) as second, elsewhere:
        done = report(implementation, [first, second, elsewhere], *flags)
    assert (done.returncode, done.stderr) == (0, b"")
    both = [{name: 11 * value for name, value in step.items()} for step in one]
    check_lines(implementation, done.stdout, both)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_through_nsqlookupd(implementation):
    steps = growing(3)
    with play(*steps) as node:
        lists = {"channels": [], "producers": [producer(node)]}
        with FakeStats(lambda *_: lists) as lookupd:
            flags = [*CHANNEL, *FAST, "--count=2"]
            done = report(implementation, [lookupd], *flags, kind="lookupd")
    assert (done.returncode, done.stderr) == (0, b"")
    check_lines(implementation, done.stdout, steps)
    assert lookupd.asked[0] == ("/lookup", {"topic": "t"})


def producer(node):
    return {
        "remote_address": "127.0.0.1:9",
        "hostname": "h",
        "broadcast_address": "127.0.0.1",
        "tcp_port": 1,
        "http_port": node.port,
        "version": "1.3.0",
    }


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_a_real_nsqd(broker, implementation):
    name = next(NAMES)
    assert post(broker.http, f"/topic/create?topic={name}").status == 200
    assert post(broker.http, f"/channel/create?topic={name}&channel=c").status == 200
    address = "--nsqd-http-address={}:{}".format(*broker.http)
    flags = [address, f"--topic={name}", "--channel=c", "--interval=300ms"]
    with Tool(tool_command("nsq_stat", implementation, *flags)) as tool:
        tool.wait_for(lambda tool: tool.out.startswith(HEAD.encode()))
        with Producer("{}:{}".format(*broker.tcp)) as publisher:
            publisher.publish_many(name, [b"x"] * 30)
        tool.wait_for(lambda tool: b" 30 " in tool.out and tool.out.endswith(b"\n"))
        assert tool.end() == 0
        found = next(words for words in lines_of(tool.out) if words[9] == "30")
    assert int(found[0]) in [100 // intervals for intervals in range(1, 100)]
    assert found[1:] == "0 30 30 0 0 0 0 0 30 0".split()


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
@pytest.mark.parametrize("words", [["--topic=u", "--channel=c"], ["--topic=t", "--channel=d"]])
def test_unknown_topic_or_channel(implementation, words):
    with FakeStats(Script({"depth": 1})) as node:
        done = report(implementation, [node], *words, *FAST)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"ERROR: failed to " in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_signals(implementation, number):
    with FakeStats(Script({"depth": 1})) as node:
        flags = [f"--nsqd-http-address={node.address}", *CHANNEL, "--interval=1h"]
        with Tool(tool_command("nsq_stat", implementation, *flags)) as tool:
            tool.wait_for(lambda tool: tool.out.decode() == HEAD)
            assert tool.end(number, seconds_max=5) == 0


# ---- pacing


class Clock:
    """Time that passes only when somebody waits or works; it stands in for the loop's."""

    def __init__(self, *costs_s):
        self.now_s = 1000.0
        self.costs_s = iter(costs_s)  # of each sample
        self.samples_s = []
        self.reports = 0
        self.rates = []

    def time(self):
        return self.now_s

    async def sleep(self, seconds):
        self.now_s += max(0.0, seconds)

    async def sample(self):
        self.samples_s.append(round(self.now_s - 1000.0, 6))
        self.now_s += next(self.costs_s)
        counters = Counters(messages=round(100 * self.samples_s[-1]))
        return Sample({"node": NodeStats(1, {("t", "c"): counters})}, {})

    async def show(self, rows, *_):
        self.rates.append(rows["t", "c"].ingress)

    def run(self, monkeypatch, count):
        loop = SimpleNamespace(get_running_loop=lambda: self, sleep=self.sleep)
        monkeypatch.setattr(reports, "asyncio", loop)
        options = Options(topic="t", channel="c", interval_ns=2_000_000_000, count=count)
        asyncio.run(reports._take_samples(self, self, options))


def test_pace_without_drift_and_without_a_last_interval(monkeypatch):
    clock = Clock(0.5, 1.9, 0.0, 0.3)
    clock.run(monkeypatch, 3)
    assert clock.samples_s == [0, 2, 4, 6]
    assert clock.now_s == 1006.3


def test_a_sample_that_takes_long_leaves_some_out_and_rates_stay_true(monkeypatch):
    clock = Clock(0.1, 5.0, 0.1, 2.0, 0.1)
    clock.run(monkeypatch, 4)
    assert clock.samples_s == [0, 2, 8, 10, 14]
    assert clock.rates == [None, 100.0, 100.0, 100.0, 100.0]


# ---- counters that fall, nodes that fail


def test_a_restarted_nsqd_has_no_rate_once():
    history = History(1_000_000_000)

    def add(number, *nodes):
        """Each node's messages and its start; the rates."""
        answers = {
            f"node {place}": NodeStats(start, {("t", "c"): Counters(messages=count)})
            for place, (count, start) in enumerate(nodes)
            if start
        }
        row = history.add(number, answers)["t", "c"]
        return row.ingress, row.egress

    assert add(0, (1000, 1)) == (None, None)
    assert add(1, (1001, 1)) == (1, 1)
    assert add(2, (3, 2)) == (None, None)
    assert add(3, (5, 2)) == (2, 2)
    assert add(4, (10**6, 3)) == (
        None,
        None,
    )  # so many new ones that the counter alone does not tell
    assert add(5, (10**6 + 1, 3)) == (1, 1)
    assert add(6, (0, 3)) == (None, None)  # the channel was made anew
    assert add(7, (4, 3), (10**6, 1)) == (4, 4)  # another nsqd, with what it counted before
    assert add(8, (5, 3), (10**6 + 7, 1)) == (8, 8)
    assert add(9, (6, 3), (0, 0)) == (1, 1)
    assert add(10, (7, 3), (10**6 + 17, 1)) == (
        1 + 10 / 2,
        1 + 10 / 2,
    )  # it did not answer for a while


@pytest.mark.slow
def test_one_of_two_nsqd_goes_and_comes_back():
    first = FakeStats(Endless(lambda number: {"message_count": 100 * number, "depth": 7}))
    second = FakeStats(Script({"message_count": 5, "depth": 1}))
    flags = [f"--nsqd-http-address={node.address}" for node in (first, second)]
    with first, Tool(tool_command("nsq_stat", "nsqfast", *flags, *CHANNEL, *FAST)) as tool:
        tool.wait_for(lambda tool: tool.out.count(b"\n") > 4)
        second.close()
        tool.wait_for(lambda tool: tool.out.count(b" *\n") > 3)
        with FakeStats(Script({"message_count": 6, "depth": 1}), port=second.port) as second:
            tool.wait_for(lambda tool: b"answers again" in tool.err)
            count = tool.out.count(b"\n")
            tool.wait_for(lambda tool: tool.out.count(b"\n") > count + 3)
            assert tool.end() == 0
    marked = [line for line in lines_of(tool.out) if line[-1] == "*"]
    whole = [line for line in lines_of(tool.out) if line[-1] != "*"]
    assert {(len(line), line[2]) for line in marked} == {(12, "7")}
    assert {(len(line), line[2]) for line in whole} == {(11, "8")}
    assert all(0 <= int(line[0]) <= 100 * 50 + 50 for line in marked + whole)
    said = tool.err.decode().splitlines()
    assert len(said) == 2, said
    assert second.address in said[0]


@pytest.mark.slow
def test_a_frozen_nsqd_delays_lines_once():
    first = FakeStats(Endless(lambda number: {"message_count": 10 * number}))
    second = FakeStats(Script({"message_count": 5}))
    flags = [f"--nsqd-http-address={node.address}" for node in (first, second)]
    flags += [*CHANNEL, "--interval=100ms", "--http-client-request-timeout=700ms"]
    with first, second, Tool(tool_command("nsq_stat", "nsqfast", *flags)) as tool:
        tool.wait_for(lambda tool: tool.out.count(b"\n") > 3)
        second.may_answer.clear()
        tool.wait_for(lambda tool: b" *\n" in tool.out)
        before, count = time.monotonic(), tool.out.count(b"\n")
        tool.wait_for(lambda tool: tool.out.count(b"\n") >= count + 15)
        assert time.monotonic() - before < 8  # and not 15 timeouts
        second.may_answer.set()
        tool.wait_for(lambda tool: b"answers again" in tool.err)
        assert tool.end() == 0
    # Neither what was left out nor what came late makes a rate absurd: 10 messages in 100 ms.
    assert all(0 <= int(line[0]) <= 100 for line in lines_of(tool.out))
    assert tool.err.count(b"\n") == 2


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_all_nsqd_fail(implementation):
    steps = [{"depth": 1}, {"depth": 1}, None]
    with play(*steps) as node:
        done = report(implementation, [node], *CHANNEL, *FAST)
    assert done.returncode == 1
    assert done.stdout.decode().startswith(HEAD)
    assert b"ERROR: failed to " in done.stderr
    assert b"Traceback" not in done.stderr


GARBAGE = [
    b"garbage",
    b"[]",
    b"null",
    b'{"topics":[null]}',
    b'{"topics":7}',
    b'{"topics":[{"topic_name":"t","channels":[{"channel_name":"c","depth":"x"}]}]}',
    b'{"topics":[{"topic_name":7,"channels":[]}],"start_time":1}',
    b"[" * 100_000,
]


@pytest.mark.slow
def test_nsqd_that_answer_garbage():
    with contextlib.ExitStack() as stack:
        bad = [stack.enter_context(FakeStats(lambda *_, body=body: body)) for body in GARBAGE]
        good = stack.enter_context(FakeStats(Script({"depth": 3})))
        failed = report("nsqfast", bad, *CHANNEL, *FAST)
        done = report("nsqfast", [*bad, good], *CHANNEL, *FAST, "--count=2")
    assert (failed.returncode, failed.stdout) == (1, b"")
    said = failed.stderr.decode()
    assert done.returncode == 0
    assert [(line[2], line[-1]) for line in lines_of(done.stdout)] == [("3", "*")] * 2
    for node in bad:
        assert node.address in said
        assert node.address in done.stderr.decode()


@pytest.mark.slow
def test_nsqlookupd_that_answer_garbage():
    bodies = [b"garbage", b'{"producers":[null]}', b'{"producers":[{}]}']
    with contextlib.ExitStack() as stack:
        bad = [stack.enter_context(FakeStats(lambda *_, body=body: body)) for body in bodies]
        node = stack.enter_context(FakeStats(Script({"depth": 3})))
        good = stack.enter_context(FakeStats(lambda *_: {"producers": [producer(node)]}))
        failed = report("nsqfast", bad, *CHANNEL, *FAST, kind="lookupd")
        flags = [*CHANNEL, *FAST, "--count=2"]
        done = report("nsqfast", [*bad, good], *flags, kind="lookupd")
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert done.returncode == 0
    assert [(line[2], line[-1]) for line in lines_of(done.stdout)] == [("3", "*")] * 2
    for lookupd in bad:
        assert lookupd.address in failed.stderr.decode()


@pytest.mark.slow
def test_an_nsqlookupd_that_forgot_everything():
    """Its nsqd come back to it one by one; meanwhile those that answer still count."""
    known = threading_safe_flag()
    with FakeStats(Script({"depth": 3})) as node:

        def answer(*_):
            return {"producers": [producer(node)] if known() else []}

        with FakeStats(answer) as lookupd:
            flags = [*CHANNEL, *FAST, "--count=5"]
            done = report("nsqfast", [lookupd], *flags, kind="lookupd")
    assert done.returncode == 0
    assert [(line[2], line[-1]) for line in lines_of(done.stdout)] == [("3", "0")] * 5


def threading_safe_flag():
    """True once, False ever after."""
    turns = iter([True])
    return lambda: next(turns, False)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_a_topic_that_nsqlookupd_does_not_know(implementation):
    with start_nsqlookupd("nsqfast") as lookupd:
        address = "--lookupd-http-address={}:{}".format(*lookupd.http)
        done = run_tool("nsq_stat", implementation, address, *CHANNEL, *FAST)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_nobody_reads(implementation):
    with FakeStats(Script({"depth": 3})) as node:
        flags = [f"--nsqd-http-address={node.address}", *CHANNEL, *FAST]
        command = tool_command("nsq_stat", implementation, *flags)
        done = subprocess.run(
            ["bash", "-c", '"$@" | head -1; echo ${PIPESTATUS[0]}', "bash", *command],
            capture_output=True,
            timeout=20,
            check=False,
        )
    status = b"%d\n" % (128 + signal.SIGPIPE)
    assert (done.stdout, done.stderr) == (HEAD.encode().splitlines(keepends=True)[0] + status, b"")


# ---- the table


@contextlib.contextmanager
def terminal(node, *flags, lines, width=120):
    """The tool on a terminal: the end that shows what is drawn, and the process, of which nothing is left behind."""
    own, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, width, 0, 0))
    environment = {
        name: os.environ[name] for name in os.environ if name not in {"LINES", "COLUMNS"}
    }
    command = tool_command("nsq_stat", "nsqfast", f"--nsqd-http-address={node.address}", *flags)
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment | {"TERM": "xterm"},
    )
    os.close(theirs)
    try:
        yield own, process
    finally:
        process.kill()
        os.close(own)
        process.wait(20)
        process.stderr.close()


def read_text(own, until=None):
    """To the end, or until that was drawn; without what moves the cursor."""
    return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", read_terminal(own, until)).decode()


@pytest.mark.slow
def test_a_table_on_a_terminal():
    many = [channel(f"c{number}", depth=number, message_count=number) for number in range(2000)]
    found = stats(topic("t", *many, channel("c#ephemeral", depth=5000)))
    with FakeStats(lambda *_: found) as node, terminal(node, *FAST, lines=30) as (own, process):
        first = read_text(own, b"more")
        process.send_signal(signal.SIGINT)
        last = read_text(own)
        assert (process.wait(20), process.stderr.read()) == (0, b"")
    assert "1 nsqd, 1 topic, 2,001 channels" in first
    drawn = last[last.rindex(" nsqd, ") :].splitlines()
    assert len(drawn) <= 30
    rows = [line.split() for line in drawn if line.startswith("t ")]
    assert [row[1] for row in rows[:2]] == ["c#ephemeral", "c1999"]
    assert "and 1,976 more" in last
    total = next(line.split() for line in drawn if line.startswith("sum"))
    assert total[3] == str(5000 + sum(range(2000)))


@pytest.mark.slow
def test_a_table_goes_on_without_any_nsqd():
    found = stats(topic("t", channel("c", depth=1)))
    node = FakeStats(lambda *_: found)
    with terminal(node, "--topic=t", *FAST, lines=20) as (own, process):
        read_text(own, b"sum")
        node.close()
        # A question that was under way may end in another way; the next one is refused.
        assert "1 did not answer" in read_text(own, b"connection refused")
        read_text(own, b"sum")
        with FakeStats(lambda *_: found, port=node.port):
            read_text(own, b"1 nsqd, ")
        process.send_signal(signal.SIGTERM)
        read_text(own)
        assert process.wait(20) == 0


@pytest.mark.slow
def test_one_channel_on_a_terminal_is_lines():
    with (
        FakeStats(Script({"depth": 3})) as node,
        terminal(node, *CHANNEL, *FAST, "--count=2", lines=20) as (own, process),
    ):
        drawn = read_text(own).replace("\r\n", "\n")
        assert process.wait(20) == 0
    assert drawn.startswith(HEAD)
    assert drawn.count("\n") == 4


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("sort", COLUMNS)
def test_no_number_is_cut(width, sort):
    row = Row(Counters(*[10**9] * 8), 1e6, -1e6)
    rows = {("t" * 60, f"{'c' * 50}{number}"): row for number in range(40)}
    console = Console(width=width, height=20, file=io.StringIO())
    console.print(draw(rows, 1, {}, Options(sort=sort), (width, 20)))
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= 20
    assert all(len(line) <= width for line in lines)
    head = next(line for line in lines if line.startswith("topic"))
    assert sort in head.split()
    assert "…" not in "".join(lines[3:]).replace("t…", "").replace("c…", "")
    assert len(head.split()) == len(lines[3].split())
    if width == 200:
        assert head.split() == list(COLUMNS)


def test_sorted_by_any_column():
    row = Row(Counters(depth=1), 5.0, None)
    rows = {("b", "x"): row, ("a", "z"): row, ("c", "y"): Row(Counters(depth=2), None, None)}
    by = {column: [key for key, _ in sort_rows(rows, column)] for column in COLUMNS}
    assert by["topic"] == [("a", "z"), ("b", "x"), ("c", "y")]
    assert by["channel"] == [("b", "x"), ("c", "y"), ("a", "z")]
    assert by["total"] == [("c", "y"), ("a", "z"), ("b", "x")]
    assert by["ingress"] == [("a", "z"), ("b", "x"), ("c", "y")]


# ---- JSON


@pytest.mark.slow
def test_json():
    steps = growing(3)
    with play(*steps) as node:
        flags = [*CHANNEL, *FAST, "--count=2", "--json"]
        done = report("nsqfast", [node], *flags)
    assert (done.returncode, done.stderr) == (0, b"")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 2
    assert [sample["missing"] for sample in found] == [[], []]
    for number, sample in enumerate(found, 1):
        assert (sample["nsqd_count"], sample["interval_s"]) == (1, FAST_S)
        (one,) = sample["channels"]
        now, before = steps[number], steps[number - 1]
        assert (one.pop("topic"), one.pop("channel")) == ("t", "c")
        ingress = one.pop("ingress")
        intervals = round(137 / FAST_S / ingress)
        assert ingress == pytest.approx(137 / FAST_S / intervals)
        egress = (137 - (now["depth"] - before["depth"])) / FAST_S / intervals
        assert one.pop("egress") == pytest.approx(egress)
        assert one.pop("memory_depth") == now["depth"] - now["backend_depth"]
        assert one == now


@pytest.mark.slow
def test_json_of_everything():
    found = stats(
        topic("a", channel("x", depth=1), channel("y#ephemeral", depth=3)),
        topic("b", depth=2, count=9),
        topic("c", channel("z"), depth=5),
    )
    with FakeStats(lambda *_: found) as node:
        done = report("nsqfast", [node], "--json", "--count=1", *FAST)
    names = [
        (one["topic"], one["channel"], one["depth"]) for one in json.loads(done.stdout)["channels"]
    ]
    assert names == [
        ("c", None, 5),
        ("a", "y#ephemeral", 3),
        ("b", None, 2),
        ("a", "x", 1),
        ("c", "z", 0),
    ]


@pytest.mark.slow
def test_json_of_everything_that_nsqlookupd_knows(tmp_path):
    with start_nsqlookupd("nsqfast") as lookupd:
        flags = ["--lookupd-tcp-address={}:{}".format(*lookupd.tcp)]
        with start_nsqd("nsqfast", tmp_path, *flags) as server:
            assert post(server.http, "/topic/create?topic=t").status == 200
            assert post(server.http, "/channel/create?topic=t&channel=c%23ephemeral").status == 200
            address = "--lookupd-http-address={}:{}".format(*lookupd.http)
            eventually(lambda: get(lookupd.http, "/nodes").json()["producers"])
            done = run_tool("nsq_stat", "nsqfast", address, "--json", "--count=1", *FAST)
    assert (done.returncode, done.stderr) == (0, b"")
    sample = json.loads(done.stdout)
    assert sample["nsqd_count"] == 1
    assert [(one["topic"], one["channel"]) for one in sample["channels"]] == [("t", "c#ephemeral")]
