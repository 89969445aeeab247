"""nsqfast-bench against real brokers: what it says it did is what the broker says was done."""

import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from nsqfast.tools.bench import main as program
from nsqfast.tools.bench.crew import Totals
from nsqfast.tools.bench.options import (
    NS_PER_MS,
    NS_PER_S,
    UNLIMITED,
    UNREACHABLE,
    make_plan,
    parse,
    publish_command,
    validate,
)
from nsqfast.tools.bench.report import make_result, remarks, table
from nsqfast.tools.bench.worker import Latency, Report
from support.commands import run_command
from support.server import start_nsqd
from support.tools import read_terminal
from support.waiting import wait_until
from support.web import post, topic_stats
from support.wire import Client

COMMAND = [sys.executable, "-m", "nsqfast.tools.bench.main"]
SECONDS_MAX = 50


@pytest.fixture
def own_broker(tmp_path):
    """A broker that a test may maltreat."""
    server = start_nsqd("nsqfast", tmp_path, "--max-channel-consumers=1")
    yield server
    server.kill()


def command_for(broker, mode, topic, *flags):
    return [*COMMAND, mode, f"--nsqd-tcp-address={at(broker)}", f"--topic={topic}", *flags]


def at(broker):
    host, port = broker.tcp
    return f"{host}:{port}"


def run(broker, mode, topic, *flags):
    """Exit status, the JSON object, stderr."""
    command = command_for(broker, mode, topic, "--json", *flags)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.stdout.count("\n") == 1, done
    return done.returncode, json.loads(done.stdout), done.stderr


def measure(broker, mode, topic, *flags):
    """The JSON object of a run in which nothing goes wrong."""
    status, result, said = run(broker, mode, topic, *flags)
    assert (status, result["error"]) == (0, None), said
    assert result["mode"] == mode
    return result


def until(look, wanted):
    """Look until it is what is wanted."""
    wait_until(lambda: look() == wanted, look)
    return wanted


def left_in(channel):
    return channel["depth"], channel["in_flight_count"], channel["deferred_count"]


def lines_of(text):
    return text.removesuffix("\n").split("\n")


# ---- flags


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "no mode: the first word must be one of pub, sub, pubsub, latency"),
        ("pop", "unknown mode 'pop': the first word must be one of"),
        ("pub --nope", "flag provided but not defined: -nope"),
        ("pub --topic=t --channel=c", "flag provided but not defined: -channel"),
        ("sub --topic=t --channel=c --batch-size=2", "flag provided but not defined: -batch-size"),
        ("pub --topic=t extra --count=5", "unexpected word 'extra'"),
        ("pub --json --topic t -- --count=5", "unexpected word '--'"),
        ("pub", "--topic is missing: name the topic, such as --topic=bench"),
        ("sub --topic=t", "--channel is missing"),
        ("pub --topic=no!", "'no!' is no name of a topic"),
        ("pubsub --topic=t --channel=#ephemeral", "is no name of a channel"),
        (f"pubsub --topic=t --channel={'c' * 64} --channels=2", "is no name of a channel"),
        ("pub --topic=t --topics=3", "--topics must be at most 2, not 3"),
        (f"pub --topic={'t' * 64} --topics=2", "is no name of a topic"),
        ("pubsub --topic=t --channel=c --channels=0", "--channels must be at least 1, not 0"),
        ("pub --topic=t --size=0", "--size must be at least 1, not 0"),
        ("latency --topic=t --channel=c --size=7", "--size must be at least 8, not 7"),
        ("pub --topic=t --size=1e3", 'invalid value "1e3" for flag -size: parse error'),
        ("pub --topic=t --batch-size=0", "--batch-size must be at least 1, not 0"),
        ("pub --topic=t --in-air=0", "--in-air must be at least 1, not 0"),
        ("pub --topic=t --size=1000000 --batch-size=10000", "must be below 2 GiB"),
        ("pub --topic=t --defer-ms=5", "--defer-ms needs --batch-size=1"),
        ("pub --topic=t --defer-ms=-2", "--defer-ms must be at least -1, not -2"),
        ("sub --topic=t --channel=c --requeue-ms=-2", "--requeue-ms must be at least -1, not -2"),
        ("sub --topic=t --channel=c --rdy=0", "--rdy must be at least 1, not 0"),
        ("sub --topic=t --channel=c --consumers=0", "--consumers must be at least 1, not 0"),
        ("pub --topic=t --connections=0", "--connections must be at least 1, not 0"),
        ("pub --topic=t --workers=3", "--workers must be at most the number of connections (2)"),
        ("pub --topic=t --workers=0", "--workers must be at least 1, not 0"),
        ("pub --topic=t --count=-1", "--count must be at least 0, not -1"),
        (
            "pub --topic=t --runfor=0",
            "--runfor must be longer than 0 and at most 8760h0m0s, not 0s",
        ),
        ("pub --topic=t --runfor=9999h", "--runfor must be longer than 0 and at most 8760h0m0s"),
        ("pub --topic=t --runfor=soon", 'invalid value "soon" for flag -runfor: parse error'),
        ("pub --topic=t --msg-timeout=-1", "--msg-timeout must be at least 1ms, not -1ms"),
        ("pub --topic=t --output-buffer-timeout=-2", "must be at least 1ms, not -2ms"),
        ("pub --topic=t --output-buffer-size=-2", "must be at least -1, not -2"),
        ("pub --topic=t --nsqd-tcp-address=here", "must be <addr>:<port>, not 'here'"),
        ("pub --topic=t --nsqd-tcp-address=here:0", "must be <addr>:<port>, not 'here:0'"),
        ("pub --topic=t --nsqd-tcp-address=here:65536", "must be <addr>:<port>"),
        ("latency --topic=t --channel=c --workers=2", "--workers must be 1 for latency"),
        ("latency --topic=t --channel=c --rate=0", "--rate must be at least 1, not 0"),
        ("latency --topic=t --channel=c --rate=1 --runfor=500ms", "is less than one message"),
        ("latency --topic=t --channel=c --rate=2000000", "20000000 samples are too many"),
    ],
)
def test_wrong_flags(words, complaint, capsys):
    assert program.main(words.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = lines_of(printed.err)
    assert line.startswith("nsqfast-bench: ")
    assert complaint in line


def test_help_and_version(capsys):
    for words in (["--help"], ["-h"], ["pub", "--help"], ["latency", "-h"]):
        with pytest.raises(SystemExit) as left:
            program.main(words)
        assert left.value.code == 0
        usage = capsys.readouterr().out
        assert usage.startswith("Usage: nsqfast-bench ")
        assert ("  --rate int  " in usage) == (words[0] == "latency")
    with pytest.raises(SystemExit) as left:
        program.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("nsqfast-bench v")


def test_durations_are_numbers_or_those_of_go():
    flags = ["-topic", "t", "--runfor", "0.5", "--msg-timeout=1500", "--output-buffer-timeout=-1"]
    options = parse(["pub", *flags])
    validate(options)
    assert options.runfor_ns == NS_PER_S // 2
    assert options.msg_timeout_ns == 1500 * NS_PER_MS
    assert options.output_buffer_timeout_ns == -NS_PER_MS
    options = parse(["pub", "--topic=t", "--runfor=1m30s", "--msg-timeout=2s"])
    assert options.runfor_ns == 90 * NS_PER_S
    assert options.msg_timeout_ns == 2 * NS_PER_S


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4150", ("127.0.0.1", 4150)),
        (":4150", ("127.0.0.1", 4150)),
        ("[::1]:4150", ("::1", 4150)),
    ],
)
def test_addresses(text, address):
    assert parse(["pub", "--topic=t", f"--nsqd-tcp-address={text}"]).address == address


def test_an_ephemeral_channel_keeps_its_suffix_behind_the_number():
    options = parse(["pubsub", "--topic=t", "--channel=c#ephemeral", "--channels=3"])
    assert options.channel_names() == ["c#ephemeral", "c2#ephemeral", "c3#ephemeral"]


# ---- what is run


def plan_of(*words):
    options = parse([*words, "--topic=t"])
    validate(options)
    return make_plan(options)


def test_the_count_is_dealt_in_whole_batches():
    plan = plan_of("pub", "--count=1001", "--batch-size=100", "--connections=3", "--workers=2")
    assert [worker.quotas for worker in plan.workers] == [(4, 3), (4,)]
    assert {worker.publish_target for worker in plan.workers} == {1100}
    assert {worker.finish_target for worker in plan.workers} == {0}
    assert (plan.goal, plan.connections, plan.consumers) == (1100, 3, 0)


def test_no_more_connections_than_commands_and_no_more_workers_than_connections():
    plan = plan_of("pub", "--count=1", "--connections=8", "--workers=8")
    assert [worker.quotas for worker in plan.workers] == [(1,)]


def test_consumers_are_dealt_where_the_publishers_ended():
    flags = ["--connections=1", "--consumers=2", "--channels=2", "--channel=c", "--count=10"]
    plan = plan_of("pubsub", "--workers=3", "--batch-size=1", *flags)
    assert [worker.quotas for worker in plan.workers] == [(10,), (), ()]
    assert [worker.channels for worker in plan.workers] == [("c",), ("c", "c2"), ("c2",)]
    assert plan.goal == 20
    assert plan.consumers == 4


def test_connections_are_dealt_over_topics_in_turn():
    plan = plan_of("pub", "--topics=2", "--connections=5", "--workers=2")
    assert [worker.topics for worker in plan.workers] == [("t", "t", "t"), ("t2", "t2")]


def test_without_a_count_only_time_ends_it():
    plan = plan_of("pubsub", "--channel=c")
    (worker,) = plan.workers
    assert worker.quotas == (UNLIMITED, UNLIMITED)
    assert (worker.publish_target, worker.finish_target) == (UNREACHABLE, UNREACHABLE)
    assert plan.goal == 0


def test_commands():
    size = struct.pack(">I", 3)
    flags = ["--topic=t", "--size=3"]
    one = parse(["pub", *flags, "--batch-size=1"])
    assert publish_command(one, "t") == b"PUB t\n" + size + bytes(3)
    deferred = parse(["pub", *flags, "--batch-size=1", "--defer-ms=50"])
    assert publish_command(deferred, "t2") == b"DPUB t2 50\n" + size + bytes(3)
    batch = struct.pack(">II", 18, 2) + 2 * (size + bytes(3))
    assert publish_command(parse(["pub", *flags, "--batch-size=2"]), "t") == b"MPUB t\n" + batch


# ---- what is printed


def result_of(plan, published, **report):
    totals = Totals(
        published=published, received=0, finished=0, requeued=0, received_bytes=0, started_ns=1
    )
    reports = [Report(started_ns=NS_PER_S, ended_ns=3 * NS_PER_S, **report)]
    return make_result(plan, totals, reports, None)


def test_rates_are_over_the_time_of_all_workers():
    plan = plan_of("pub", "--workers=2")
    totals = Totals(
        published=3_000_000, received=0, finished=0, requeued=0, received_bytes=0, started_ns=1
    )
    reports = [
        Report(started_ns=NS_PER_S, ended_ns=3 * NS_PER_S, user_s=0.2, sys_s=0.1),
        Report(started_ns=2 * NS_PER_S, ended_ns=4 * NS_PER_S, user_s=0.4, sys_s=0.2),
    ]
    result = make_result(plan, totals, reports, None)
    assert result.seconds == 3
    assert result.messages_per_s == 1_000_000
    assert result.megabytes_per_s == 200
    assert result.cpu_us_user == pytest.approx(600_000)
    assert result.cpu_us_sys == pytest.approx(300_000)
    assert result.cpu_us_per_message == pytest.approx(0.3)


def test_a_generator_at_its_limit_is_named():
    plan = plan_of("pub")
    assert remarks(result_of(plan, 100, user_s=1.0, sys_s=0.7), plan.goal) == []
    (line,) = remarks(result_of(plan, 100, user_s=1.0, sys_s=0.9), plan.goal)
    assert "the generator, not the broker, was the limit: it kept 1 core busy for 95 %" in line


def test_a_count_that_was_not_reached_is_told():
    plan = plan_of("pub", "--count=1000")
    assert remarks(result_of(plan, 1000), plan.goal) == []
    (line,) = remarks(result_of(plan, 800), plan.goal)
    assert line.startswith("time was up after 800 of 1,000 messages")


def test_table_is_aligned():
    plan = plan_of("latency", "--channel=c")
    until_ok = Latency(5, 0, 0.5, 0.6, 0.7, 0.8)
    until_arrival = Latency(5, 0, 1.0, 2.0, 3.0, 12345.678)
    result = result_of(plan, 5, latency=until_arrival, ok_latency=until_ok)
    shown = lines_of(table(result))
    assert [len(line) for line in shown[:2]] == [len(shown[0])] * 2
    for first in (3, 6):
        assert [len(line) for line in shown[first : first + 2]] == [len(shown[first])] * 2
    assert shown[3].split() == "until samples intended p50 us p99 us p99.9 us max us".split()
    assert shown[4].split() == ["arrival", "5", "50,000", "1.0", "2.0", "3.0", "12,345.7"]
    assert shown[7].split() == ["OK", "5", "50,000", "0.5", "0.6", "0.7", "0.8"]


# ---- against a broker


@pytest.mark.slow
def test_pub_and_sub(broker, topic):
    result = measure(broker, "pub", topic, "--count=20001", "--batch-size=50", "--workers=2")
    assert (result["published"], result["finished"]) == (20050, 0)
    assert (result["connections"], result["consumers"], result["workers"]) == (2, 0, 2)
    assert result["seconds"] > 0
    assert result["messages_per_s"] == pytest.approx(20050 / result["seconds"])
    assert result["megabytes_per_s"] == pytest.approx(result["messages_per_s"] * 200 / 1e6)
    spent_us = result["cpu_us_user"] + result["cpu_us_sys"]
    assert result["cpu_us_per_message"] == pytest.approx(spent_us / 20050)
    assert topic_stats(broker.http, topic)["message_count"] == 20050

    result = measure(broker, "sub", topic, "--channel=c", "--count=20050", "--workers=2")
    assert (result["published"], result["received"]) == (0, 20050)
    assert (result["finished"], result["requeued"]) == (20050, 0)
    channel = topic_stats(broker.http, topic)["channels"]["c"]
    assert (channel["message_count"], channel["requeue_count"]) == (20050, 0)
    assert left_in(channel) == (0, 0, 0)


@pytest.mark.slow
def test_pub_to_topics(broker, topic):
    flags = ["--topics=3", "--connections=3", "--count=601", "--batch-size=1", "--in-air=10"]
    assert measure(broker, "pub", topic, *flags)["published"] == 601
    counts = [
        topic_stats(broker.http, f"{topic}{number}")["message_count"] for number in ("", 2, 3)
    ]
    assert counts == [201, 200, 200]


@pytest.mark.slow
def test_pub_in_air_and_sub_that_requeues(broker, topic):
    flags = ["--batch-size=1", "--in-air=64", "--size=33", "--count=2001"]
    result = measure(broker, "pub", topic, *flags)
    assert (result["published"], result["in_air"], result["size"]) == (2001, 64, 33)
    assert topic_stats(broker.http, topic)["message_bytes"] == 2001 * 33

    flags = ["--channel=c", "--requeue-ms=0", "--count=2001", "--consumers=3"]
    result = measure(broker, "sub", topic, *flags)
    assert (result["received"], result["requeued"], result["finished"]) == (4002, 2001, 2001)
    channel = topic_stats(broker.http, topic)["channels"]["c"]
    assert (channel["message_count"], channel["requeue_count"]) == (2001, 2001)
    assert left_in(channel) == (0, 0, 0)


@pytest.mark.slow
def test_pub_defers(broker, topic):
    assert post(broker.http, f"/topic/create?topic={topic}").status == 200
    assert post(broker.http, f"/channel/create?topic={topic}&channel=c").status == 200
    flags = ["--batch-size=1", "--defer-ms=60000", "--count=10"]
    assert measure(broker, "pub", topic, *flags)["published"] == 10
    channels = until(lambda: left_in(topic_stats(broker.http, topic)["channels"]["c"]), (0, 0, 10))
    assert channels == (0, 0, 10)


@pytest.mark.slow
def test_pubsub_fans_out(broker, topic):
    flags = ["--channel=c", "--channels=2", "--count=10000", "--workers=2"]
    result = measure(broker, "pubsub", topic, *flags)
    assert (result["published"], result["received"], result["finished"]) == (10000, 20000, 20000)
    assert (result["connections"], result["consumers"]) == (2, 4)
    found = topic_stats(broker.http, topic)
    assert found["message_count"] == 10000
    assert sorted(found["channels"]) == ["c", "c2"]
    for channel in found["channels"].values():
        assert (channel["message_count"], *left_in(channel)) == (10000, 0, 0, 0)


@pytest.mark.slow
def test_latency(broker, topic):
    flags = ["--channel=c", "--rate=2000", "--count=400", "--output-buffer-timeout=25ms"]
    result = measure(broker, "latency", topic, *flags)
    taken = result["latency_us"]
    assert (taken["count"], taken["intended"]) == (400, 400)
    assert 0 < taken["p50"] <= taken["p99"] <= taken["p999"] <= taken["max"]
    answered = result["ok_latency_us"]
    assert (answered["count"], answered["intended"]) == (400, 400)
    assert 0 < answered["p50"] <= answered["p99"] <= answered["p999"] <= answered["max"]
    # The last of 400 is due 199.5 ms after the first; nobody can have been faster.
    assert result["seconds"] >= 0.199
    assert result["received"] >= 400
    assert topic_stats(broker.http, topic)["message_count"] == result["published"]


def leave(broker, topic, count):
    """Messages that name a moment long ago."""
    with Client(broker.tcp) as client:
        client.mpub(topic, [bytes(8)] * count)


@pytest.mark.slow
def test_latency_leaves_out_what_was_there_before(broker, topic):
    # One consumer: Go's buffers of two overtake each other.
    flags = ["--channel=c", "--rate=2000", "--consumers=1", "--output-buffer-timeout=25ms"]
    assert post(broker.http, f"/topic/create?topic={topic}").status == 200
    assert post(broker.http, f"/channel/create?topic={topic}&channel=c").status == 200
    leave(broker, topic, 50)
    status, result, said = run(broker, "latency", topic, *flags, "--count=200")
    assert (status, result["latency_us"]["stale"]) == (0, 50)
    assert 100 <= result["latency_us"]["count"] <= 200
    assert result["latency_us"]["max"] < 60e6
    assert "50 messages from before this run came first and were left out" in said

    leave(broker, topic, 200)
    status, result, said = run(broker, "latency", topic, *flags, "--count=20")
    assert status == 1
    assert "the channel was full of older messages" in result["error"]
    assert result["latency_us"] is None
    assert len(lines_of(said)) == 1


@pytest.mark.slow
def test_sub_waits_for_messages_until_the_time_is_up(broker, topic):
    before_s = time.monotonic()
    result = measure(broker, "sub", topic, "--channel=c", "--runfor=200ms")
    assert time.monotonic() - before_s >= 0.2
    assert (result["received"], result["seconds"], result["messages_per_s"]) == (0, 0, 0)
    assert left_in(topic_stats(broker.http, topic)["channels"]["c"]) == (0, 0, 0)


@pytest.mark.slow
def test_refused_by_the_broker(broker, topic):
    status, result, said = run(broker, "sub", topic, "--channel=c", "--rdy=2501", "--workers=2")
    assert status == 1
    assert result["error"].endswith("--rdy must be at most 2500 with this broker, not 2501")
    assert lines_of(said) == [f"nsqfast-bench: {result['error']}"]
    status, result, said = run(broker, "pub", topic, "--msg-timeout=9h")
    assert status == 1
    assert result["error"].endswith("E_BAD_BODY IDENTIFY msg timeout (32400000) is invalid")


@pytest.mark.slow
def test_table_and_progress_bar_for_a_person(own_broker, topic):
    own, theirs = pty.openpty()
    command = command_for(own_broker, "pub", topic, "--count=400")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        drawn = read_terminal(own)
        os.close(own)
        head, figures = lines_of(process.stdout.read())[:2]
    assert process.returncode == 0
    assert head.split()[:2] == ["mode", "published"]
    assert figures.split()[:2] == ["pub", "400"]
    assert b"messages" in drawn


# ---- what goes wrong


@pytest.mark.slow
def test_no_broker(topic):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [*COMMAND, "pub", f"--topic={topic}", f"--nsqd-tcp-address=127.0.0.1:{port}"]
    for flags in ([], ["--json", "--workers=2"]):
        done = subprocess.run(
            [*command, *flags], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        assert done.returncode == 1
        complaint = f"cannot connect to 127.0.0.1:{port}: is nsqd listening there?"
        assert lines_of(done.stderr) == [f"nsqfast-bench: {complaint}"]
        if flags:
            assert json.loads(done.stdout)["error"] == complaint
        else:
            assert done.stdout == ""


@pytest.mark.slow
def test_no_host(topic):
    # A name that may not exist, by RFC 6761.
    address = "--nsqd-tcp-address=broker.invalid:4150"
    done = run_command(*COMMAND, "pub", f"--topic={topic}", address, timeout=SECONDS_MAX)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "nsqfast-bench: cannot connect to broker.invalid:4150: no such host\n"


@pytest.mark.slow
def test_a_worker_that_is_not_ready_keeps_nobody_waiting(own_broker, topic):
    # The broker allows one consumer, so that the other worker waits at the gate alone.
    status, result, said = run(own_broker, "sub", topic, "--channel=c", "--workers=2")
    assert status == 1
    assert "E_SUB_FAILED" in result["error"]
    assert (result["seconds"], result["workers"]) == (0, 2)
    assert len(lines_of(said)) == 1


def is_worker(child):
    """Not the helper that multiprocessing has beside them, and not one that is dead already."""
    try:
        return "spawn_main" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:
        return False


class Running:
    """A run that goes on until something happens to it; messages flow when it is entered."""

    def __init__(self, broker, topic, *flags):
        self.command = command_for(broker, "pub", topic, "--json", "--runfor=60", *flags)
        self.broker, self.topic = broker, topic

    def __enter__(self):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(self.command, **pipes)
        until(lambda: self.published() > 1000, wanted=True)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def published(self):
        return (topic_stats(self.broker.http, self.topic) or {"message_count": 0})["message_count"]

    def workers(self):
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if is_worker(child)]

    def end(self):
        """Exit status, the JSON object, stderr; no worker is left."""
        workers = self.workers()
        printed, said = self.process.communicate(timeout=SECONDS_MAX)
        assert not any(worker.is_running() for worker in workers)
        return self.process.returncode, json.loads(printed), said


SLOWLY = ["--batch-size=1", "--size=1"]


@pytest.mark.slow
def test_sigint_ends_it_in_order(broker, topic):
    with Running(broker, topic, *SLOWLY, "--workers=2") as running:
        running.process.send_signal(signal.SIGINT)
        status, result, said = running.end()
        assert (status, result["error"]) == (130, "interrupted")
        assert lines_of(said) == ["nsqfast-bench: interrupted"]
        assert result["published"] == running.published()
        assert result["seconds"] > 0
        assert result["cpu_us_per_message"] > 0


def test_a_second_signal_in_the_middle_of_the_first():
    """It interrupts the handler of the other one."""

    class Crew:
        ended = 0

        def stop(self):
            signals._note(signal.SIGTERM, None)

        def kill(self):
            self.ended += 1

    signals, crew = program._Signals(), Crew()
    signals.watch_over(crew)
    signals._note(signal.SIGINT, None)
    assert (signals.came, crew.ended) == ([signal.SIGINT, signal.SIGTERM], 1)


def is_pending(process, number):
    """Whether the process has not been given that signal yet."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("ShdPnd:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    raise AssertionError("no ShdPnd")


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_a_broker_that_hangs(own_broker, topic):
    with Running(own_broker, topic, *SLOWLY) as running, own_broker.frozen():
        before_s = time.monotonic()
        # Two different ones: two of the same kind may become one on their way.
        running.process.send_signal(signal.SIGINT)
        # Of two that wait the kernel starts the second handler first.
        until(lambda: is_pending(running.process, signal.SIGINT), wanted=False)
        running.process.send_signal(signal.SIGTERM)
        status, result, said = running.end()
    assert (status, result["error"]) == (130, "interrupted")
    assert lines_of(said) == ["nsqfast-bench: interrupted"]
    # Otherwise it waits 10 s for its last OK.
    assert time.monotonic() - before_s < 8


@pytest.mark.slow
def test_the_broker_dies(own_broker, topic):
    with Running(own_broker, topic, *SLOWLY, "--workers=2") as running:
        own_broker.kill()
        status, result, said = running.end()
    assert status == 1
    assert result["published"] > 0
    assert at(own_broker) in result["error"]
    assert lines_of(said) == [f"nsqfast-bench: {result['error']}"]


@pytest.mark.slow
def test_a_worker_dies(own_broker, topic):
    with Running(own_broker, topic, *SLOWLY, "--workers=2") as running:
        workers = running.workers()
        assert len(workers) == 2
        workers[0].kill()
        status, result, said = running.end()
    assert (status, result["error"]) == (1, "a worker process died")
    assert lines_of(said) == ["nsqfast-bench: a worker process died"]
