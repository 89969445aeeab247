"""Kills, full disks, brokers that freeze or come back: every message that is finished is in a file."""

import asyncio
import itertools
import random
import resource
import signal
import socket
import subprocess
import time

import pytest
from aiohttp import web

from nsqfast.client.sync import Config, Consumer, Producer
from nsqfast.tools.nsq_to_file.column_file import RowsFile
from support.archived import CHANNEL, bodies_in, is_drained, records_in, unfinished
from support.fake_lookup import Lookupd
from support.ports import hold_port
from support.programs import publish
from support.server import freeze, start_nsqd
from support.tools import Tool, tool_command
from support.waiting import eventually, until
from support.web import get, topic_stats

pytestmark = pytest.mark.soak

FORMATS = {
    "lines": [],
    "gzip": ["--gzip"],
    "zstd": ["--compression=zstd"],
    "jsonl": ["--format=jsonl"],
    "parquet": ["--format=parquet"],
    "arrow": ["--format=arrow", "--compression=zstd"],
}


def formats(*ours, go=()):
    """With which broker each format is tried: what differs between brokers is seen with a few."""
    marks = {"nsqfast": (), "go": pytest.mark.go}
    return pytest.mark.parametrize(
        ("implementation", "flags"),
        [
            pytest.param(broker, FORMATS[name], id=f"{broker}-{name}", marks=marks[broker])
            for broker, names in (("nsqfast", ours), ("go", go))
            for name in names
        ],
        indirect=["implementation"],
    )


COUNT = 8000
# Go's nsqd has what was in flight to a client that died time out before it delivers it again.
IMPATIENT = "--consumer-opt=msg_timeout,1s"
SIZE_LIMIT = 200_000
IN_FLIGHT = 200


def tool(folder, topic, address, *flags, **more):
    command = tool_command(
        "nsq_to_file",
        "nsqfast",
        f"--topic={topic}",
        f"--nsqd-tcp-address={address}",
        f"--output-dir={folder}",
        "--sync-interval=50ms",
        *flags,
    )
    return Tool(command, **more)


def publish_numbers(address, topic, numbers=range(COUNT)):
    bodies = [b"%d " % number + b"x" * 80 for number in numbers]
    with Producer(address) as producer:
        for first in range(0, len(bodies), 1000):
            producer.publish_many(topic, bodies[first : first + 1000])
    return set(bodies)


def wait_until_under_way(broker, topic):
    """Some are finished, and as a rule more are to come: on a busy machine all may be done before anybody looks."""
    eventually(lambda: unfinished(broker, topic) < COUNT * 9 // 10)


def drain(broker, topic, address):
    """What the channel holds once nobody else consumes it; all of it is finished."""
    found = []
    config = Config(max_in_flight=2000, max_attempts=0)
    deadline_s = time.monotonic() + 15
    with Consumer(topic, CHANNEL, nsqd=address, config=config) as consumer:
        while unfinished(broker, topic):
            assert time.monotonic() < deadline_s
            while message := consumer.get(timeout_s=0.02):
                found.append(message.body)
                message.finish()
    return found


def in_flight(broker, topic):
    return topic_stats(broker.http, topic)["channels"][CHANNEL]["in_flight_count"]


def hold_back(broker, topic):
    eventually(lambda: not topic_stats(broker.http, topic)["channels"][CHANNEL]["clients"])


@formats(*FORMATS, go=("lines", "parquet"))
def test_killed(broker, address, topic, tmp_path, flags):
    """After kill -9 under load, and another start, all are there; what was in flight may be there twice."""
    bodies = publish_numbers(address, topic)
    with tool(tmp_path, topic, address, *flags, IMPATIENT) as running:
        wait_until_under_way(broker, topic)
        running.kill()
    hold_back(broker, topic)
    rest = []
    if flags in (FORMATS["lines"], FORMATS["gzip"]):  # which can be read as they are
        rest = drain(broker, topic, address)
    else:
        with tool(tmp_path, topic, address, *flags) as running:
            eventually(lambda: is_drained(broker, [topic]), 30)
            assert running.end() == 0, running.text
    found = bodies_in(tmp_path)
    assert set(found) | set(rest) == bodies
    assert len(found) + len(rest) - COUNT <= IN_FLIGHT
    assert not [path for path in tmp_path.rglob("*") if path.suffix in {".rows", ".part"}]


@formats("lines", "gzip", "parquet", go=("lines",))
def test_told_to_stop_under_load(broker, address, topic, memory_folder, flags):
    """With all in flight that may be, and more to come."""
    bodies = publish_numbers(address, topic, range(1000))
    with tool(memory_folder, topic, address, *flags, "--max-in-flight=500") as running:
        eventually(lambda: is_drained(broker, [topic]), 30)
        freeze(running.process)
        bodies |= publish_numbers(address, topic, range(1000, COUNT))
        eventually(lambda: in_flight(broker, topic) == 500)
        running.process.send_signal(signal.SIGTERM)
        running.process.send_signal(signal.SIGCONT)
        assert running.end(None, seconds_max=5) == 0, running.text
    hold_back(broker, topic)
    rest = drain(broker, topic, address)
    found = bodies_in(memory_folder)
    assert set(found) | set(rest) == bodies
    assert len(found) + len(rest) == COUNT  # nothing twice
    assert rest
    assert b"Traceback" not in running.err


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE_LIMIT, SIZE_LIMIT))


def check_failed(running, broker, topic, address):
    """Exit 1 with one line; what is finished is in files, and no record is torn."""
    assert running.end(None) == 1, running.text
    assert b"FATAL" in running.err
    assert b"Traceback" not in running.err
    assert b"Exception" not in running.err
    hold_back(broker, topic)
    return drain(broker, topic, address)


@formats(*FORMATS, go=("lines",))
def test_files_that_may_not_grow(broker, address, topic, tmp_path, flags):
    bodies = publish_numbers(address, topic)
    out = tmp_path / "out"
    if flags in (FORMATS["gzip"], FORMATS["zstd"]):
        bodies |= publish_noise(address, topic)
    with tool(out, topic, address, *flags, prepare=limit_file_size) as running:
        rest = check_failed(running, broker, topic, address)
    assert b"file too large" in running.err.lower()
    if flags in (FORMATS["parquet"], FORMATS["arrow"]):
        with tool(out, topic, address, *flags) as again:  # completes what is there
            again.wait_for(lambda it: b"moving finished file" in it.err)
            assert again.end() == 0
    found = bodies_in(out)
    assert set(found) <= bodies
    assert set(found) | set(rest) == bodies
    assert found


def publish_noise(address, topic):
    """What cannot be compressed much."""
    numbers = random.Random(5)
    bodies = [b"%0200x" % numbers.getrandbits(800) for _ in range(6000)]
    publish(address, topic, *bodies)
    return set(bodies)


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


@formats("lines", "jsonl", "parquet", go=("lines",))
def test_a_full_disk(broker, address, topic, small_disk, flags):
    bodies = publish_numbers(address, topic)
    with tool(small_disk, topic, address, *flags) as running:
        rest = check_failed(running, broker, topic, address)
    assert b"no space left on device" in running.err
    if flags == FORMATS["parquet"]:
        (rows,) = small_disk.rglob("*.rows")
        left = RowsFile.take_over(rows)
        found = [body for batch in left.batches() for body in batch["body"].to_pylist()]
        left.close()
    else:
        found = bodies_in(small_disk)
    assert set(found) <= bodies
    assert set(found) | set(rest) == bodies
    assert found


def test_a_folder_that_is_read_only(broker, address, topic, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    bind = ["mount", "--bind", folder, folder]
    if subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        publish(address, topic, b"body")
        with tool(folder, topic, address) as running:
            assert running.end(None) == 1
        assert b"read-only file system" in running.err
        assert b"Traceback" not in running.err
        eventually(lambda: unfinished(broker, topic) == 1)
    finally:
        subprocess.run(["umount", folder], check=True)


def test_an_nsqd_that_comes_back(implementation, tmp_path):
    """Not there at the start, then killed and started again: nothing is lost."""
    port = hold_port()
    data = tmp_path / "data"
    data.mkdir()
    at = f"--tcp-address=127.0.0.1:{port}"
    with tool(tmp_path / "out", "t", f"127.0.0.1:{port}") as running:
        running.wait_for(lambda it: b"again in" in it.err)
        expected = set()
        for run in (b"first", b"second"):
            with start_nsqd(implementation, data, at, "--mem-queue-size=0") as broker:
                bodies = [run + b" %d" % number for number in range(500)]
                publish(f"127.0.0.1:{port}", "t", *bodies)
                expected |= set(bodies)
                eventually(lambda b=broker: is_drained(b, ["t"]), 20)
        assert running.end() == 0, running.text
    found = bodies_in(tmp_path / "out")
    assert set(found) == expected


def test_a_frozen_nsqd(implementation, tmp_path, memory_folder):
    data = tmp_path / "data"
    data.mkdir()
    with start_nsqd(implementation, data) as broker:
        address = "{}:{}".format(*broker.tcp)
        publish(address, "t", *[b"%d" % number for number in range(1000)])
        with tool(memory_folder, "t", address) as running:
            eventually(lambda: is_drained(broker, ["t"]), 30)
            with broker.frozen():
                assert running.end(seconds_max=10) == 0, running.text
        assert len(bodies_in(memory_folder)) == 1000
        # Said when the 3 s are over, and not where the connection's own 5 s were waited for.
        assert b"does not answer" in running.err


BODIES = [b"a\nb\r\n", b"\0", b"\xff\xfe", "é\u2028😀".encode(), b'"\\', b" ", b"\n"]


@formats("jsonl", "parquet", "arrow", go=("jsonl",))
def test_bodies_are_exact(broker, address, topic, tmp_path, flags):
    begun_ns = time.time_ns()
    publish(address, topic, *BODIES, b"m" * (1 << 20), bytes(range(256)) * 4095)
    with tool(tmp_path, topic, address, *flags) as running:
        eventually(lambda: is_drained(broker, [topic]))
        assert running.end() == 0, running.text
    records = records_in(tmp_path)
    assert [record["body"] for record in records] == [
        *BODIES,
        b"m" * (1 << 20),
        bytes(range(256)) * 4095,
    ]
    for record in records:
        assert set(record) == {"topic", "id", "timestamp_ns", "attempts", "nsqd", "body"}
        assert (record["topic"], record["attempts"], record["nsqd"]) == (topic, 1, address)
        assert begun_ns <= record["timestamp_ns"] <= time.time_ns()
        assert int(record["id"], 16)
    assert len({record["id"] for record in records}) == len(records)


NONSENSE = ["{", "[]", '{"topics": 5}', '{"topics": [null, 7, "a b", "../x"]}', "\ufffd" * 3000]


async def test_an_nsqlookupd_that_answers_nonsense(implementation, tmp_path):
    """Beside one that is dead and one that works, whose topic is archived."""
    dead = f"127.0.0.1:{hold_port()}"
    (tmp_path / "data").mkdir()
    answers = itertools.cycle(NONSENSE)
    with start_nsqd(implementation, tmp_path / "data") as broker:
        address = "{}:{}".format(*broker.tcp)
        publish(address, "wanted", b"body")
        async with Lookupd() as liar, Lookupd(address) as honest:
            liar.answer = lambda: web.Response(text=next(answers))
            honest.topics = ["wanted"]
            addresses = (dead, liar.address, honest.address)
            with Tool(follow_command(tmp_path / "out", addresses)) as running:
                await until(lambda: bodies_in(tmp_path / "out") == [b"body"])
                await asyncio.to_thread(eventually, lambda: is_drained(broker, ["wanted"]))
                asked = len(liar.requests)
                await until(lambda: len(liar.requests) > asked + 2 * len(NONSENSE))
                assert await asyncio.to_thread(running.end) == 0, running.text
                assert b"Traceback" not in running.err
                assert b"a list was expected, not 5" in running.err


def follow_command(folder, lookupds):
    return tool_command(
        "nsq_to_file",
        "nsqfast",
        "--topic-pattern=.",
        "--topic-refresh=20ms",
        f"--output-dir={folder}",
        "--sync-interval=50ms",
        *[f"--lookupd-http-address={address}" for address in lookupds],
    )


@pytest.mark.parametrize("action", ["finish", "requeue", "exit", "topic:dead"])
def test_messages_after_max_attempts(broker, address, topic, tmp_path, action):
    publish(address, topic, b"body")
    with Consumer(topic, CHANNEL, nsqd=address) as consumer:
        consumer.get(timeout_s=10).requeue(0)
        eventually(lambda: topic_stats(broker.http, topic)["channels"][CHANNEL]["requeue_count"])
    dead = f"{topic}-dead"
    flags = [
        "--consumer-opt=max_attempts,1",
        "--consumer-opt=default_requeue_delay,0",
        f"--on-give-up={action.replace('dead', dead)}",
    ]
    with tool(tmp_path, topic, address, *flags) as running:
        running.wait_for(lambda it: b"giving up" in it.err)
        if action == "exit":
            assert running.end(None) == 1
            assert b"FATAL: gave up" in running.err
        else:
            if action != "requeue":
                eventually(lambda: is_drained(broker, [topic]))
            assert running.end() == 0, running.text
    assert bodies_in(tmp_path) == []
    assert unfinished(broker, topic) == (action in {"requeue", "exit"})
    if action == "topic:dead":
        assert topic_stats(broker.http, dead)["message_count"] == 1


def test_metrics(broker, address, topic, tmp_path):
    publish(address, topic, *[b"%d" % number for number in range(100)])
    flags = ["--metrics-address=127.0.0.1:0", "--sync-interval=1h", "--max-in-flight=60"]
    with tool(tmp_path, topic, address, *flags) as running:
        running.wait_for(lambda it: b"metrics: listening on" in it.err)
        place = running.err.split(b"metrics: listening on ")[1].split()[0].decode()
        host, _, port = place.rpartition(":")

        def figures():
            found = {}
            for line in get((host, int(port)), "/metrics").body.decode().splitlines():
                if not line.startswith("#"):
                    name, _, value = line.rpartition(" ")
                    found[name.removeprefix("nsqfast_nsq_to_file_")] = float(value)
            return found

        label = f'{{topic="{topic}"}}'
        eventually(lambda: figures().get(f"messages_total{label}") == 100)
        eventually(lambda: unfinished(broker, topic) < 60)
        publish(address, topic, b"last")
        eventually(lambda: figures()[f"messages_total{label}"] == 101)
        found = figures()
        assert found[f"bytes_total{label}"] == 10 * 2 + 90 * 3 + 5
        assert found[f"stored_bytes_total{label}"] == 10 * 2 + 90 * 3 + 5
        assert found[f"files_total{label}"] == 1
        assert found[f"syncs_total{label}"] >= 1
        assert found[f"sync_seconds_total{label}"] > 0
        assert found["given_up_total"] == 0
        assert found[f"in_flight{label}"] == unfinished(broker, topic) > 0
        first = found[f"oldest_unfinished_seconds{label}"]
        assert first > 0
        eventually(lambda: figures()[f"oldest_unfinished_seconds{label}"] > first)
        assert running.end() == 0


def test_an_address_for_metrics_that_is_taken(topic, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flag = "--metrics-address={}:{}".format(*taken.getsockname())
        with tool(tmp_path, topic, "127.0.0.1:1", flag) as running:
            assert running.end(None) == 1
    assert b"address already in use" in running.err
    assert b"Traceback" not in running.err
